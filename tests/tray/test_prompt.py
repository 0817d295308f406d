"""The window that asks for an invite, on a real X server, typed into as a person does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.wire.identity import PoolKeys
from moregpu.wire.invite import Invite
from tests.displays import need, screen
from tests.tray.desktop import plain_environment, until

pytest.importorskip("tkinter", reason="missing: tkinter; mend: apt-get install python3-tk")


def invite() -> Invite:
    keys = PoolKeys.generate()
    return Invite(
        addresses=("192.0.2.7:8787",),
        pool_id=keys.pool_id,
        cs_pub=keys.cs_pub,
        invite_id="i-" + 26 * "0",
        secret=bytes(16),
        pin=bytes(32),
        pool_name="attic",
    )


def xdotool(name: str, *words: str) -> str:
    need("xdotool", "xdotool")
    environment = plain_environment() | {"DISPLAY": name}
    done = subprocess.run(["xdotool", *words], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def prompt(name: str | None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    environment = plain_environment() | ({"DISPLAY": name} if name else {})
    command = [sys.executable, "-m", "moregpu_tray.prompt"]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ceiling": 0.5, "schedule": "22:00-07:00"}))
    process.stdin.close()
    return process


def photograph(name: str, file: str) -> None:
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        command = ["import", "-window", "root", str(Path(folder) / file)]
        subprocess.run(command, env=os.environ | {"DISPLAY": name}, check=False)


def window(name: str) -> str:
    return until(lambda: xdotool(name, "search", "--name", "Join a pool"))


def type_into(name: str, text: str) -> None:
    xdotool(name, "windowfocus", "--sync", window(name))
    xdotool(name, "type", "--delay", "1", text)
    xdotool(name, "key", "Return")


@pytest.mark.slow
def test_an_invite_is_typed_understood_and_agreed_to() -> None:
    line = invite().line()
    with screen() as x:
        process = prompt(x.name)
        type_into(x.name, line)
        photograph(x.name, "prompt.png")
        xdotool(x.name, "key", "Return")
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert process.stdout.read() == line


@pytest.mark.slow
def test_nonsense_is_told_in_the_window_and_escape_means_no() -> None:
    with screen() as x:
        process = prompt(x.name)
        type_into(x.name, "MGPU1-NONSENSE")
        assert process.poll() is None
        xdotool(x.name, "key", "Escape")
        assert process.wait(30) == 1


def test_without_a_display_it_says_so_with_its_own_status() -> None:
    process = prompt(None)
    assert process.wait(30) == 3
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
