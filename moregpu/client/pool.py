"""The pool as Python sees it: kernels on NumPy arrays, jobs, workers."""

from __future__ import annotations

import contextlib
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from moregpu.client import bars
from moregpu.client.access import Access, find_access
from moregpu.client.admin import Administration
from moregpu.client.doors import CALL_TIMEOUT_S, PATIENCE_S, Doors, path_of
from moregpu.client.forks import Forkable, starts_over_in_a_child
from moregpu.client.functions.functions import Functions
from moregpu.client.job import RESTART_PATIENCE_S, JobHandle
from moregpu.client.kernels import Kernels
from moregpu.client.link import Link, NoLink
from moregpu.client.options import JobOptions, fields_of
from moregpu.client.programs import Fetch, Named, Program, Step
from moregpu.errors import InvalidJob, ResultGone, StillRunning
from moregpu.jobs import Tensor
from moregpu.wire.api import JobPage, JobView, PlanView, TensorRequest, TensorView
from moregpu.wire.link import EARLY_S, MAX_LINK_INLINE_BYTES
from moregpu.workloads import JobSpec
from moregpu.workloads.kernel.spec import KernelSpec, Operation

if TYPE_CHECKING:
    import numpy as np

    from moregpu.blobs.transfer import BlobHTTP

    Floats = np.ndarray[Any, Any]

T = TypeVar("T")

UPLOADS_AT_ONCE = 4
FIRST_WAIT_S = EARLY_S
"""Whoever waits for the result needs no word that the job was accepted, unless it takes longer than this."""


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    profile: str | None = None,
    pin: str | None = None,
    timeout_s: float = PATIENCE_S,
    progress: bool | None = None,
) -> Pool:
    """Reach a pool: `with moregpu.connect() as pool:`.

    Without arguments: `MOREGPU_URL` and `MOREGPU_ADMIN_TOKEN`, else the profile `local` that `moregpu serve` saved.
    `token` may be an `MGPUC1-` line, which says everything. `pin` is the SHA-256 of the certificate in hex; without it
    the system store verifies. `progress`: a bar for calls that take longer than a second; by default on a terminal
    only. Raises `NotConfigured`, `Unreachable` after `timeout_s`, `Unauthorized`, `WrongCertificate`.
    """
    pool = Pool(find_access(url, token, profile=profile, pin=pin), progress=progress)
    try:
        pool.me(patience_s=timeout_s)
    except BaseException:
        pool.close()
        raise
    return pool


