"""What `moregpu-tui` says before it draws a screen."""

from __future__ import annotations

import pytest

from moregpu.errors import NotConfigured
from moregpu_tui import cli


def test_an_error_and_what_to_do_next_are_two_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(options: object) -> int:
        raise NotConfigured("there is no token for \x1b[2J", "set MOREGPU_ADMIN_TOKEN")

    monkeypatch.setattr(cli, "_run", refuse)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == NotConfigured.exit_code
    what, then = capsys.readouterr().err.splitlines()
    assert what.startswith("moregpu-tui: there is no token for ") and "\x1b" not in what
    assert then == "  → set MOREGPU_ADMIN_TOKEN"
