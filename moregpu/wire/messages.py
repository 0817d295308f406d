"""The messages of a worker's session, each a frozen Struct, msgpack-encoded and tagged by one short word.

Structs are arrays on the wire, in field order: a newer version may append fields, which an older reader ignores; no
field is ever removed or reordered within a version. Sizes of lists are bounded by the record (65,519 bytes).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moregpu.jobs import Planned, Tensor

SUBPROTOCOL = "moregpu.1"
"""WebSocket subprotocol: names the version of everything in this module."""

MAX_RECORD_BYTES = 65_519
"""Largest plaintext of a record: Noise's 65,535 less the tag."""

MAX_INLINE_BYTES = 48 * 1024
"""Inline values of one message together; what does not fit travels as a blob."""

Key = Annotated[bytes, Meta(min_length=32, max_length=32)]
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
Token = Annotated[bytes, Meta(min_length=16, max_length=16)]
Text = Annotated[str, Meta(max_length=10_000)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Attempt = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]  # bounded: a database would refuse what Python holds
Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


Consent = Annotated[
    dict[Text, Annotated[list[Text], Meta(max_length=1000)]],
    Meta(
        max_length=64,
        description="Kind of job → whose: labels or ids of tokens, group:NAME, or *. A kind not named is open",
    ),
]
EVERYBODY = "*"
OF_GROUP = "group:"
"""Before the name of a group of submitters, which the pool's admin puts tokens in."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What messages are made of."""


# ---- parts -----------------------------------------------------------------------------------------------------------


class Device(_Part, frozen=True, kw_only=True, array_like=True):
    """A device that a worker offers. `memory_bytes` is a claim, capped by the coordinator."""

    id: Text  # "cpu", "gpu0", …
    kind: Literal["cpu", "gpu"]
    name: Text
    driver: Text = ""
    engine: Text = "numpy"  # "numpy", "wgpu", …
    memory_bytes: Count = 0
    cores: Count = 0


class LeaseRef(_Part, frozen=True, kw_only=True, array_like=True):
    """Names one lease exactly: nothing less is ever accepted."""

    task: Text
    attempt: Attempt
    token: Token


class Assignment(_Part, frozen=True, kw_only=True, array_like=True):
    """One leased task, with all that its statement will be rebuilt from."""

    job: Text
    task: Text
    attempt: Attempt
    token: Token
    kind: Text
    program: bytes  # kernel: the operation's name
    parameters: bytes  # canonical msgpack; its digest is part of the statement
    precision: Text
    inputs: dict[str, Tensor]
    outputs: dict[str, Planned]
    digest_key: Key
    seed: int
    time_limit_s: float | None
    lease_s: float
    device: Text = ""  # the worker's device that the scheduler chose; "" = any
    submitter: Text = ""  # for whom, so that the worker's owner can see it
    name: Text = ""  # the job's, for the same
    once: bool = False  # it may not run again where it may have begun: it is never handed back as untouched then


class TaskError(_Part, frozen=True, kw_only=True, array_like=True):
    """Why an attempt failed. `fault`: whose fault it was decides whether the attempt counts."""

    code: Text
    message: Text
    fault: Literal["task", "engine", "worker"] = "engine"


class ResultEntry(_Part, frozen=True, kw_only=True, array_like=True):
    """What one attempt came to: a statement and outputs, or an error (then the statement is empty)."""

    task: Text
    attempt: Attempt
    token: Token
    statement: bytes = b""
    outputs: dict[str, Tensor] = {}
    error: TaskError | None = None


class Verdict(_Part, frozen=True, kw_only=True, array_like=True):
    """The coordinator's last word on a lease: the worker may forget the result."""

    task: Text
    attempt: Attempt
    token: Token
    verdict: Literal["accepted", "rejected", "fenced"]
    detail: Text = ""
    ledger: tuple[str, int, bytes] | None = None  # (writer, row, row hash): the receipt


class Limits(_Part, frozen=True, kw_only=True, array_like=True):
    """What the owner allows, and what the admin asks within it."""

    ceiling: Share = 0.85
    schedule: Text = "always"
    paused: bool = False


# ---- worker → coordinator --------------------------------------------------------------------------------------------


class Hello(_Part, frozen=True, kw_only=True, array_like=True, tag="hello"):
    """First message of a worker; nothing happens before its signature over the handshake hash is verified."""

    wi_pub: Key
    signature: Signature  # over b"moregpu/hello/1" || h
    ws_number: Count
    ws_signature: Signature  # by wi, over canonical ["moregpu/ws/1", ws_pub, ws_number]
    boot: Token  # random a process start: same boot = the same process reconnects
    name: Text
    system: Text = ""
    version: Text = ""
    devices: Annotated[list[Device], Meta(max_length=64)] = []
    kinds: Annotated[list[Text], Meta(max_length=64)] = []
    isolation: Text = "none"
    leaf: bytes = b""  # SHA-256 of the TLS leaf that the worker saw
    limits: Limits = Limits()
    invite_id: Text | None = None
    invite_secret: Annotated[bytes, Meta(max_length=16)] | None = None
    consent: Consent = {}


