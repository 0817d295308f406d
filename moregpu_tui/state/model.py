"""What the console knows about a pool: frozen data, one snapshot at a time.

The API's own views serve where the console knows what they say and no more; workers and jobs are rows of their own,
flat and with the sequence that told them, since events change them field by field.
`gc=False`: rows hold no cycles, and a collector that walks ten thousand of them again and again is felt.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from moregpu.wire.api import AuditView, DeviceView, InviteView, Me, PoolView, TaskView, TokenView

Look = Literal["ready", "busy", "throttled", "draining", "offline", "paused", "suspect", "pending", "revoked"]
"""How a worker's state is shown, everywhere."""

LOOKS: tuple[Look, ...] = get_args(Look)

NOT_STEPPING_BACK = frozenset(
    {
        "", "being measured", "at the ceiling its owner set", "nobody is using it",
        "at the ceiling you set", "nobody is using this machine",  # what earlier versions said
    }
)  # fmt: skip
"""Reasons that a worker gives while it does not step back for its owner; what follows a semicolon is added to them."""


class Worker(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker. Flags and connection each carry the sequence that told them, so that the latest one wins."""

    id: str
    name: str = ""
    owner: str = ""
    groups: tuple[str, ...] = ()
    connected: bool = False
    approved: bool = True
    paused: bool = False
    draining: bool = False
    suspect: bool = False
    revoked: bool = False
    owner_paused: bool = False
    reason: str = ""
    devices: tuple[DeviceView, ...] = ()
    kinds: tuple[str, ...] = ()
    consent: dict[str, tuple[str, ...]] = {}  # kind → whose jobs its owner lets in; not named: everybody's
    isolation: str = "none"
    system: str = ""
    version: str = ""
    ceiling: float = 0.85
    schedule: str = "always"
    owner_ceiling: float = 0.85
    owner_schedule: str = "always"
    duty: float = 0.0  # mean over devices, 0–1
    user_load: float = 0.0
    speeds: dict[str, float] = {}
    score: int = 0
    leases: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    busy_s: float = 0.0
    round_trip_s: float | None = None
    connected_at: float | None = None
    seen_at: float | None = None
    enrolled_at: float = 0.0
    tls_ends_here: bool = True
    known: bool = True  # False: only events spoke of it so far; its row is being fetched
    flags_seq: int = 0
    link_seq: int = 0
    live_at: float = 0.0

    @property
    def look(self) -> Look:
        """The state as it is shown: what matters most to an admin wins."""
        if self.revoked:
            return "revoked"
        if not self.connected:
            return "offline"
        if not self.approved:
            return "pending"
        if self.suspect:
            return "suspect"
        if self.paused or self.owner_paused:
            return "paused"
        if self.draining:
            return "draining"
        if self.reason.partition("; ")[0] not in NOT_STEPPING_BACK:
            return "paused" if self.reason.startswith("paused") else "throttled"
        return "busy" if self.leases else "ready"

    @property
    def takes_work(self) -> bool:
        """Whether it could be given a task now."""
        return self.look in ("ready", "busy", "throttled")


class Roster(dict[str, Worker]):
    """Workers by id. A new one carries on how many there are, unless somebody came, went, or is refused now."""

    counted: tuple[int, int] | None = None
    """Those that are online, and all that were not revoked; None: not counted yet."""


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job. `seq` is the newest event that spoke of its state; grains only grow."""

    id: str
    kind: str = ""
    name: str = ""
    state: str = "queued"
    submitter: str = ""
    submitter_name: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    grains: int = 0
    grains_done: int = 0
    tasks_total: int = 0
    tasks_done: int = 0
    checked: bool = False
    evidence: dict[str, int] = {}
    signed: bool = False
    workers: tuple[str, ...] = ()
    waiting_reason: str = ""
    error: str = ""
    hint: str = ""
    summary: str = ""
    queued_s: float = 0.0
    running_s: float = 0.0
    checking_s: float = 0.0
    combining_s: float = 0.0
    dropped: bool = False
    digest: str = ""
    failed_calls: int = 0
    known: bool = True
    seq: int = 0

    @property
    def ended(self) -> bool:
        """Whether it is over, in whatever way."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def share(self) -> float:
        """Part done, 0–1."""
        return self.grains_done / self.grains if self.grains else float(self.state == "done")


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed a task, and whether the signature was verified here."""

    task: str
    attempt: int
    worker: str
    worker_name: str
    verified: bool
    ledger_row: int
    detail: str = ""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of the merged log."""

    at: float
    level: Literal["info", "warning", "error"]
    source: str  # worker, job, task, invite, token, pool, console, log
    about: str  # the id of what it is about
    text: str
    seq: int = 0  # 0: live, or our own


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """What is fetched for the one job that is looked at."""

    tasks: tuple[TaskView, ...] = ()
    signatures: tuple[Signature, ...] | None = None  # None: not asked for yet
    log: tuple[LogEntry, ...] | None = None  # the job's own, whole; None: not told, and the merged log has to do
    preview: tuple[str, ...] = ()


LinkState = Literal["connecting", "live", "offline", "refused"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The connection to the coordinator."""

    state: LinkState = "connecting"
    heard_at: float = 0.0  # our clock: when something last came
    retry_at: float = 0.0
    detail: str = ""
    hint: str = ""
    address: str = ""
    lag_s: float = 0.0  # the newest event's age when it came


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool says of itself once a second."""

    workers: int = 0
    leases: int = 0
    judging: int = 0
    at: float = 0.0


SERIES = ("queue", "throughput", "throttle", "latency")
"""Graphs of the overview: jobs waiting; grains a second; mean duty in percent; median round trip in ms."""


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment. Dictionaries are never changed in place."""

    loaded: bool = False
    seq: int = 0
    workers: dict[str, Worker] = {}
    jobs: dict[str, Job] = {}
    details: dict[str, Detail] = {}
    pool: PoolView | None = None
    me: Me | None = None
    invites: tuple[InviteView, ...] | None = None
    tokens: tuple[TokenView, ...] | None = None
    audit: AuditView | None = None
    log: tuple[LogEntry, ...] = ()
    log_total: int = 0  # lines ever, so that a view knows how many are new
    log_newest: int = 0  # the highest sequence of a line
    grains_total: int = 0  # grains that were finished while we looked
    link: Link = Link()
    stats: Stats = Stats()
    history: dict[str, tuple[float, ...]] = {}

    @property
    def role(self) -> str:
        """Our role; nobody until it is known."""
        return self.me.role if self.me else ""
