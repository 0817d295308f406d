"""What a stranger's function would try, and a program that tries it: `hostile.py LEVEL FOLDER`, as whoever runs it.

Prints one JSON object: what each attempt came to. The tests look at it from outside, as the machine's owner would.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from moregpu.worker.functions.room import FunctionRoom
from moregpu.worker.sandbox.level import Level, whose
from moregpu.worker.sandbox.usage import counted_beside
from tests.worker.functions.rooms import Owner, called, calls_of, with_room

SECRET = "the owner's secret"
LEFT = f"left-{os.getpid()}"
"""The name of the process that is left behind, for whoever looks from outside."""


def fork_bomb() -> int:
    made = 0
    try:
        while True:
            if os.fork() == 0:
                time.sleep(60)
            made += 1
    except OSError:
        return made


def fill_the_disk() -> int:
    written = 0
    try:
        for number in range(10_000):
            with open(os.path.join(os.environ["TMPDIR"], str(number)), "wb") as file:
                written += file.write(bytes(1 << 20))
    except OSError:
        pass
    return written >> 20


def leave_a_process_behind(name: str) -> int:
    """One that nobody's child list names: forked twice, in a session of its own."""
    import ctypes

    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
            path = os.path.join(os.environ["TMPDIR"], "left")
            with open(path, "w") as file:
                file.write("something of mine")
            for _ in range(600):
                time.sleep(0.1)
        os._exit(0)
    os.waitpid(pid, 0)
    while not os.path.exists(os.path.join(os.environ["TMPDIR"], "left")):
        time.sleep(0.01)
    return 1


def what_is_there() -> list[str]:
    return sorted(os.listdir(os.environ["TMPDIR"]))


def harm_the_parent() -> list[str]:
    got = []
    for what, attempt in {
        "killed": lambda: os.kill(os.getppid(), signal.SIGKILL),
        "stopped": lambda: os.kill(os.getppid(), signal.SIGSTOP),
        "read": lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
        "listed": lambda: os.listdir(f"/proc/{os.getppid()}/fd"),
    }.items():
        try:
            attempt()
        except OSError:
            continue
        got.append(what)
    return got


def open_descriptors() -> list[int]:
    found = []
    for number in range(256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found


def environment() -> dict[str, str]:
    return dict(os.environ)


def who_am_i() -> list[int]:
    return [os.getuid(), os.geteuid(), os.getgid(), *os.getgroups()]


def new_namespaces() -> list[str]:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    got = ["unshare"] if libc.unshare(0x10000000) == 0 else []
    done = subprocess.run(["unshare", "-U", "true"], capture_output=True, check=False).returncode
    return got + (["unshare -U"] if done == 0 else [])


def write_the_code() -> list[str]:
    import moregpu

    got = []
    for path in (os.path.dirname(moregpu.__file__), os.path.dirname(os.__file__), "/usr", "/", "/dev"):
        try:
            open(os.path.join(path, "written"), "w").close()
        except OSError:
            continue
        got.append(path)
    return got


def reach(facts: dict[str, Any]) -> list[str]:
    from moregpu.worker.sandbox.attempts import attempts

    got = attempts(facts)
    for family, kind, address in (
        (socket.AF_UNIX, socket.SOCK_DGRAM, facts["datagram"]),
        (socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)),
    ):
        try:
            with socket.socket(family, kind) as each:
                each.connect(address)
                each.send(b"x")
        except OSError:
            continue
        got.append(f"{family} {kind} {address}")
    try:  # a pair is allowed; to point one end elsewhere is not
        one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.sendto(b"x", facts["datagram"])
        got.append("a pair's end")
    except OSError:
        pass
    return got


def main(level: str, folder: Path) -> None:
    """Try all of it in a room of that level."""
    found: dict[str, Any] = {}
    from moregpu.worker.functions.probe import _targets  # pyright: ignore[reportPrivateUsage]

    async def story(room: FunctionRoom, owner: Owner) -> None:
        number = 0

        async def run(function: Any, *arguments: Any, **more: Any) -> Any:
            nonlocal number
            number += 1
            return await called(room, owner, number, function, *arguments, **more)

        for function in (
            who_am_i, environment, open_descriptors, harm_the_parent, new_namespaces, write_the_code,
        ):  # fmt: skip
            found[function.__name__] = await run(function)
        # The kernel counts a user's processes, and knows no sandbox: what the user had before, and ends, leaves room.
        found["beside"] = counted_beside(level, whose().user)
        found["fork_bomb"] = await run(fork_bomb, session="bomb")
        (folder / "targets").mkdir(mode=0o755)
        with _targets(folder / "targets") as (facts, udp), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
            datagram.bind(str(folder / "datagram"))
            datagram.setblocking(False)
            (folder / "datagram").chmod(0o777)
            found["reach"] = await run(reach, {**facts, "datagram": str(folder / "datagram")})
            for what, each in (("udp", udp), ("datagram", datagram)):
                try:
                    each.recv(1)
                    found["reach"].append(what)
                except BlockingIOError:
                    pass
        os.environ["OWNERS_TOKEN"] = SECRET
        found["fill_the_disk"] = str(await run(fill_the_disk))
        found["left"] = await run(leave_a_process_behind, LEFT, session="a")
        found["left_seen_by_a"] = await run(what_is_there, session="a")
        found["left_alive_before"] = _alive()
        found["seen_by_b"] = await run(what_is_there, session="b")
        found["left_alive"] = _alive()
        found["seen_by_a_again"] = await run(what_is_there, session="a")
        task, raw, region = calls_of(999, lambda: time.sleep(60), ())
        room.give(task, raw, region)
        await owner.until(lambda: 999 in owner.began)
        began = time.monotonic()
        room.stop(999)
        await owner.answer(999)
        found["stopped_after_s"] = time.monotonic() - began
        print(f"stopped after {found['stopped_after_s']:.3f} s", file=sys.stderr)

    with_room(folder, story, level=Level(isolation=level, why=(), who=whose()), memory_bytes=512 << 20)  # pyright: ignore[reportArgumentType]
    print(json.dumps(found, default=str))


def _alive() -> int:
    """Leftover processes, as the machine sees them."""
    names: list[str] = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:
            continue
    return names.count(LEFT)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
