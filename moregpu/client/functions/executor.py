"""`Pool` as a `concurrent.futures.Executor`, and the same with options."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from moregpu.client.functions.call import Call
from moregpu.client.functions.caller import Caller
from moregpu.client.functions.options import Chosen
from moregpu.client.functions.pickled import as_pickled
from moregpu.client.functions.program import Packer, Program, name_of
from moregpu.client.functions.progress import show_progress
from moregpu.client.functions.shared import SHARED_TYPE, misplaced
from moregpu.encoding import Unencodable, encode

P = ParamSpec("P")
T = TypeVar("T")


class Calls(Executor):
    """Calls of functions with one set of options: a real Executor. `pool.calls(timeout=60)` makes one.

    Its futures are `concurrent.futures.Future`: `as_completed`, `wait`, `asyncio.wrap_future` work. What a call raises
    comes back as itself, with the traceback from the worker as its cause.
    """

    def __init__(self, caller: Callable[[], Caller], packer: Packer, options: Chosen):
        self._caller = caller
        self.packer = packer
        self.options = options

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` on the pool. Raises `TypeError` for arguments that cannot travel."""
        call = self._call(fn, args, kwargs, None)
        self._caller().call(call)
        return call.future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """`map(fn, *iterables)` on the pool: everything is sent now, results come in order.

        `chunksize` is ignored: the pool cuts by measured time.
        """
        until = None if timeout is None else time.monotonic() + timeout
        futures = self.submit_all(fn, zip(*iterables, strict=False))
        show_progress(futures, name_of(fn), self.options.progress)
        return _in_order(futures, until)

    def submit_all(self, fn: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> list[Future[T]]:
        """Call `fn` once with each tuple of arguments; all are sent together."""
        calls: list[Call] = []
        plain = _plain(fn)
        program: Program | None = None
        for args in arguments:
            call = self._call(fn, args, {}, program)
            if not call.types and call.program.function is plain:  # not one that opens a pickle first
                program = call.program
            calls.append(call)
        by_program: dict[str, list[Call]] = {}
        for call in calls:
            by_program.setdefault(call.program.digest, []).append(call)
        for together in by_program.values():
            self._caller().call_all(together)
        return [call.future for call in calls]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the calls of the pool; the pool itself stays open.

        With `cancel_futures`, what was called through this Executor and has no result is cancelled, running or not.
        """
        try:
            caller = self._caller()
        except RuntimeError:
            return  # the pool was closed: there is nothing to wait for
        if cancel_futures:
            caller.cancel(self.options)
        if wait:
            caller.wait()

    def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], program: Program | None
    ) -> Call:
        types: dict[str, type] = {}
        function = _plain(fn)
        values = (function, args, kwargs) if self.options.local == "ok" else None
        shared, shared_types = self._caller().scattered.named_in((args, kwargs))
        try:
            arguments = _encoded(args, kwargs, types)
            if types.pop(SHARED_TYPE, None) is not None and not shared:
                raise misplaced()
        except Unencodable:
            if not self.options.allow_pickle:
                raise
            function, arguments = as_pickled(function, args, kwargs, self.options.python)
            program, types = None, {}
        types |= shared_types
        if program is None or types:
            program = self.packer.pack(function, types, self.options.python)
        return Call(program, self.options, arguments, shared, types, values)


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, of an accelerated one."""
    return getattr(fn, "__moregpu_function__", fn)


def _encoded(args: tuple[Any, ...], kwargs: dict[str, Any], types: dict[str, type]) -> Any:
    try:
        return encode((args, kwargs), types=types)
    except Unencodable as error:
        raise _named(error, args, kwargs) from None


def _named(error: Unencodable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Unencodable:
    """The same error, with its place counted from the argument."""
    named = {f"argument {place}": value for place, value in enumerate(args)}
    for name, value in (named | {f"argument {key!r}": value for key, value in kwargs.items()}).items():
        try:
            encode(value, name=name)
        except Unencodable as better:
            return better
    return error


def _in_order(futures: list[Future[T]], until: float | None) -> Iterator[T]:
    futures.reverse()
    try:
        while futures:
            left = None if until is None else until - time.monotonic()
            yield awaited(futures.pop(), left)
    finally:
        for future in futures:
            future.cancel()


def awaited(future: Future[T], left: float | None = None) -> T:
    """Its result; whoever stops waiting for it wants it no more."""
    try:
        return future.result(left)
    finally:
        future.cancel()
