"""The list of actions: keys do not clash, help is there, settings are checked, the page is not stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from moregpu.cli.main import build
from moregpu.errors import InvalidRequest
from moregpu.wire.api import InviteRequest, PoolChange, TokenRequest
from moregpu_tui.actions import ACTIONS, BY_ID, SCREENS, Action, matching, on_screen, permitted, refusal
from moregpu_tui.docs import BEGIN, END, PAGE, generated
from moregpu_tui.forms.describe import fields_of
from moregpu_tui.keymap import checked, clashes
from moregpu_tui.modals.help import help_lines


def test_no_key_means_two_things_on_one_screen() -> None:
    assert clashes({}) == []


def test_ids_are_unique_and_everything_has_help() -> None:
    assert len(BY_ID) == len(ACTIONS)
    for action in ACTIONS:
        assert action.title
        assert action.help
        assert set(action.scope) <= set(SCREENS)


SHOWS_ONLY = ("screen.events", "form.reset", "log.", "list.", "copy.", "view.", "app.", "move.", "mark.")
"""What a key of this terminal does with this terminal: there is nothing of it that a shell could do."""


def missing_of(command: str) -> str:
    """The first word of a command line that the program does not have; "" where it has all of it."""
    program, *words = command.split()
    assert program == "moregpu"
    at: Any = typer.main.get_command(build(words[:1]))
    for word in words:
        if word.startswith("--"):
            if not any(word in parameter.opts for parameter in at.params):
                return word
        elif not word.isupper():
            found = getattr(at, "commands", {}).get(word)  # a group's
            if found is None:
                return word
            at = found
    return ""


def test_a_command_that_is_not_there_is_found_out() -> None:
    assert missing_of("moregpu worker set --ceiling") == ""
    assert missing_of("moregpu worker set --celling") == "--celling"
    assert missing_of("moregpu worker explode") == "explode"
    assert missing_of("moregpu explode") == "explode"


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_action_is_also_a_command_to_its_last_word(action: Action) -> None:
    if action.id.startswith(SHOWS_ONLY):
        assert not action.command
        assert not action.changes
        return
    assert action.command
    for command in action.command.split("; "):
        assert missing_of(command) == "", command


@pytest.mark.parametrize(
    ("action", "form"), [("invite.new", InviteRequest), ("token.new", TokenRequest), ("pool.change", PoolChange)]
)
def test_every_field_of_an_actions_form_is_an_option_of_its_command(
    action: str, form: type[InviteRequest | TokenRequest | PoolChange]
) -> None:
    _, *words = BY_ID[action].command.split()
    command: Any = typer.main.get_command(build(words[:1]))
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    known = {parameter.name for parameter in command.params}
    kinds = "scope" if form is TokenRequest else "kind"
    other_names = {"groups": "group", "expires_s": "expires", "kinds": kinds}
    for field in fields_of(form):
        assert other_names.get(field.name, field.name) in known, field.name


def test_what_is_dangerous_says_so() -> None:
    assert {action.id for action in ACTIONS if action.danger == 2} == {"worker.revoke", "job.purge", "pool.rotate"}
    assert {"job.cancel", "worker.drain"} <= {action.id for action in ACTIONS if action.danger == 1}


@pytest.mark.parametrize("screen", SCREENS)
def test_help_lists_every_key_of_its_screen(screen: str) -> None:
    shown = "\n".join("".join(text for text, _ in line) for line in help_lines(screen, "admin", False))
    for action in on_screen(screen):
        assert action.title in shown


def test_a_viewer_sees_no_key_that_changes_anything() -> None:
    allowed = [action for action in ACTIONS if permitted(action, role="viewer", readonly=False)]
    assert not any(action.changes for action in allowed)


def test_a_read_only_console_says_so() -> None:
    pause = BY_ID["worker.pause"]
    assert "--readonly" in refusal(pause, role="admin", readonly=True, not_now="")
    assert "not now" in refusal(pause, role="admin", readonly=False, not_now="stale")
    assert refusal(pause, role="admin", readonly=False, not_now="") == ""


def test_a_few_letters_find_an_action() -> None:
    assert matching("pau", list(ACTIONS))[0].id == "worker.pause"
    assert matching("invite", list(ACTIONS))[0].id == "invite.new"
    assert matching("xyzzy", list(ACTIONS)) == []


def test_other_keys_may_be_written_as_they_are_shown() -> None:
    given = {"worker.pause": "F5, ^t", "job.new": " b ", "app.undo": "Ctrl+Z", "view.zoom": "%,comma,Del,Shift+F3"}
    assert checked(given) == {
        "worker.pause": "f5,ctrl+t", "job.new": "b", "app.undo": "ctrl+z",
        "view.zoom": "percent_sign,comma,delete,shift+f3",
    }  # fmt: skip
    for taken in ("/", "Space", "*", "^P", "f1", "Home"):
        with pytest.raises(InvalidRequest, match="would mean both"):
            checked({"worker.pause": taken})
    for unknown in ("F99", "hyper", "", "esc ape", "mega+f3"):
        with pytest.raises(InvalidRequest, match="is no key"):
            checked({"worker.pause": unknown})


def test_other_keys_are_checked() -> None:
    with pytest.raises(InvalidRequest, match="would mean both"):
        checked({"worker.pause": "d"})
    with pytest.raises(InvalidRequest, match="no action"):
        checked({"worker.explode": "b"})


def test_the_documentation_page_is_not_stale() -> None:
    page = (Path(__file__).parents[2] / PAGE).read_text()
    made = page[page.index(BEGIN) + len(BEGIN) : page.index(END)]
    assert made.strip() == generated().strip(), "stale: python -m moregpu_tui.docs"
