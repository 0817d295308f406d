"""What a pool offers for Python functions."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from moregpu.errors import MoreGPUError, Unavailable

if TYPE_CHECKING:
    from moregpu.blobs.transfer import BlobHTTP
    from moregpu.client.functions.batch import Batch
    from moregpu.client.functions.caller import Caller
    from moregpu.client.functions.executor import Calls
    from moregpu.client.functions.options import CallOptions, Chosen
    from moregpu.client.functions.shared import Shared
    from moregpu.client.job import JobHandle
    from moregpu.client.link import Link
    from moregpu.wire.api import DeviceView, WorkerView
    from moregpu.workloads.function.spec import FunctionSpec

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_S = 600.0
"""How long calls outlive a coordinator that does not answer."""


class Functions(Executor):
    """Python functions on the pool: an Executor, whose `with` block is one session.

    Calls run in a sandbox on workers whose owners let this submitter's functions in (`moregpu join --allow functions`).
    Nothing runs here unless it says so.
    """

    is_closed = False
    """Whether it takes no calls any more."""
    _caller: Caller | None = None
    _calls: Calls | None = None
    _calls_lock = threading.Lock()

    def start_over(self) -> None:
        """Forget what was asked: it is the parent's."""
        self._caller = self._calls = None
        self._calls_lock = threading.Lock()

    @abstractmethod
    def link(self) -> Link:
        """The connection that calls travel on."""
        ...

    @abstractmethod
    def blobs(self) -> BlobHTTP:
        """Where what is large travels."""
        ...

    @abstractmethod
    def submit_job(self, spec: Any, *, wait_s: float = 0.0, idempotency_key: str = "") -> JobHandle:
        """Submit a JobSpec, by HTTP."""
        ...

    @abstractmethod
    def _threads_for_calls(self) -> ThreadPoolExecutor: ...

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` on the pool. Raises `TypeError` for arguments that cannot travel."""
        return self._default().submit(fn, *args, **kwargs)

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """`map(fn, *iterables)` on the pool: everything is sent now, results come in order."""
        return self._default().map(fn, *iterables, timeout=timeout, chunksize=chunksize)

    def calls(self, **options: Unpack[CallOptions]) -> Calls:
        """The same Executor with options: `pool.calls(timeout=60, requires=["numpy"]).map(f, xs)`."""
        from moregpu.client.functions.executor import Calls
        from moregpu.client.functions.options import chosen

        return Calls(self._the_caller, self._default().packer, chosen(options))

    def run_script(self, text: str, payloads: Sequence[Any], *, name: str, options: Chosen) -> list[Future[Any]]:
        """Run a script once for each payload: see `moregpu.client.functions.scripts`."""
        from moregpu.client.functions.scripts import script_calls

        calls = script_calls(text, name, payloads, options)
        self._the_caller().call_all(calls)
        return [call.future for call in calls]

    def scatter(self, value: Any) -> Shared:
        """Send a large value once: what comes back stands for it in arguments. Workers fetch it once, too."""
        return self._the_caller().scatter(value)

    def distribute(
        self, function: Callable[..., T], parameters: Iterable[Any], **options: Unpack[CallOptions]
    ) -> list[T]:
        """Call `function` once for each set of parameters; all results, in order.

        A mapping is passed by name, a tuple in order, anything else as the one argument.
        """
        from moregpu.client.functions.distributing import arguments_of
        from moregpu.client.functions.on_workers import Spread

        plain = getattr(function, "__moregpu_function__", function)
        calls = self.calls(**options)
        return list(calls.map(Spread(plain), *zip(*map(arguments_of, parameters), strict=True)))

    def devices(self) -> list[DeviceView]:
        """Devices of the workers that are online."""
        return [device for worker in self.workers() if worker.state == "online" for device in worker.devices]

    def device_count(self) -> int:
        """How many devices there are."""
        return len(self.devices())

    def total_score(self) -> int:
        """The scores of all workers that are online, together."""
        return sum(worker.score for worker in self.workers() if worker.state == "online")

    def auto_device(self) -> str:
        """The name of the strongest worker's best device: for `accelerate(gpu=…)`, and to be shown."""
        online = [worker for worker in self.workers() if worker.state == "online" and worker.devices]
        if not online:
            raise Unavailable("no worker is online", "`moregpu invite` brings one in")
        best = max(online, key=lambda worker: worker.score)
        return max(best.devices, key=lambda device: (device.kind == "gpu", device.memory_bytes)).name

    @abstractmethod
    def workers(self) -> list[WorkerView]:
        """The pool's workers."""
        ...

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait`, return when all have their results. Then the connections go.

        With `cancel_futures`, what has no result is cancelled, running or not.
        """
        with self._calls_lock:
            self.is_closed = True
            caller = self._caller
        if caller is not None and cancel_futures:
            caller.cancel()
        if wait or caller is None:
            self._end_and_close()
        else:
            threading.Thread(target=self._end_and_close, name="moregpu-shutdown", daemon=True).start()

    def _end_and_close(self) -> None:
        self.end_calls(cancel=False)
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let the connections go."""
        ...

    def end_calls(self, *, cancel: bool) -> None:
        """End the session: wait for its calls, or cancel them."""
        caller = self._caller
        if caller is None:
            return
        if cancel:
            caller.cancel()
        try:
            caller.wait()
        except KeyboardInterrupt:
            caller.cancel()
            raise
        finally:
            caller.close()
            self._caller = self._calls = None

    # -- how calls are sent

    def _the_caller(self) -> Caller:
        from moregpu.client.functions.caller import Caller

        with self._calls_lock:
            if self.is_closed:
                raise RuntimeError("the pool was closed: connect again to submit calls")
            if self._caller is None:
                self._caller = Caller(self.link, self.blobs, self._threads_for_calls, self._by_http, PATIENCE_S)
            return self._caller

    def _default(self) -> Calls:
        if self._calls is None:
            from moregpu.client.functions.executor import Calls
            from moregpu.client.functions.options import Chosen
            from moregpu.client.functions.program import Packer

            self._calls = Calls(self._the_caller, Packer(), Chosen())
        return self._calls

    def _by_http(self, spec: FunctionSpec, batch: Batch) -> None:
        """Where WebSockets do not get through: one job, waited for on a thread."""
        try:
            batch.ended(self.submit_job(spec, wait_s=20.0).wait())
        except MoreGPUError as error:
            batch.fail(error)
