"""A real room of functions, its owner, and tasks for it: shared by the tests of this folder."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import blake3
import cloudpickle
import msgspec
import uvloop

from moregpu.encoding import decode, encode, joined
from moregpu.encoding.failures import Failure, unpacked
from moregpu.encoding.records import Status, read_records
from moregpu.wire.messages import TaskError
from moregpu.worker.frames import Done, Place, RunTask
from moregpu.worker.functions.room import FunctionRoom
from moregpu.worker.memory import Region, RegionPool, offsets
from moregpu.worker.sandbox.box import Runtime, own_runtime
from moregpu.worker.sandbox.level import Level, Who

DEADLINE_S = 60.0
"""What runs in a room is the least of a machine's worries (nice 19): on a busy one it takes its time."""
USER = 65_400
"""Nobody's number on any machine: what functions become, since tests run as root."""


class Owner:
    """Notes what becomes of tasks."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.answers: dict[int, list[Any] | TaskError | None] = {}
        self.seconds: dict[int, float] = {}
        self.lines: dict[int, list[str]] = {}
        self.shares: dict[int, list[float]] = {}
        self.changed = asyncio.Event()

    def begun(self, number: int) -> None:
        self.began.append(number)
        self.changed.set()

    def progressed(self, number: int, share: float) -> None:
        self.shares.setdefault(number, []).append(share)

    def done(self, number: int, done: Done, raw: bytes | memoryview) -> None:
        assert done.outputs["results"].size_bytes == len(raw)
        self.seconds[number] = done.seconds
        self._end(number, [_opened(status, content) for status, content in read_records(raw)])

    def failed(self, number: int, error: TaskError) -> None:
        self._end(number, error)

    def stopped(self, number: int) -> None:
        self._end(number, None)

    def printed(self, number: int, lines: list[str]) -> None:
        self.lines.setdefault(number, []).extend(lines)
        self.changed.set()

    def put_aside(self, device: str, reason: str) -> None:
        raise AssertionError("a room is never put aside")

    def taken_back(self, device: str) -> None:
        raise AssertionError("a room is never put aside")

    def _end(self, number: int, answer: list[Any] | TaskError | None) -> None:
        assert number not in self.answers, "a task ends once"
        self.answers[number] = answer
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                try:
                    async with asyncio.timeout(0.05):  # the system's view (a process, its state) makes no event
                        await self.changed.wait()
                except TimeoutError:
                    pass

    async def answer(self, number: int) -> Any:
        await self.until(lambda: number in self.answers)
        return self.answers[number]


def _opened(status: Status, content: memoryview) -> Any:
    return decode(bytes(content)) if status is Status.VALUE else unpacked(content)


async def _own(python: str, requires: tuple[str, ...]) -> Runtime:
    del python, requires
    return own_runtime()


def with_room(folder: Path, story: Callable[[FunctionRoom, Owner], Awaitable[None]], **settings: Any) -> None:
    """Run a story with a room that confines by bubblewrap, unless it says otherwise."""
    settings.setdefault("level", Level(isolation="bubblewrap", why=(), who=Who(user=USER, group=USER)))
    settings.setdefault("runtime", _own)

    async def run() -> None:
        owner = Owner()
        room = FunctionRoom(owner, folder=folder / "room", **settings)
        try:
            await story(room, owner)
        finally:
            await room.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the agent's own process does
        runner.run(run())


def calls_of(
    number: int,
    function: Callable[..., Any] | str,
    *arguments: tuple[Any, ...],
    session: str = "s",
    isolate: str = "job",
    limit_s: float | None = None,
    network: bool = False,
    memory_bytes: int | None = None,
    shared: dict[str, Any] | None = None,
    seed: int = 7,
    region: RegionPool | None = None,
) -> tuple[RunTask, bytes, Region | None]:
    """A task: one call for each tuple of arguments."""
    is_script = isinstance(function, str)
    module = sys.modules.get(getattr(function, "__module__", ""))
    if module is not None and module.__name__ != "__main__":
        cloudpickle.register_pickle_by_value(module)  # what a script's own functions are anyway
    program = function.encode() if isinstance(function, str) else cloudpickle.dumps((function, {}))
    encoded = [joined(encode(each[0] if is_script else (each, {}))) for each in arguments]
    values = {"program": program, "arguments": b"".join(encoded)}
    values |= {f"shared/{name}": joined(encode(value)) for name, value in (shared or {}).items()}
    starts, size = offsets(len(value) for value in values.values())
    memory = None if region is None else region.take(size)
    raw = bytearray(size)
    for start, value in zip(starts, values.values(), strict=True):
        (memory.view(0, size) if memory is not None else memoryview(raw))[start : start + len(value)] = value
    plan = {
        "form": "script" if is_script else "pickle", "first": 0, "calls": [len(each) for each in encoded],
        "session": session, "requires": [], "python": own_runtime().version, "isolate": isolate, "network": network,
        "memory_bytes": memory_bytes,
    }  # fmt: skip
    places = {
        name: Place(dtype="uint8", shape=(len(value),), start=start, size_bytes=len(value))
        for start, (name, value) in zip(starts, values.items(), strict=True)
    }
    task = RunTask(
        number=number, kind="function", program=blake3.blake3(program).hexdigest().encode(),
        parameters=msgspec.msgpack.encode(plan), precision="", seed=seed, time_limit_s=limit_s, inputs=places,
        outputs={}, memory=None if memory is None else memory.number,
    )  # fmt: skip
    return task, b"" if memory is not None else bytes(raw), memory


async def called(room: FunctionRoom, owner: Owner, number: int, function: Any, *arguments: Any, **more: Any) -> Any:
    """The answer of one call."""
    task, raw, region = calls_of(number, function, arguments, **more)
    room.give(task, raw, region)
    answer = await owner.answer(number)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def failure(answer: Any, cause: str) -> Failure:
    """The failure that an answer must be."""
    assert isinstance(answer, Failure), answer
    assert answer.cause == cause, answer
    return answer
