"""Which sandbox holds on this machine: each is tried for real, by a function that tries to get out of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import re
import secrets
import shutil
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

from moregpu.encoding import decode, encode, joined
from moregpu.encoding.failures import unpacked
from moregpu.encoding.records import Status, read_records
from moregpu.errors import MoreGPUError
from moregpu.worker.environments.cache import Environments
from moregpu.worker.functions.calls import CallTask
from moregpu.worker.functions.frames import Span
from moregpu.worker.functions.lane import Lane
from moregpu.worker.functions.proven import Proven
from moregpu.worker.sandbox.attempts import attempts
from moregpu.worker.sandbox.box import Box, Isolation, Runtime, code_folder
from moregpu.worker.sandbox.level import Level, Who, candidates, out_of_reach, readable_paths, whose
from moregpu.worker.sandbox.start import Confinement
from moregpu.worker.sandbox.usage import counted_beside

PATIENCE_S = 20.0
PROBE_PROCESSES = 64

_SOCKETS = (
    "/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock",
    "/tmp/.X11-unix/X0", "/run/systemd/private", "/run/systemd/notify", "/dev/log",  # noqa: S108
)  # fmt: skip


async def find_level(folder: Path, environments: Environments | None = None, proven: Proven | None = None) -> Level:
    """Try what this machine has, the best first; the first that nothing gets out of is the level.

    `environments` gives the Python to try it with; by default one of its own in `folder`, for this once. What `proven`
    knows to hold is not tried again.
    """
    who = whose()
    why: list[str] = []
    if who.trouble:
        return Level(isolation="none", why=(who.trouble,), who=who)
    try:
        runtime = await (environments or Environments(folder / "environments")).base()
    except MoreGPUError as error:
        return Level(isolation="none", why=(str(error),), who=who, has_python=False)
    known = proven.level(who, runtime) if proven is not None else None
    if known is not None:
        return known
    for isolation, missing in candidates():
        if missing:
            why.append(missing)
            continue
        trouble = await try_level(isolation, who, runtime, folder / isolation)
        if not trouble:
            level = Level(isolation=isolation, why=tuple(why), who=who)
            if proven is not None:
                proven.keep(level, runtime)
            return level
        why.append(f"{isolation}: {trouble}")
    folder_barred = out_of_reach(runtime, who)
    if folder_barred:
        why.append(
            f"without one, functions run as user {who.user}, who may not enter {folder_barred}, where their Python or "
            "this program lies: start the worker by a Python that everybody may read, such as /usr/bin/python3"
        )
    return Level(
        isolation="none",
        why=tuple(why) or ("this system has no sandbox that is supported here",),
        who=who,
        has_python=not folder_barred,
    )


async def try_level(isolation: Isolation, who: Who, runtime: Runtime, folder: Path) -> str:
    """What is wrong with a sandbox of that kind; empty where it holds."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        with _targets(folder) as (facts, udp):
            trouble = await _attempt(isolation, who, runtime, folder, facts)
            with contextlib.suppress(BlockingIOError):
                udp.recv(1)
                trouble = trouble or "got at UDP on this machine"
            return trouble
    except OSError as error:
        return str(error.strerror or error)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _attempt(isolation: Isolation, who: Who, runtime: Runtime, folder: Path, facts: dict[str, Any]) -> str:
    told = _Told()
    how = Confinement(
        box=Box(runtime=runtime, user=who.user, group=who.group),
        level=isolation,
        folder=folder / "box",
        memory_bytes=1 << 30,
        processes=PROBE_PROCESSES + counted_beside(isolation, who.user),
        file_bytes=1 << 20,
        read=readable_paths(runtime.folders + runtime.paths, code_folder() / "moregpu"),
    )
    lane = Lane(told, "probe", how)
    try:
        lane.run(_task(facts))
        async with asyncio.timeout(PATIENCE_S):
            return await told.answer
    except TimeoutError:
        return "gave no answer"
    finally:
        lane.close()


def _task(facts: dict[str, Any]) -> CallTask:
    program = pickle.dumps((attempts, {}))  # by its name: the pool's own code is in every sandbox
    arguments = joined(encode(((facts,), {})))
    return CallTask(
        number=1, key=(), digest="probe", form="pickle", calls=(len(arguments),), shared={}, region=None, seed=0,
        program=Span(start=0, size_bytes=len(program)),
        arguments=Span(start=len(program), size_bytes=len(arguments)),
        raw=program + arguments, time_limit_s=PATIENCE_S, is_alone=False,
    )  # fmt: skip


class _Told:
    """The owner of the one lane that a trial needs."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def began(self, task: CallTask) -> None:
        """It runs."""

    def progressed(self, task: CallTask, calls: int) -> None:
        """It is one call."""

    def ended(self, lane: Lane, task: CallTask, records: bytes | memoryview) -> None:
        """It tried everything, or failed to."""
        del lane, task
        status, content = next(read_records(records))
        if status is Status.VALUE:
            got: list[str] = decode(content)
            self._say(f"got at {', '.join(got)}" if got else "")
        else:
            self._say(f"a function fails there: {unpacked(content).text}")

    def was_stopped(self, lane: Lane, task: CallTask) -> None:
        """Nobody stops it."""

    def printed(self, task: CallTask, lines: list[str]) -> None:
        """It prints nothing."""

    def lost(self, lane: Lane, task: CallTask | None, reason: str) -> None:
        """It did not start."""
        del lane, task
        self._say(reason)

    def is_idle(self, lane: Lane) -> None:
        """It is over."""

    def _say(self, trouble: str) -> None:
        if not self.answer.done():
            self.answer.set_result(trouble)


@contextlib.contextmanager
def _targets(folder: Path) -> Generator[tuple[dict[str, Any], socket.socket]]:
    """Real things of this process that code in a sandbox must not get at."""
    secret, path = folder / "secret", folder / "socket"
    secret.write_text("a file of the worker's")
    secret.chmod(0o644)
    abstract = f"moregpu-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        unix, hidden, tcp, udp = (
            stack.enter_context(socket.socket(family, kind))
            for family, kind in (
                (socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM),
            )
        )  # fmt: skip
        # Long paths do not fit an address: the folder is named by its descriptor while the socket is bound.
        fd = os.open(folder, os.O_PATH)
        stack.callback(os.close, fd)
        unix.bind(f"/proc/self/fd/{fd}/socket")
        path.chmod(0o777)
        hidden.bind("\0" + abstract)
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        for each in (unix, hidden, tcp):
            each.listen()
        udp.setblocking(False)
        shadow = Path("/etc/shadow")
        yield {
            "unix": str(path), "abstract": abstract, "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1],
            "secret": str(secret), "pid": os.getpid(), "sockets": [s for s in _sockets() if Path(s).exists()],
            "accounts": shadow.stat().st_size if shadow.exists() else -1,
        }, udp  # fmt: skip


def _sockets() -> list[str]:
    """Where this user's and this machine's services listen."""
    named = re.findall(r"path=([^,;]+)", os.environ.get("DBUS_SESSION_BUS_ADDRESS", ""))
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    mine = [f"{runtime}/bus", f"{runtime}/wayland-0"] if runtime else []
    return [*_SOCKETS, *named, *mine, *([agent] if agent else [])]
