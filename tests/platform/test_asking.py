"""A secret line is asked for on a terminal."""

from __future__ import annotations

import io
import os
import sys
import termios
from collections.abc import Callable, Iterator

import pytest

from moregpu.platform.asking import ask_for_line
from moregpu.wire.invite import ClientLine, Invite, lacks_its_end, parse_client_line, parse_invite

INVITE = Invite(
    addresses=("pool:1",),
    pool_id=bytes(16),
    cs_pub=bytes(32),
    invite_id="i-" + "0" * 26,
    secret=bytes(16),
    pin=bytes(32),
)
CLIENT = ClientLine(addresses=("pool:1",), pin=bytes(32), token="mgt_abcdefgh_" + "x" * 43)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Ask on a terminal whose user pastes this once the question stands there."""
    user, terminal = os.openpty()
    shown = termios.tcgetattr(terminal)

    def ask(paste: str) -> str:
        class Screen(io.StringIO):
            def flush(self) -> None:
                assert not termios.tcgetattr(terminal)[3] & termios.ECHO, "it would be seen"
                os.write(user, paste.encode())

        monkeypatch.setattr(sys, "stderr", Screen())
        return ask_for_line("Line", lacks_its_end)

    with os.fdopen(terminal, closefd=False) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ask
        assert termios.tcgetattr(terminal) == shown
    os.close(user)
    os.close(terminal)


def broken(line: str) -> str:
    return "".join(f"{line[at : at + 60]}\n" for at in range(0, len(line), 60))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_line_that_mail_broke_is_read_whole(answers: Callable[[str], str], wrapped: bool) -> None:
    def pasted(line: str) -> str:
        return answers(broken(line) if wrapped else f"{line}\n")

    assert parse_invite(pasted(INVITE.line())) == INVITE
    assert parse_client_line(pasted(CLIENT.line())) == CLIENT


def test_what_follows_the_line_answers_no_other_question(answers: Callable[[str], str]) -> None:
    assert parse_invite(answers(f"{INVITE.line()}\n\nyes\n")) == INVITE
    assert answers("other\n") == "other\n"


def test_what_is_no_such_line_or_lacks_its_end_is_not_waited_for(answers: Callable[[str], str]) -> None:
    assert answers("nonsense\n") == "nonsense\n"
    assert answers(f"{INVITE.line()[:50]}\n") == f"{INVITE.line()[:50]}\n"


def test_a_terminal_that_is_closed_says_so(answers: Callable[[str], str]) -> None:
    with pytest.raises(EOFError):
        answers("\x04")
