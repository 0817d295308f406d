"""Whose Python code may run here: said by people, kept in the settings, shown in the menu, told to the pool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.errors import InvalidRequest
from moregpu.platform.settings import read_section, write_section
from moregpu.wire.messages import EVERYBODY
from moregpu.worker.config import WorkerConfig
from moregpu.worker.status import Status
from moregpu_tray.chosen import save
from moregpu_tray.consent import names_of, told
from moregpu_tray.history import Ran
from moregpu_tray.menu import Contribution, Do, Item, menu_of
from moregpu_tray.view import View
from tests.displays import need, screen
from tests.tray.desktop import plain_environment, until
from tests.tray.test_menu import flat

NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True).filter(
    lambda name: name not in ("nobody", "everybody")
)


# ---- in words ----


@pytest.mark.parametrize(
    ("given_", "whose"),
    [
        (["nobody"], ()),
        ([], ()),
        ([" , "], ()),
        (["Everybody"], (EVERYBODY,)),
        (["*"], (EVERYBODY,)),
        (["alice", "bob"], ("alice", "bob")),
        (["alice, bob", "alice"], ("alice", "bob")),
    ],
)
def test_people_are_named_one_by_one_by_commas_or_all_or_none(given_: list[str], whose: tuple[str, ...]) -> None:
    assert names_of(given_) == whose


@pytest.mark.parametrize("mistake", [["nobody", "alice"], ["everybody,bob"], ["ali\x1bce"], ["x" * 500]])
def test_what_contradicts_itself_or_is_no_name_is_refused_in_words(mistake: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        names_of(mistake)


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True))
def test_names_that_are_written_are_the_names_that_are_kept_and_told(names: list[str]) -> None:
    kept = names_of([",".join(names)])
    assert list(kept) == names
    assert all(f"{name}'s" in told(kept) for name in names)


def test_nobody_and_everybody_are_told_as_such() -> None:
    assert (told(()), told((EVERYBODY,))) == ("nobody's", "everybody's in this pool")


def test_a_group_is_named_and_told_as_one() -> None:
    assert names_of(["alice, group:lab"]) == ("alice", "group:lab")
    assert told(("alice", "group:lab")) == "alice's and the group lab's"


# ---- kept ----


def test_what_the_owner_chose_is_kept_and_what_else_stands_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOREGPU_HOME", str(tmp_path))
    write_section("worker", {"functions_network": True, "engine": "cpu", "ceiling": 0.5})
    save(WorkerConfig(yields=True, functions=("alice",), kinds=("function",)))
    assert read_section("worker") == {
        "functions_network": True, "engine": "cpu", "functions": ["alice"], "kinds": ["function"]
    }  # fmt: skip
    save(WorkerConfig(yields=True))
    assert read_section("worker") == {"functions_network": True, "engine": "cpu"}


# ---- in the menu ----


def menu(config: WorkerConfig, jobs: tuple[Ran, ...] = (), status: Status | None = None) -> list[Item]:
    view = View(joined=True, status=status or Status(state="online"))
    return list(flat(menu_of(view, config, ("kernel", "function"), Contribution(jobs=jobs), autostart=False)))


def ticked(items: list[Item]) -> list[tuple[Do | None, object]]:
    wanted = (Do.FUNCTIONS, Do.FUNCTIONS_OF, Do.KIND)
    return [(item.do, item.value) for item in items if item.do in wanted and item.ticked]


def test_nobodys_is_ticked_until_somebody_is_let_in() -> None:
    assert ticked(menu(WorkerConfig())) == [(Do.KIND, "kernel"), (Do.FUNCTIONS, "")]
    assert ticked(menu(WorkerConfig(functions=("*",)))) == [(Do.KIND, "kernel"), (Do.FUNCTIONS, EVERYBODY)]
    assert ticked(menu(WorkerConfig(functions=("bob",)))) == [(Do.KIND, "kernel"), (Do.FUNCTIONS_OF, "bob")]


def test_whose_jobs_ran_here_is_offered_by_name() -> None:
    ran = Ran(job="j-1", submitter="eva", name="rays", kind="kernel", tasks=1, seconds=1.0, watt_hours=0.1)
    of = [item.value for item in menu(WorkerConfig(functions=("bob",)), (ran, ran)) if item.do is Do.FUNCTIONS_OF]
    assert of == ["bob", "eva"]


def test_a_sandbox_that_does_not_hold_is_said_where_functions_are_let_in() -> None:
    status = Status(state="online", functions_off="functions stay off: bubblewrap is not installed")
    assert any("bubblewrap" in item.label for item in menu(WorkerConfig(functions=("*",)), status=status))


# ---- the window ----


def window(display: str | None, names: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "moregpu_tray.who"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=plain_environment() | ({"DISPLAY": display} if display else {}),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode({"names": names}).decode())
    process.stdin.close()
    return process


def keys(display: str, *words: str) -> None:
    xdotool = need("xdotool", "xdotool")
    environment = plain_environment() | {"DISPLAY": display}

    def find() -> str:
        found = subprocess.run(
            [xdotool, "search", "--name", "Whose functions"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return found.stdout.split()[0] if found.stdout.split() else ""

    subprocess.run([xdotool, "windowfocus", "--sync", until(find)], env=environment, check=True)
    subprocess.run([xdotool, *words], env=environment, check=True)


@pytest.mark.slow
def test_a_name_is_typed_behind_those_that_are_there() -> None:
    with screen() as x:
        process = window(x.name, ["alice"])
        keys(x.name, "key", "End", "type", "--delay", "1", ", bob")
        keys(x.name, "key", "Return")
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "alice,bob"


@pytest.mark.slow
def test_escape_changes_nothing() -> None:
    with screen() as x:
        process = window(x.name, ["alice"])
        keys(x.name, "key", "Escape")
        assert process.wait(30) == 1


def test_without_a_display_it_says_so_with_its_own_status() -> None:
    process = window(None, [])
    assert process.wait(30) == 3
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
