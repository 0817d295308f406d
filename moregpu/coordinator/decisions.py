"""What a worker's session decides: one Struct for each thing that the hub may be told to do."""

from __future__ import annotations

import msgspec

from moregpu.coordinator.store.protocol import Lease
from moregpu.wire.messages import FromCoordinator, Hello, LeaseRef, Result, ResultEntry

Key = tuple[str, int, bytes]
"""A lease's exact name, hashable: (task, attempt, token)."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A task that the hub itself gave: a canary (`exact` outputs, bit for bit) or a speed measurement."""

    speed_key: str = ""
    exact: dict[str, bytes] = {}


class Held(msgspec.Struct, kw_only=True):
    """A lease that the worker has."""

    lease: Lease
    assigned_at: float
    expected_s: float
    started_at: float | None = None
    has_begun: bool = False  # the worker said so
    rested_s: float = 0.0  # while it could not go on, since the machine's owner needs it
    trial: Trial | None = None


class _Action(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, for the hub to carry out."""


class Admit(_Action, frozen=True, kw_only=True):
    """Verify this Hello; then enrol, re-attach or refuse."""

    hello: Hello


class Send(_Action, frozen=True, kw_only=True):
    """Send a message."""

    message: FromCoordinator


class Refill(_Action, frozen=True, kw_only=True):
    """The worker has room."""


class Take(_Action, frozen=True, kw_only=True):
    """The worker confirmed these leases."""

    refs: tuple[LeaseRef, ...]


class Renew(_Action, frozen=True, kw_only=True):
    """The worker says it holds these; answer with a Pulse. `sweep`: whatever else it seems to hold goes back."""

    refs: tuple[LeaseRef, ...]
    echo: float
    sweep: bool


class HandBack(_Action, frozen=True, kw_only=True):
    """The worker gives these back: `refs` untouched, `begun` although it had said that it had begun."""

    refs: tuple[LeaseRef, ...]
    begun: tuple[LeaseRef, ...]
    trials: tuple[LeaseRef, ...]
    reason: str


class Returned(_Action, frozen=True, kw_only=True):
    """One entry of a Result, with what this session knows about its lease (None: ask the store)."""

    entry: ResultEntry
    index: int
    held: Held | None
    seconds: float


class Judge(_Action, frozen=True, kw_only=True):
    """Check what came back, commit, tell the worker."""

    result: Result
    returned: tuple[Returned, ...]


class Tell(_Action, frozen=True, kw_only=True):
    """A live event."""

    type: str
    task: str
    share: float = 0.0
    lines: tuple[str, ...] = ()


class Leave(_Action, frozen=True, kw_only=True):
    """The worker said Bye: its leases go back at once."""

    reason: str


class End(_Action, frozen=True, kw_only=True):
    """Close the connection; `silence`: leases keep their full time."""

    code: int
    reason: str
    silence: bool = False


Action = Admit | Send | Refill | Take | Renew | HandBack | Judge | Tell | Leave | End


def key_of(ref: LeaseRef) -> Key:
    """A lease's name, hashable."""
    return (ref.task, ref.attempt, ref.token)
