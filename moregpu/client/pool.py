"""The pool as Python sees it: kernels on NumPy arrays, jobs, workers."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from moregpu.blobs.transfer import BlobHTTP
from moregpu.client.access import Access, find_access
from moregpu.client.doors import CALL_TIMEOUT_S, PATIENCE_S, Doors, path_of
from moregpu.client.job import RESTART_PATIENCE_S, WAIT_S, JobHandle
from moregpu.client.options import JobOptions
from moregpu.wire.api import (
    AuditView,
    InviteRequest,
    InviteView,
    JobView,
    Me,
    PlanView,
    PoolView,
    TokenRequest,
    TokenView,
    WorkerView,
)
from moregpu.workloads import JobSpec
from moregpu.workloads.kernel.spec import KernelSpec, Operation

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, Any]

UPLOADS_AT_ONCE = 4


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    profile: str | None = None,
    pin: str | None = None,
    timeout_s: float = PATIENCE_S,
) -> Pool:
    """Reach a pool: `with moregpu.connect() as pool:`.

    Without arguments: `MOREGPU_URL` and `MOREGPU_ADMIN_TOKEN`, else the profile `local` that `moregpu serve` saved.
    `token` may be an `MGPUC1-` line, which says everything. `pin` is the SHA-256 of the certificate in hex; without it
    the system store verifies. Raises `NotConfigured`, `Unreachable` after `timeout_s`, `Unauthorized`,
    `WrongCertificate`.
    """
    pool = Pool(find_access(url, token, profile=profile, pin=pin))
    try:
        pool.me(patience_s=timeout_s)
    except BaseException:
        pool.close()
        raise
    return pool


class Pool:
    """A pool that somebody may submit to. Thread-safe. `connect` makes one."""

    def __init__(self, access: Access):
        self.doors = Doors(access)
        self._lock = threading.Lock()
        self._blobs: BlobHTTP | None = None
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Pool({self.doors.address})"

    def close(self) -> None:
        """Let the connections go; jobs go on."""
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            self._threads = None
        if self._blobs is not None:
            self._blobs.close()
            self._blobs = None
        self.doors.close()

    # kernels on arrays

    def matmul(self, A: Any, B: Any, **options: Unpack[JobOptions]) -> Floats:
        """A (M, K) @ B (K, N) → (M, N).

        Arrays of any size; float16 stays float16 (summed in float32), everything else is float32. Checked in full
        unless `check="none"`. Options are those of every job (`JobOptions`). Raises `InvalidJob` for shapes that do
        not fit, `JobFailed`, `JobCancelled`, `Unreachable`.
        """
        return self._run("matmul", {"a": A, "b": B}, 1.0, options)

    def vector_add(self, a: Any, b: Any, **options: Unpack[JobOptions]) -> Floats:
        """Sum of two arrays of one shape."""
        return self._run("vector_add", {"a": a, "b": b}, 1.0, options)

    def vector_mul(self, a: Any, b: Any, **options: Unpack[JobOptions]) -> Floats:
        """Product of two arrays of one shape, element by element."""
        return self._run("vector_mul", {"a": a, "b": b}, 1.0, options)

    def saxpy(self, scalar: float, a: Any, b: Any, **options: Unpack[JobOptions]) -> Floats:
        """Give scalar · a + b."""
        return self._run("saxpy", {"a": a, "b": b}, scalar, options)

    def scale(self, a: Any, scalar: float, **options: Unpack[JobOptions]) -> Floats:
        """Give scalar · a."""
        return self._run("scale", {"a": a}, scalar, options)

    def relu(self, a: Any, **options: Unpack[JobOptions]) -> Floats:
        """max(a, 0)."""
        return self._run("relu", {"a": a}, 1.0, options)

    def gelu(self, a: Any, **options: Unpack[JobOptions]) -> Floats:
        """GELU in its tanh form: a/2 · (1 + tanh(√(2/π) · (a + 0.044715 a³)))."""
        return self._run("gelu", {"a": a}, 1.0, options)

    def softmax(self, a: Any, **options: Unpack[JobOptions]) -> Floats:
        """Softmax over the last axis."""
        return self._run("softmax", {"a": a}, 1.0, options)

    def layernorm(self, a: Any, **options: Unpack[JobOptions]) -> Floats:
        """(a − mean) / √(variance + 1e-5) over the last axis, without scale and shift."""
        return self._run("layernorm", {"a": a}, 1.0, options)

    def kernel(
        self, operation: Operation, a: Any, b: Any = None, *, scalar: float = 1.0, **options: Unpack[JobOptions]
    ) -> JobHandle:
        """Submit a kernel on arrays and return at once with its handle."""
        arrays = {"a": a} if b is None else {"a": a, "b": b}
        return self.submit_job(self._kernel_spec(operation, arrays, scalar, options))

    def benchmark(
        self, operation: Operation, size: int, *, scalar: float = 1.0, **options: Unpack[JobOptions]
    ) -> JobHandle:
        """Submit a benchmark: the pool makes the data, computes, checks, and drops the output."""
        return self.submit_job(KernelSpec(operation=operation, size=size, scalar=scalar, **options))

    # jobs

    def submit_job(self, spec: JobSpec, *, wait_s: float = 0.0, idempotency_key: str = "") -> JobHandle:
        """Submit a job; with `wait_s` the answer may already be the ended job.

        Repeated, when the coordinator does not answer, under one idempotency key: never submitted twice.
        """
        view = self.doors.call(
            "POST",
            "/v1/jobs",
            JobView,
            body=spec,
            query={"wait": f"{wait_s:.3f}"} if wait_s > 0 else None,
            idempotency_key=idempotency_key or secrets.token_hex(16),
            timeout_s=wait_s + CALL_TIMEOUT_S,
            patience_s=RESTART_PATIENCE_S if wait_s > 0 else PATIENCE_S,
        )
        return JobHandle(self.doors, self.blobs, view)

    def plan(self, spec: JobSpec) -> PlanView:
        """What a job would do, without doing it."""
        return self.doors.call("POST", "/v1/plan", PlanView, body=spec, changes=False)

    def job(self, id: str) -> JobHandle:
        """The handle of a job, by its id or a unique prefix of it."""
        return JobHandle(self.doors, self.blobs, self.doors.call("GET", path_of("jobs", id), JobView))

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
                _JobPage,
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

    # the pool itself

    def me(self, *, patience_s: float = PATIENCE_S) -> Me:
        """Who this token is."""
        return self.doors.call("GET", "/v1/me", Me, patience_s=patience_s)

    def info(self) -> PoolView:
        """The pool."""
        return self.doors.call("GET", "/v1/pool", PoolView)

    def workers(self) -> list[WorkerView]:
        """The workers."""
        return self.doors.call("GET", "/v1/workers", list[WorkerView])

    def invite(self, request: InviteRequest | None = None) -> InviteView:
        """Make an invite (admin). Its line is shown this once."""
        return self.doors.call("POST", "/v1/invites", InviteView, body=request or InviteRequest())

    def create_token(self, request: TokenRequest | None = None) -> TokenView:
        """Make a client token (admin). Its line is shown this once."""
        return self.doors.call("POST", "/v1/tokens", TokenView, body=request or TokenRequest())

    def audit(self) -> AuditView:
        """Walk the ledger: chains, signatures, checkpoints."""
        return self.doors.call("GET", "/v1/audit", AuditView, timeout_s=600.0)

    def blobs(self) -> BlobHTTP:
        """The way for bulk data; opened on first use."""
        with self._lock:
            if self._blobs is None:
                access = self.doors.access
                self._blobs = BlobHTTP(self.doors.address, access.pin, lambda: access.token, 60.0)
            return self._blobs

    def _run(self, operation: Operation, arrays: dict[str, Any], scalar: float, options: JobOptions) -> Any:
        spec = self._kernel_spec(operation, arrays, scalar, options)
        return self.submit_job(spec, wait_s=WAIT_S).result()

    def _kernel_spec(
        self, operation: Operation, arrays: dict[str, Any], scalar: float, options: JobOptions
    ) -> KernelSpec:
        from moregpu.client.arrays import common_floats, send  # NumPy loads here

        floats = common_floats(arrays)
        dtype = "float16" if next(iter(floats.values())).dtype.itemsize == 2 else "float32"
        inputs = send(floats, self.blobs(), self._uploads())
        return KernelSpec(operation=operation, dtype=dtype, inputs=inputs, scalar=scalar, **options)

    def _uploads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(UPLOADS_AT_ONCE, thread_name_prefix="moregpu-upload")
            return self._threads


class _JobPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[JobView]
    next: str | None = None
