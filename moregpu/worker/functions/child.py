"""The child: calls what the agent sends, in a sandbox, and appends each call's record to its journal.

It is forked from the zygote, so it starts in milliseconds; whatever it calls may end it at any moment.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import resource
import socket
import sys
from types import CoroutineType
from typing import Any, NoReturn

from moregpu.encoding import Unencodable, encode
from moregpu.encoding.failures import Failure, describe, packed
from moregpu.encoding.records import Status, record
from moregpu.worker.functions.frames import Call, Frames, Load, Returned, Span, frame, to_child
from moregpu.worker.functions.journal import Journal
from moregpu.worker.functions.programs import Program, load
from moregpu.worker.memory import AttachedRegions

_READ_BYTES = 1 << 18


def serve(stream: socket.socket, passing: socket.socket, journal_fd: int) -> NoReturn:
    """Call until the agent is gone."""
    sys.argv[:] = [""]  # what a parser of arguments takes for the program's own: there are none
    try:
        Child(stream, passing, Journal(journal_fd)).serve()
    finally:
        os._exit(0)


class Child:
    """One warm process: programs that were loaded, by digest."""

    def __init__(self, stream: socket.socket, passing: socket.socket, journal: Journal):
        self._stream = stream
        self._regions = AttachedRegions(passing)
        self._journal = journal
        self._programs: dict[str, Program | Failure] = {}
        self._shared: dict[str, Any] = {}
        # What a function closes, or its atexit handlers print, happens elsewhere than here.
        self._pid = os.getpid()

    def serve(self) -> None:
        """Take frames until the stream ends."""
        frames = Frames()
        while data := self._stream.recv(_READ_BYTES):
            for head, raw in frames.feed(data):
                match to_child(head):
                    case Load() as order:
                        values = self._memory(order.region, raw)
                        self._programs[order.digest] = _loaded(order, _part(values, order.where))
                    case Call() as order:
                        self._call(order, self._memory(order.region, raw))
                        self._stream.sendall(frame(Returned(number=order.number)))

    def _memory(self, region: int | None, raw: bytes) -> memoryview:
        return memoryview(raw) if region is None else memoryview(self._regions.map(region))

    def _call(self, order: Call, memory: memoryview) -> None:
        self._journal.begin()
        program = self._programs[order.digest]
        for digest, where in order.shared.items():
            if digest not in self._shared:
                lies_in = memory if where.resident is None else memoryview(self._regions.map(where.resident))
                self._shared[digest] = _part(lies_in, where)
        start = order.where.start
        for index, size in enumerate(order.calls):
            reseed(order.seed + index)
            made = self._record(program, memory[start : start + size])
            start += size
            _flush()
            try:
                self._journal.add(made)
            except (OSError, MemoryError, ValueError) as error:
                self._journal.add(record(Status.FAILURE, packed(_too_large(made, error))))
        if order.region is not None:
            self._regions.forget([order.region])

    def _record(self, program: Program | Failure, arguments: memoryview) -> list[bytes | memoryview]:
        if isinstance(program, Failure):
            return record(Status.FAILURE, packed(program))
        try:
            value = program.call(arguments, self._shared)
            _refuse_unfinished(value)
            made = record(Status.VALUE, encode(value, name="result", types=program.types))
        except BaseException as error:  # noqa: BLE001  (user code may raise anything)
            made = record(Status.FAILURE, packed(_failure(error)))
        if os.getpid() != self._pid:
            os._exit(0)  # the function forked and came back twice: only the first process answers
        return made


class Unfinished(TypeError):
    """A function gave something that has yet to run."""


def _refuse_unfinished(value: Any) -> None:
    if isinstance(value, CoroutineType):
        value.close()
        raise Unfinished("the function is async: give a function that runs it, such as asyncio.run(f())")
    if hasattr(value, "__next__") and hasattr(value, "send"):
        raise Unfinished("the function is a generator: give a function that returns list(f())")


def _failure(error: BaseException) -> Failure:
    """The failure to report; building it must not fail in turn."""
    try:
        match error:
            case SystemExit():
                status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
                said = f": {error.code}" if isinstance(error.code, str) else ""
                return Failure(cause="exited", text=f"the function ended its process with exit status {status}{said}")
            case MemoryError():
                gc.collect()
                return describe(error, skip=_FRAMES)
            case Unencodable():
                error.hint = error.hint and _RESULTS
                return Failure(cause="unencodable", type="builtins:TypeError", text=str(error))
            case Unfinished():
                return Failure(cause="refused", type="builtins:TypeError", text=str(error))
            case _:
                return describe(error, skip=_FRAMES)
    except BaseException as second:  # noqa: BLE001  (an exception of the user's own may raise while it is described)
        text = f"{type(error).__name__}, which could not be described ({type(second).__name__})"
        return Failure(cause="raised", type=f"{type(error).__module__}:{type(error).__qualname__}", text=text)


def _too_large(made: list[bytes | memoryview], error: Exception) -> Failure:
    """Why a record found no room: the limit of a task's results (of files, here), or of this sandbox's memory."""
    size_mib = sum(memoryview(part).nbytes for part in made) / (1 << 20)
    most_mib = resource.getrlimit(resource.RLIMIT_FSIZE)[0] >> 20
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM or most_mib < 0:
        why = "it needs more memory than the sandbox has left"
    else:
        why = (
            f"all results of one task may take {most_mib:,} MiB: return it in parts, or give each call a task of its "
            'own (isolate="task")'
        )
    return Failure(cause="memory", text=f"the result takes {size_mib:,.0f} MiB; {why}")


_RESULTS = "no result goes by pickle: return what it holds, as numbers, text, arrays, containers or dataclasses"
_FRAMES = 2
"""Of the traceback, that are ours."""


def _loaded(order: Load, values: memoryview) -> Program | Failure:
    try:
        return load(order.form, values)
    except BaseException as error:  # noqa: BLE001  (unpickling runs the user's modules)
        failure = describe(error, cause="refused")
        text = f"the function could not be loaded on the worker: {type(error).__name__}: {failure.text}"
        if isinstance(error, ImportError):
            text += '; name what it needs, as in requires=["numpy"]'
        return Failure(cause="refused", type=failure.type, text=text, traceback=failure.traceback)


def _part(memory: memoryview, where: Span) -> memoryview:
    return memory[where.start : where.start + where.size_bytes]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # the function closed or replaced it


def reseed(seed: int) -> None:
    """Give each call random numbers of its own: two forks would draw the same, two attempts should."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
