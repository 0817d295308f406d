"""What `moregpu-tray` says in a terminal."""

from __future__ import annotations

import pytest

from moregpu.errors import Conflict
from moregpu.platform import instance
from moregpu_tray import __main__


@pytest.mark.parametrize("typed", ["status", "pause", "resume", "quit"])
def test_a_command_for_a_tray_that_does_not_run_says_how_to_start_it(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instance, "ask", lambda *asked: None)
    given = __main__._parser().parse_args([typed])
    assert given.run(given) == 1
    said = capsys.readouterr()
    assert "Start it: moregpu-tray (without a screen: moregpu-tray --headless)" in said.out + said.err


def test_an_error_and_what_to_do_next_are_two_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*asked: object) -> None:
        raise Conflict("another worker runs here", "stop it first")

    monkeypatch.setattr(instance, "ask", refuse)
    monkeypatch.setattr(__main__, "_leave", lambda status: None)
    __main__.main(["pause"])
    assert capsys.readouterr().err == "moregpu-tray: another worker runs here\n  → stop it first\n"


def test_what_ends_says_that_it_ends_and_not_in_which_state_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instance, "ask", lambda *asked: {"line": "computing with up to 85%"})
    given = __main__._parser().parse_args(["quit"])
    assert given.run(given) == 0
    assert capsys.readouterr().out == "it ends; what is under way goes back to the pool\n"
    given = __main__._parser().parse_args(["resume"])
    assert given.run(given) == 0
    assert capsys.readouterr().out == "computing with up to 85%\n"
    monkeypatch.setattr(instance, "ask", lambda *asked: {"error": "it cannot", "status": 3})
    given = __main__._parser().parse_args(["quit"])
    assert given.run(given) == 3
