"""What hostile code would try first. Runs inside a sandbox, as a function like any other; gives what it got at."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 0.5


def attempts(facts: dict[str, Any]) -> list[str]:
    """Try everything; `facts` says where. An empty list is what a sandbox is for."""
    tried: list[tuple[str, Callable[[], object]]] = [
        ("a Unix socket", lambda: _connect(socket.AF_UNIX, facts["unix"])),
        ("an abstract Unix socket", lambda: _connect(socket.AF_UNIX, "\0" + facts["abstract"])),
        ("TCP on this machine", lambda: _connect(socket.AF_INET, ("127.0.0.1", facts["tcp"]))),
        ("UDP on this machine", lambda: _send(("127.0.0.1", facts["udp"]))),
        ("a file of the worker's", lambda: Path(facts["secret"]).read_bytes()),
        ("a file beside the worker's", lambda: Path(facts["secret"] + ".new").write_bytes(b"x")),
        ("another process's memory", lambda: _open_and_close(f"/proc/{facts['pid']}/mem")),
        ("another process's environment", lambda: _environment(facts["pid"])),
        ("another process's signals", lambda: _signal(facts["pid"])),
        ("the machine's accounts", lambda: _accounts(facts["accounts"])),
    ]
    tried += [(f"the socket {path}", lambda path=path: _connect(socket.AF_UNIX, path)) for path in facts["sockets"]]
    got: list[str] = []
    for what, attempt in tried:
        try:
            attempt()
        except (OSError, ValueError):
            continue
        got.append(what)
    return got


def _connect(family: int, address: Any) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as each:
        each.settimeout(WAIT_S)
        each.connect(address)


def _send(address: tuple[str, int]) -> None:
    """Whether it arrives is seen by the worker: in a network of its own, sending works and reaches nobody."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as each:
        each.sendto(b"x", address)
    raise OSError("not known here")


def _open_and_close(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _environment(pid: int) -> None:
    if pid in (os.getpid(), os.getppid()) or not Path(f"/proc/{pid}/environ").read_bytes():
        raise OSError("not another's")


def _signal(pid: int) -> None:
    if pid in (os.getpid(), os.getppid()):
        raise OSError("not another's")
    os.kill(pid, 0)


def _accounts(size: int) -> None:
    if os.stat("/etc/shadow").st_size != size:  # noqa: PTH116
        raise OSError("not this machine's")
    Path("/etc/shadow").read_bytes()