class Pool(Kernels["Floats", float], Administration, Functions, Forkable):
    """A pool that somebody may submit to. Thread-safe, and safe to fork. `connect` makes one.

    It is a `concurrent.futures.Executor` for Python functions: `pool.submit(f, x)`, `pool.map(f, xs)`.
    `progress` says whether calls that take more than a second show a bar on stderr; by default where that is a
    terminal.
    """

    def __init__(self, access: Access, *, progress: bool | None = None):
        self.doors = Doors(access)
        self._shows = progress
        self.start_over()
        starts_over_in_a_child(self)

    def start_over(self) -> None:
        """Have nothing open: whoever asks next opens it."""
        super().start_over()
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._blobs: BlobHTTP | None = None
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end_calls(cancel=error is not None)
        self.close()

    def __repr__(self) -> str:
        return f"Pool({self.doors.address})"

    def close(self) -> None:
        """Let the connections go; jobs go on, but for calls whose results are wanted by nobody now."""
        self.is_closed = True
        self.end_calls(cancel=True)
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            self._threads = None
        if self._blobs is not None:
            self._blobs.close()
            self._blobs = None
        self.doors.close()

    # kernels on arrays: `Kernels` has them

    def kernel(
        self, operation: Operation, a: Any, b: Any = None, *, scalar: float = 1.0, **options: Unpack[JobOptions]
    ) -> JobHandle:
        """Submit a kernel on arrays and return at once with its handle."""
        arrays = {"a": a} if b is None else {"a": a, "b": b}
        return self.submit_job(self._kernel_spec(Step(operation, arrays, scalar, options)))

    def formula_job(self, text: str, /, *, options: JobOptions | None = None, **inputs: Any) -> JobHandle:
        """Submit a formula (see `formula`) and return at once with its handle."""
        step = Step("formula", inputs, 1.0, options or JobOptions(), text)
        return self.submit_job(self._kernel_spec(step))

    def custom_job(self, name: str, /, *, options: JobOptions | None = None, **inputs: Any) -> JobHandle:
        """Submit a registered kernel (see `custom`) and return at once with its handle."""
        return self.submit_job(self._kernel_spec(Step("custom", inputs, 1.0, options or JobOptions(), kernel=name)))

    def benchmark(
        self, operation: Operation, size: int, *, scalar: float = 1.0, **options: Unpack[JobOptions]
    ) -> JobHandle:
        """Submit a benchmark: the pool makes the data, computes, checks, and drops the output."""
        return self.submit_job(KernelSpec(operation=operation, size=size, scalar=scalar, **fields_of(options)))

    # jobs

    def submit_job(self, spec: JobSpec, *, wait_s: float = 0.0, idempotency_key: str = "") -> JobHandle:
        """Submit a job; with `wait_s` the answer may already be the ended job.

        Sent again, when the coordinator does not answer, under one idempotency key: never submitted twice.
        """
        from moregpu.client.following import submit

        key = idempotency_key or secrets.token_hex(16)
        patience_s = RESTART_PATIENCE_S if wait_s > 0 else PATIENCE_S
        if _inline_bytes(spec) > MAX_LINK_INLINE_BYTES:
            return self._submit_by_http(spec, wait_s, key, patience_s)
        try:
            following = submit(self.link(), spec, key, early=wait_s <= 0, patience_s=patience_s)
            view = following.first.result()
        except NoLink:
            return self._submit_by_http(spec, wait_s, key, patience_s)
        handle = JobHandle(self.doors, self.link, self.blobs, view, following)
        if wait_s > EARLY_S:
            with contextlib.suppress(StillRunning):
                handle.wait(wait_s - EARLY_S)
        return handle

    def _submit_by_http(self, spec: JobSpec, wait_s: float, key: str, patience_s: float) -> JobHandle:
        """Submit what is too large for a frame of the link, or where WebSockets do not get through."""
        view = self.doors.call(
            "POST",
            "/v1/jobs",
            JobView,
            body=spec,
            query={"wait": f"{wait_s:.3f}"} if wait_s > 0 else None,
            idempotency_key=key,
            timeout_s=wait_s + CALL_TIMEOUT_S,
            patience_s=patience_s,
        )
        return JobHandle(self.doors, self.link, self.blobs, view)

    def plan(self, spec: JobSpec) -> PlanView:
        """What a job would do, without doing it."""
        return self.doors.call("POST", "/v1/plan", PlanView, body=spec, changes=False)

    def job(self, id: str) -> JobHandle:
        """The handle of a job, by its id or a unique prefix of it."""
        return JobHandle(self.doors, self.link, self.blobs, self.doors.call("GET", path_of("jobs", id), JobView))

    def jobs(
        self, *, state: str | None = None, kind: str | None = None, submitter: str | None = None, limit: int = 50
    ) -> list[JobView]:
        """The newest jobs that this token may see."""
        found: list[JobView] = []
        after: str | None = None
        while len(found) < limit:
            page = self.doors.call(
                "GET",
                "/v1/jobs",
                JobPage,
                query={
                    "state": state,
                    "kind": kind,
                    "submitter": submitter,
                    "after": after,
                    "limit": min(limit - len(found), 50),
                },
            )
            found += page.items
            after = page.next
            if after is None or not page.items:
                break
        return found[:limit]

    # tensors that stay on the pool

    def put(self, name: str, array: Any) -> TensorView:
        """Keep an array on the pool under a name, as any kernel's input; the same name again replaces it.

        float16 stays float16, everything else becomes float32. Workers that have used it find it in their caches.
        """
        from moregpu.client.arrays import as_floats, send

        tensor = send({name: as_floats(array, name)}, self.blobs(), self._uploads())[name]
        request = TensorRequest(name=name, tensor=tensor)
        return self.doors.call("POST", "/v1/tensors", TensorView, body=request, changes=False)

    def upload_weight(self, name: str, weight: Any) -> TensorView:
        """`put` for a matrix of weights. Raises `InvalidJob` for what has not two axes."""
        from moregpu.client.arrays import plain

        weight = plain(weight, name)
        if weight.ndim != 2:
            raise InvalidJob(f"the weight {name} is no matrix", "pool.put keeps arrays of any shape")
        return self.put(name, weight)

    def tensor(self, name: str) -> TensorView:
        """One of your named tensors. Raises `NotFound`."""
        return self.doors.call("GET", path_of("tensors", name), TensorView)

    def tensors(self) -> list[TensorView]:
        """Your named tensors."""
        return self.doors.call("GET", "/v1/tensors", list[TensorView])

    def drop(self, name: str) -> None:
        """Let a named tensor go."""
        self.doors.call("DELETE", path_of("tensors", name), type(None))

    def retry(self, id: str) -> JobHandle:
        """Submit a job again that ended badly, as it was: once, however often the call must be sent."""
        key = secrets.token_hex(16)
        view = self.doors.call("POST", path_of("jobs", id, "retry"), JobView, idempotency_key=key)
        return JobHandle(self.doors, self.link, self.blobs, view)

    def blobs(self) -> BlobHTTP:
        """The way for bulk data; opened on first use."""
        from moregpu.blobs.transfer import BlobHTTP  # ciphers load here: who only looks needs none

        with self._lock:
            if self._blobs is None:
                access = self.doors.access
                # A transfer outlives a restart of the coordinator, as a wait does.
                self._blobs = BlobHTTP(
                    self.doors.address, access.pin, lambda: access.token, 60.0, patience_s=RESTART_PATIENCE_S
                )
            return self._blobs

    def link(self) -> Link:
        """The one connection for jobs; opened with its first request."""
        with self._lock:
            if self._link is None:
                self._link = Link(self.doors.access, lambda: self.doors.address, RESTART_PATIENCE_S)
            return self._link

    def _array(self, program: Program[Any]) -> Any:
        return self._run(program)

    def _number(self, program: Program[float]) -> float:
        return self._run(program)

    def _run(self, program: Program[T]) -> T:
        """Drive a program on this thread."""
        answer: Any = None
        while True:
            try:
                asked = program.send(answer)
            except StopIteration as end:
                return end.value
            answer = self.fetch(asked.tensor) if isinstance(asked, Fetch) else self._carry_out(asked)

    def _carry_out(self, step: Step) -> Tensor:
        """One job to its end; its output stays on the pool."""
        handle = self.begin(step)
        if self._shows is not False:
            bars.show(handle, always=self._shows is True)
        return output_of(handle.outputs())

    def begin(self, step: Step) -> JobHandle:
        """Send what a step needs and submit it."""
        return self.submit_job(self._kernel_spec(step), wait_s=FIRST_WAIT_S)

    def fetch(self, tensor: Tensor) -> Floats:
        """Bring a tensor of the pool here, as an array."""
        from moregpu.client.arrays import receive

        return receive(tensor, self.blobs())

    def _kernel_spec(self, step: Step) -> KernelSpec:
        from moregpu.client.arrays import common_floats, send  # NumPy loads here

        tensors = {name: self._tensor(value) for name, value in step.inputs.items() if isinstance(value, _REMOTE)}
        numbers = {n: float(v) for n, v in step.inputs.items() if step.kernel and isinstance(v, int | float)}
        arrays = {name: value for name, value in step.inputs.items() if name not in tensors and name not in numbers}
        floats = common_floats(arrays, tensors)
        dtypes = [*(tensor.dtype for tensor in tensors.values()), *(array.dtype.name for array in floats.values())]
        dtype = dtypes[0] if dtypes else "float32"
        inputs = {**tensors, **(send(floats, self.blobs(), self._uploads()) if floats else {})}
        return KernelSpec(
            operation=step.operation,
            dtype="float16" if dtype == "float16" else "float32",
            inputs=inputs,
            scalar=step.scalar,
            formula=step.formula,
            kernel=step.kernel,
            numbers=numbers,
            **fields_of(step.options),
        )

    def _tensor(self, value: Tensor | TensorView | Named) -> Tensor:
        match value:
            case Named():
                return self.tensor(value.name).tensor
            case TensorView():
                return value.tensor
            case _:
                return value

    def _threads_for_calls(self) -> ThreadPoolExecutor:
        return self._uploads()

    def _uploads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(UPLOADS_AT_ONCE, thread_name_prefix="moregpu-upload")
            return self._threads


_REMOTE = (Tensor, TensorView, Named)


def output_of(outputs: dict[str, Tensor] | None) -> Tensor:
    """The one output of a kernel."""
    if not outputs:
        raise ResultGone("the job has no output", "a benchmark drops its own")
    return next(iter(outputs.values()))


def _inline_bytes(spec: JobSpec) -> int:
    """How much data a spec carries itself."""
    return sum(len(tensor.data) for tensor in spec.inputs.values() if isinstance(tensor.data, bytes))
