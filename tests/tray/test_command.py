"""What `moregpu-tray` says in a terminal."""

from __future__ import annotations

import pytest

from moregpu.platform import instance
from moregpu_tray.__main__ import _parser


@pytest.mark.parametrize("typed", ["status", "pause", "resume", "quit"])
def test_a_command_for_a_tray_that_does_not_run_says_how_to_start_it(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instance, "ask", lambda *asked: None)
    given = _parser().parse_args([typed])
    assert given.run(given) == 1
    said = capsys.readouterr()
    assert "Start it: moregpu-tray (without a screen: moregpu-tray --headless)" in said.out + said.err
