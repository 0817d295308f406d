"""What a worker's session decides, for the agent to carry out."""

from __future__ import annotations

import msgspec

from moregpu.errors import MoreGPUError
from moregpu.wire.messages import Assignment, LeaseRef, Limits, Welcome


class _Action(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, for the agent to carry out."""


class Admitted(_Action, frozen=True, kw_only=True):
    """The pool took the worker in."""

    welcome: Welcome


class Run(_Action, frozen=True, kw_only=True):
    """Run this task."""

    assignment: Assignment


class Stop(_Action, frozen=True, kw_only=True):
    """Stop this attempt, wherever it stands; no result is wanted."""

    ref: LeaseRef


class Settled(_Action, frozen=True, kw_only=True):
    """The last word on a result: it may be forgotten."""

    ref: LeaseRef
    verdict: str


class Obey(_Action, frozen=True, kw_only=True):
    """The admin's limits; the owner's still hold."""

    limits: Limits
    approved: bool


class Close(_Action, frozen=True, kw_only=True):
    """Close this connection and make another."""

    reason: str


class Refusal(_Action, frozen=True, kw_only=True):
    """The coordinator ends it. `again`: come back later."""

    error: MoreGPUError
    again: bool


Action = Admitted | Run | Stop | Settled | Obey | Close | Refusal