class Heartbeat(_Part, frozen=True, kw_only=True, array_like=True, tag="heartbeat"):
    """Every 15 s, more often while duty changes. `held` lists *all* leases; those are renewed."""

    sent: float  # the worker's monotonic clock; echoed by Pulse
    duty: dict[str, Share] = {}
    user_load: Share = 0.0
    reason: Text = ""
    held: list[LeaseRef] = []
    hot: Annotated[list[Text], Meta(max_length=256)] = []  # digests in the worker's cache, most recent first
    round_trip_s: float = 0.0


class Taken(_Part, frozen=True, kw_only=True, array_like=True, tag="taken"):
    """The leases have arrived; the assign lease becomes a full one."""

    leases: list[LeaseRef]


class Started(_Part, frozen=True, kw_only=True, array_like=True, tag="started"):
    """The attempts now run."""

    leases: list[LeaseRef]


class Progress(_Part, frozen=True, kw_only=True, array_like=True, tag="progress"):
    """Share of an attempt that is done."""

    lease: LeaseRef
    share: Share


class Output(_Part, frozen=True, kw_only=True, array_like=True, tag="output"):
    """Log lines of an attempt. Raw text of a stranger: cleaned where it is decoded."""

    lease: LeaseRef
    lines: Annotated[list[Text], Meta(max_length=256)]


class Result(_Part, frozen=True, kw_only=True, array_like=True, tag="result"):
    """1 to 64 attempts that ended, under one signature over the list of their statements' digests."""

    entries: Annotated[list[ResultEntry], Meta(min_length=1, max_length=64)]
    signature: Signature


class Refused(_Part, frozen=True, kw_only=True, array_like=True, tag="refused"):
    """Leases handed back untouched: paused, no longer allowed, no room. Nobody's failure."""

    leases: list[LeaseRef]
    reason: Text = ""


class Bye(_Part, frozen=True, kw_only=True, array_like=True, tag="bye"):
    """The worker leaves on purpose; its leases go back at once."""

    reason: Text = ""


FromWorker = Hello | Heartbeat | Taken | Started | Progress | Output | Result | Refused | Bye


# ---- coordinator → worker --------------------------------------------------------------------------------------------


class Welcome(_Part, frozen=True, kw_only=True, array_like=True, tag="welcome"):
    """The worker is in (or waits for approval)."""

    worker: Text
    pool: Annotated[bytes, Meta(min_length=16, max_length=16)]
    pool_name: Text
    ci_pub: Key  # hashes to the pool id; pinned at enrolment
    blob_token: Text  # good for this session only
    heartbeat_s: float = 15.0
    spread_s: float = 2.0  # first retry after a loss: uniform(0, spread)
    pending: bool = False  # an admin must approve first
    leaves: list[bytes] = []  # SHA-256 of the coordinator's TLS leaves
    next_cs: bytes = b""
    next_cs_signature: bytes = b""
    now: float = 0.0  # coordinator's wall clock


class Assign(_Part, frozen=True, kw_only=True, array_like=True, tag="assign"):
    """Leases."""

    entries: list[Assignment]


class Pulse(_Part, frozen=True, kw_only=True, array_like=True, tag="pulse"):
    """Answer to a Heartbeat; `lost` names held leases that are no longer the worker's."""

    echo: float
    now: float
    lost: list[LeaseRef] = []
    idle_s: float = 0.0  # while it holds nothing, its next heartbeat may take so long; 0: `Welcome.heartbeat_s`


class Acknowledged(_Part, frozen=True, kw_only=True, array_like=True, tag="acknowledged"):
    """The last word on results, sent after their commit."""

    entries: list[Verdict]


class Cancel(_Part, frozen=True, kw_only=True, array_like=True, tag="cancel"):
    """Stop these attempts now; no result is wanted."""

    leases: list[LeaseRef]
    reason: Text = ""


class Policy(_Part, frozen=True, kw_only=True, array_like=True, tag="policy"):
    """What the admin asks of this worker; the owner's own limits still hold."""

    limits: Limits
    name: Text = ""
    approved: bool = True


class Reject(_Part, frozen=True, kw_only=True, array_like=True, tag="reject"):
    """Fatal: the session ends. `again` says whether to come back later."""

    code: Text
    detail: Text
    hint: Text = ""
    again: bool = False


FromCoordinator = Welcome | Assign | Pulse | Acknowledged | Cancel | Policy | Reject
