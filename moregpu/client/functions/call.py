"""One call: its future, its encoded arguments, and what its record says."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from moregpu.client.functions.options import Chosen
from moregpu.client.functions.program import Program
from moregpu.client.functions.shared import opened_in
from moregpu.encoding import Buffers, Malformed, decode, joined
from moregpu.encoding.failures import RemoteError, rebuilt, unpacked
from moregpu.encoding.records import Status
from moregpu.jobs import Tensor
from moregpu.workloads.function.spec import SHARED


class CallFuture(Future[Any]):
    """A `concurrent.futures.Future` that is pending until its result is here, so it may be cancelled all that time."""

    def __init__(self) -> None:
        super().__init__()
        self.withdraw: Callable[[], None] | None = None
        """Called after it was cancelled."""
        self.job = ""
        """The job that the call went into, once that is known."""
        self.ran_here = False
        """Whether it was called on this machine, as `local="ok"` allows."""

    def cancel(self) -> bool:
        """Cancel the call; one that runs is killed, unless others in its job go on."""
        cancelled = super().cancel()
        if cancelled and self.withdraw is not None:
            withdraw, self.withdraw = self.withdraw, None
            withdraw()
        return cancelled


class Call:
    """A call on its way."""

    __slots__ = ("arguments", "future", "options", "program", "shared", "size", "tries", "types", "values")

    def __init__(
        self,
        program: Program,
        options: Chosen,
        arguments: Buffers,
        shared: dict[str, Tensor],
        types: dict[str, type],
        values: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = None,
    ):
        self.future = CallFuture()
        self.program = program
        self.options = options
        self.arguments = arguments
        self.size = sum(memoryview(buffer).nbytes for buffer in arguments)
        self.shared = shared
        self.types = types
        self.values = values
        """Kept only where the call may have to run here."""
        self.tries = 1

    @property
    def key(self) -> tuple[str, Chosen]:
        """Calls of one key may share a job."""
        return (self.program.digest, self.options)

    def is_cancelled(self) -> bool:
        """Whether it was cancelled before it was sent: that is its end then."""
        # `concurrent.futures.wait` takes a future for cancelled only once it is told so by whoever would have run it.
        return self.future.cancelled() and not self.future.set_running_or_notify_cancel()

    def settle(self, status: Status, content: memoryview, where: str) -> bool:
        """Take its record. False: it is to be called again."""
        try:
            if status is Status.VALUE:
                self._give(decode(content, types=self.types))
                return True
            error = rebuilt(unpacked(content), where=where, types=self.types)
        except Malformed as malformed:
            error = RemoteError(f"the worker's answer cannot be read: {malformed}", cause="unencodable")
        if isinstance(error, self.options.retry_on) and self.tries <= self.options.retries:
            self.tries += 1
            return False
        self.fail(error)
        return True

    def run_here(self, fetch: Callable[[Tensor], memoryview]) -> None:
        """Call it on this machine; the future says so in `ran_here`. `fetch` gets what was scattered."""
        if self.values is None or not self._begins_to_end():
            return
        function, args, kwargs = self.values
        self.future.ran_here = True
        try:
            if self.shared:
                # Into other containers than the caller's own, which go on holding what stands for the values.
                values = {
                    name.removeprefix(SHARED): decode(fetch(tensor), types=self.types)
                    for name, tensor in self.shared.items()
                }
                args, kwargs = opened_in(decode(joined(self.arguments), types=self.types), values)
            self.future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  (whatever it raises is its result)
            self.future.set_exception(error)

    def fail(self, error: BaseException) -> None:
        """End it by an error."""
        if self._begins_to_end():
            self.future.set_exception(error)

    def _give(self, value: Any) -> None:
        if self._begins_to_end():
            self.future.set_result(value)

    def _begins_to_end(self) -> bool:
        """Whether it still waits for its end. What it called when it was cancelled held on to its whole job."""
        if not self.future.set_running_or_notify_cancel():
            return False
        self.future.withdraw = None  # else results of 200 MB stayed until cycles were sought
        return True
