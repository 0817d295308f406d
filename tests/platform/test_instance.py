"""One of a kind: the second process talks to the first, a killed one leaves nothing behind that matters."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moregpu.platform import instance
from moregpu.platform.instance import Instance, ask

HOLD = """
import sys
from moregpu.platform.instance import Instance
claimed = Instance.claim("test")
print("claimed" if claimed else "taken", flush=True)
claimed and claimed.serve(lambda request: {"heard": request})
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_place(home: Path) -> None:
    """Each test its own MOREGPU_HOME, and so its own instance."""


def other() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_first_is_the_one_and_answers_the_second() -> None:
    first = other()
    try:
        assert said(first) == "claimed"
        assert Instance.claim("test") is None
        assert ask("test", {"do": "status"}) == {"heard": {"do": "status"}}
    finally:
        first.kill()
        first.wait()


def test_a_killed_one_makes_room() -> None:
    first = other()
    assert said(first) == "claimed"
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert ask("test", {}) is None
    mine = Instance.claim("test")
    assert mine is not None
    mine.close()


def test_nobody_there_is_no_error() -> None:
    assert ask("nobody", {"do": "status"}) is None


def test_two_names_are_two_instances() -> None:
    one, two = Instance.claim("one"), Instance.claim("two")
    assert one is not None
    assert two is not None
    one.close()
    two.close()


@pytest.mark.skipif(sys.platform == "win32", reason="mode bits")
def test_only_its_user_can_reach_it() -> None:
    mine = Instance.claim("test")
    assert mine is not None
    folder = instance._address("test").parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == os.getuid()
    mine.close()


def test_a_talker_who_sends_nonsense_or_nothing_stops_nobody() -> None:
    from multiprocessing.connection import Client

    mine = Instance.claim("test")
    assert mine is not None
    heard: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        heard.append(request)
        return {"ok": True}

    mine.serve(answer)
    for nonsense in (b"\xff\xfe", b"[1]", b""):
        with Client(str(instance._address("test")), family="AF_UNIX") as connection:
            connection.send_bytes(nonsense)
    Client(str(instance._address("test")), family="AF_UNIX").close()
    assert ask("test", {"do": "x"}) == {"ok": True}
    assert heard == [{"do": "x"}]
    mine.close()
