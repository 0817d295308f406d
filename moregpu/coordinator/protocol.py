"""What the coordinator's HTTP routes may ask of its engine room, and what the engine room needs of its shell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import msgspec

from moregpu.coordinator.store.protocol import JobRow, Store
from moregpu.jobs import Tensor
from moregpu.wire.api import Event, JobChange, JobView, PlanView, Role, Scope, WorkerChange, WorkerView
from moregpu.workloads import JobSpec

if TYPE_CHECKING:
    from moregpu.coordinator.attendance import Attendance
    from moregpu.coordinator.cases import Ruling
    from moregpu.coordinator.printed import JobLines
    from moregpu.coordinator.quotas import Quotas

T = TypeVar("T")


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a client token; workers authenticate inside their session and by its blob token."""

    id: str
    role: Role
    label: str = ""
    scope: Scope = "all"
    kinds: tuple[str, ...] = ()  # of jobs that it may submit; none named: all
    groups: tuple[str, ...] = ()  # of people: whom a worker's owner lets in by `group:NAME`


class Clock(Protocol):
    """The one clock. Leases and timeouts use `monotonic`, records use `wall`."""

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...

    def wall(self) -> float:
        """UTC epoch seconds."""
        ...


class Offload(Protocol):
    """Runs blocking or heavy work off the event loop (inline in the simulation)."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work` on a thread of the checking pool."""
        ...


class WorkerSocket(Protocol):
    """One WebSocket of a worker, as the hub needs it: whole binary messages."""

    async def receive(self) -> bytes | None:
        """The next message; None when the other end closed."""
        ...

    async def send(self, data: bytes) -> None:
        """Write one message; raises `ConnectionError` when the socket is gone."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it."""
        ...

    peer: str  # address for rate limits and logs; "" when it is not the real one


@runtime_checkable
class PromptSocket(Protocol):
    """What a socket has besides that takes messages without being waited for, as long as there is room."""

    @property
    def has_room(self) -> bool:
        """Whether `put` may be called: the other end reads, and the socket is open."""
        ...

    def put(self, data: bytes) -> None:
        """Take one message; it goes with `flush`."""
        ...

    def flush(self) -> None:
        """Write what was put, all together."""
        ...


WORDS = "moregpu.words"
"""Under which extension of its scope a WebSocket's route finds its `Words`."""


class Words(Protocol):
    """A WebSocket that tells and takes messages right away, without a task and a queue in between."""

    def listen(self, hear: Callable[[bytes | str], None]) -> None:
        """From now on `hear` is told each message, in the turn of the loop in which it came; it may not raise."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether `say` may be called: the other end reads, and the socket is open."""
        ...

    def say(self, message: bytes | str, *, at_once: bool) -> None:
        """Write a message: `at_once`, or with what else is said in this turn of the loop."""
        ...


class BlobRight(msgspec.Struct, frozen=True, kw_only=True):
    """What a blob token or client token may do with one digest."""

    read: bool = False
    write_bytes: int = 0  # largest sealed length it may upload
    left_bytes: int | None = None  # of its submitter's quota, or of what a worker's leases allow it


class OpenTensor(Protocol):
    """A stored tensor opened by its owner's key, read in windows."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    def read(self, start: int, stop: int) -> bytes:
        """Plain bytes [start, stop): blocking; run it off the loop."""
        ...


class EventFeed(Protocol):
    """The one stream of events."""

    def publish(self, event: Event) -> None:
        """Send a live event (no sequence) to all subscribers; slow ones lose live events, never durable ones."""
        ...

    async def may_see(self, who: Principal, event: Event) -> bool:
        """Whether an event is for this principal: the rule of every list."""
        ...

    def subscribe(self, who: Principal, after: int | None) -> AsyncIterator[Event]:
        """A `snapshot` event with the sequence first (or a resume after `after`, or `resync`), then deltas."""
        ...


class Desk(Protocol):
    """The engine room, as `api/` sees it. Ownership is checked here: what is not yours raises `NotFound`."""

    store: Store
    events: EventFeed
    pool_id: bytes
    pool_name: str
    attendance: Attendance
    """Who follows the jobs that end with their submitter."""
    printed: JobLines
    """What functions printed."""

    async def submit(self, who: Principal, spec: JobSpec, idempotency_key: str, wait_s: float) -> JobRow:
        """Validate, plan, keep. Returns once durable; with `wait_s`, when the job ended or the time is up."""
        ...

    async def plan(self, who: Principal, spec: JobSpec) -> PlanView:
        """The same without running."""
        ...

    async def wait(self, job: str, timeout_s: float) -> JobRow:
        """Wait for a job's end."""
        ...

    async def job(self, who: Principal, id_or_prefix: str) -> JobRow:
        """One job of theirs (an admin's are all); viewers see any, without inputs and outputs."""
        ...

    async def view(self, who: Principal, job: JobRow, *, detail: bool = False) -> JobView:
        """A job for showing; `detail` adds tasks and attempts; `result` is there for its owner only."""
        ...

    async def cancel(self, who: Principal, id_or_prefix: str) -> JobRow:
        """End it."""
        ...

    async def change_job(self, who: Principal, id_or_prefix: str, change: JobChange) -> JobRow:
        """Change its name, its place in the queue, how long its outputs are kept."""
        ...

    async def retry(self, who: Principal, id_or_prefix: str, idempotency_key: str = "") -> JobRow:
        """Submit the same spec again, as a new job; under one key, one new job of each job."""
        ...

    quotas: Quotas
    """Of each submitter; may be exchanged while the pool runs."""

    def bytes_left(self, who: Principal) -> int | None:
        """Sealed bytes that somebody may still upload; None when there is no limit."""
        ...

    def open_tensor(self, tensor: Tensor) -> OpenTensor:
        """Open a stored tensor (inline or blob) for rendering."""
        ...

    async def workers(self) -> list[WorkerView]:
        """All workers."""
        ...

    async def find_worker(self, id_or_prefix: str) -> WorkerView:
        """One, by id, unique prefix or unique name."""
        ...

    async def change_worker(self, who: Principal, id: str, change: WorkerChange) -> WorkerView:
        """Pause, resume, drain, approve, rename, limit."""
        ...

    async def revoke_worker(self, who: Principal, id: str) -> None:
        """End its session, refuse it from now on, run its tasks again."""
        ...

    async def blob_right(self, bearer: str, digest: str) -> tuple[str, BlobRight] | None:
        """(principal id, right) of a *worker's* blob token; None when it is none."""
        ...

    async def admit_upload(self, worker: str, total_bytes: int, left_bytes: int, but: str = "") -> None:
        """A worker may upload `left_bytes` beside what it has here: what no job names gives way, oldest first.

        The upload `but` does not: it goes on. Raises `TooManyRequests`.
        """
        ...

    async def serve_worker(self, socket: WorkerSocket) -> None:
        """Run one worker's connection to its end."""
        ...

    def observe_results(self, observe: Callable[[str, str, Ruling], None]) -> None:
        """Call `observe(worker, kind of its device, ruling)` for every result that is judged."""
        ...

    def rename(self, name: str) -> None:
        """Workers that come from now on are told this name."""
        ...

    async def start(self) -> None:
        """Recover what a crash left (leases, jobs to combine) and start the timers."""
        ...

    async def stop(self) -> None:
        """End sessions, drain, let go."""
        ...
