"""Our few words of the X11 protocol, spoken to a real server that lets only those in who know its secret."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from Xlib import display

from moregpu.worker.probes.x11_wire import COOKIE, RequestRefused, XConnection
from tests.displays import need, screen


def entry(family: int, address: bytes, number: str, secret: bytes) -> bytes:
    fields = (address, number.encode(), COOKIE, secret)
    return struct.pack(">H", family) + b"".join(struct.pack(">H", len(field)) + field for field in fields)


@contextmanager
def guarded(folder: Path, secret: bytes, *more: str) -> Generator[str]:
    """A server that asks for a secret; yields its number."""
    need("Xvfb", "xvfb")
    server = folder / "server"
    server.write_bytes(entry(65_535, b"", "", secret))
    read, write = os.pipe()
    words = ["Xvfb", "-displayfd", str(write), "-screen", "0", "640x480x24", "-screen", "1", "320x200x24",
             "-noreset", "-auth", str(server), *more]  # fmt: skip
    process = subprocess.Popen(words, pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as told:
            yield told.readline().strip()
    finally:
        process.kill()
        process.wait()


def test_who_knows_the_secret_of_a_server_is_let_in_and_nobody_else(tmp_path: Path) -> None:
    secret, mine = secrets.token_bytes(16), tmp_path / "mine"
    me = socket.gethostname().encode()
    with guarded(tmp_path, secret, "-nolisten", "tcp") as number:
        strangers = entry(256, b"another machine", number, secret) + entry(256, me, f"{number}7", secret)
        for known, is_let_in in (
            (b"", False),
            (strangers, False),
            (entry(256, me, number, bytes(16)), False),
            (strangers + entry(256, me, number, secret), True),
            (entry(65_535, b"", "", secret), True),
            (entry(65_535, b"", "", secret)[:-3], False),
        ):
            mine.write_bytes(known)
            try:
                XConnection(f":{number}", {"XAUTHORITY": str(mine)}).close()
            except OSError as error:
                assert not is_let_in, error
                assert "refuses" in str(error)
            else:
                assert is_let_in


def test_a_server_is_reached_over_tcp_too(tmp_path: Path) -> None:
    secret, mine = secrets.token_bytes(16), tmp_path / "mine"
    with guarded(tmp_path, secret, "-listen", "tcp") as number:
        for known in (
            entry(256, socket.gethostname().encode(), number, secret),
            entry(0, bytes((127, 0, 0, 1)), number, secret),
        ):
            mine.write_bytes(known)
            found = XConnection(f"127.0.0.1:{number}.1", {"XAUTHORITY": str(mine)})
            assert found.idle_s(found.extension("MIT-SCREEN-SAVER") or 0) >= 0.0
            found.close()


def test_it_says_what_the_library_says_of_each_screen(tmp_path: Path) -> None:
    secret, mine = secrets.token_bytes(16), tmp_path / "mine"
    with guarded(tmp_path, secret, "-nolisten", "tcp") as number, pytest.MonkeyPatch.context() as patch:
        mine.write_bytes(entry(256, socket.gethostname().encode(), number, secret))
        patch.setenv("XAUTHORITY", str(mine))
        for name in (f":{number}", f":{number}.1", f"unix:{number}.1"):
            ours, theirs = XConnection(name), display.Display(name)
            assert ours.root == theirs.screen().root.id
            assert ours.atom("_NET_ACTIVE_WINDOW") == theirs.intern_atom("_NET_ACTIVE_WINDOW")
            saver = theirs.query_extension("MIT-SCREEN-SAVER")
            assert saver is not None
            assert ours.extension("MIT-SCREEN-SAVER") == saver.major_opcode
            ours.close()
            theirs.close()


def test_what_is_not_there_is_said() -> None:
    with screen() as x:
        found = XConnection(x.name)
        assert found.extension("NO-SUCH-THING") is None
        assert found.numbers(found.root, found.atom("_NO_SUCH_PROPERTY")) == []
        with pytest.raises(RequestRefused):
            found.numbers(0x7FFFFFF, found.atom("_NET_WM_STATE"))
        assert found.numbers(found.root, found.atom("_NO_SUCH_PROPERTY")) == [], "it goes on after an error"
        with pytest.raises(OSError, match="no screen 7"):
            XConnection(f"{x.name}.7")
        found.close()  # the last one: the server begins anew, and resets whoever comes meanwhile
    for name in ("", "nonsense", ":x", ":4711"):
        with pytest.raises(OSError):
            XConnection(name)
