"""The messages of `WS /v1/link`: one connection on which a program submits jobs and is told what becomes of them.

The opening request carries `Authorization: Bearer …` (role submitter or more; otherwise it is answered 401 or 403 with
a problem document) and the WebSocket subprotocol `moregpu.link.1` (without it: 426). Binary frames hold msgpack, text
frames JSON; one frame is one message, an object whose `type` names it. The coordinator answers in the form of the frame
that asked. Frames to the coordinator have at most 65,535 bytes: inline values of a spec together 48 KiB, larger ones go
up as blobs first. Frames to the client have at most 1 MiB.

The client chooses `id` (any whole number from 0 on, free again once closed); every answer carries the id of what it
answers, and answers to different ids come in any order. What closes an id is said at each message. The connection may
drop at any time: connect again, send every `Submit` that was not closed again with the same `idempotency_key` (it
finds the same job), and every `Follow` again. A token that is revoked ends the connection with code 1008.

A dialogue:

    → {"type": "submit", "id": 1, "idempotency_key": "…", "spec": {"kind": "kernel", "operation": "relu", …}}
    ← {"type": "ended", "id": 1, "job": {"id": "j-…", "state": "done", "result": {…}, …}}

and for a job that takes longer than a second:

    → {"type": "submit", "id": 2, "progress": true, "parts": true, …}
    ← {"type": "accepted", "id": 2, "job": {"id": "j-…", "state": "queued", "waiting_reason": "no worker is here", …}}
    ← {"type": "progress", "id": 2, "state": "running", "grains": 64, "grains_done": 16}
    ← {"type": "part", "id": 2, "task": "t-…", "outputs": {…}, "places": {"out": [[0, 256], [0, 1024]]}}
    ← {"type": "ended", "id": 2, "job": {…}}
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from moregpu.jobs import JobState, Tensor
from moregpu.wire.api import Event, JobView, Problem

LINK_SUBPROTOCOL = "moregpu.link.1"
"""WebSocket subprotocol: names the version of everything in this module."""

MAX_TO_LINK_BYTES = 65_535
"""Largest frame to the coordinator."""

MAX_FROM_LINK_BYTES = 1 << 20
"""Largest frame to the client: give this to the WebSocket library as its limit."""

MAX_LINK_INLINE_BYTES = 48 * 1024
"""Inline values of one spec together."""

EARLY_S = 1.0
"""A submitter is told after so long that its job was accepted, and what it waits for, unless it ended before."""

MAX_OPEN = 20_000
"""Ids that may be open on one connection; a request beyond is answered `Refused` (too-many-requests)."""

Id = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Name = Annotated[str, Meta(max_length=200)]


class _ToLink(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="type"
):
    """From the client: an unknown field is an error."""

    id: Id


class _FromLink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """From the coordinator: a newer one may say more."""


# ---- client → coordinator --------------------------------------------------------------------------------------------


class Submit(
    _ToLink, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="submit", tag_field="type"
):
    """Submit a JobSpec. Answered by `Ended`, before which `Accepted` may come; or by `Refused`."""

    spec: msgspec.Raw
    """A JobSpec, encoded like the frame around it: `msgspec.Raw(msgspec.msgpack.encode(spec))`."""
    idempotency_key: Name = ""
    """The same key from the same token finds the same job. Without one, a dropped connection leaves it open whether
    the job exists: always send one."""
    early: bool = False
    """Tell at once that the job is durable, not only after a second: costs a tiny job a second commit."""
    progress: bool = False
    """Push `Progress` while it runs."""
    parts: bool = False
    """Push `Part` for each task's accepted outputs."""
    output: bool = False
    """Push `Printed`: what its tasks print."""


class Follow(
    _ToLink, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="follow", tag_field="type"
):
    """Follow a job that exists, by id or unique prefix: `Accepted` at once unless it ended, and `Ended`; or `Refused`.

    With `parts`, those of tasks that ended before come first.
    """

    job: Name
    progress: bool = False
    parts: bool = False
    output: bool = False


class Show(
    _ToLink, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="show", tag_field="type"
):
    """Look at a job: answered by `Shown` or `Refused`, which close the id."""

    job: Name
    detail: bool = False
    """With tasks and attempts."""


class Cancel(
    _ToLink, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="cancel", tag_field="type"
):
    """End a job of one's own: answered by `Shown` or `Refused`, which close the id.

    By its id, or, before that is known, by the key that it was submitted under.
    """

    job: Name = ""
    idempotency_key: Name = ""


class Subscribe(
    _ToLink,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag="subscribe",
    tag_field="type",
):
    """Take part in the stream of events: `Happened` until `Stop`; a `snapshot` first, or what came after `after`."""

    after: int | None = None


class Stop(
    _ToLink, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="stop", tag_field="type"
):
    """Close an id of `Submit`, `Follow` or `Subscribe`: nothing more comes under it. The job goes on. No answer."""


# ---- coordinator → client --------------------------------------------------------------------------------------------


class Accepted(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="accepted", tag_field="type"):
    """The job is durable, and `job.waiting_reason` says what it waits for. The id stays open."""

    id: int
    job: JobView


class Progress(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="progress", tag_field="type"):
    """How far a job is: at most five a second; some are left out, never the last. The id stays open."""

    id: int
    state: JobState
    grains: int
    grains_done: int


class Part(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="part", tag_field="type"):
    """One task's accepted outputs, and where in the job's outputs they belong. The id stays open.

    `places`: half-open ranges over that output, seen as one axis (one range) or as rows × last axis (two): an output of
    more axes is the same bytes with its leading axes flattened. The tensors carry keys, like a result. Parts come as
    they are accepted, each once, before `Ended`. Fetch their blobs at once: of a job that has ended only the result is
    kept, so a part that is gone (404) is to be read from there.
    """

    id: int
    task: str
    grains: tuple[int, int]
    outputs: dict[str, Tensor]
    places: dict[str, tuple[tuple[int, int], ...]]
    worker: str = ""
    attempt: int = 0


class Printed(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="printed", tag_field="type"):
    """Lines that a task of the job printed, in their order. The id stays open.

    Of a job that prints too much some are left out, and a line says so.
    """

    id: int
    lines: list[str]
    task: int = 0
    worker: str = ""  # its name


class Ended(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="ended", tag_field="type"):
    """The job ended: done (with `job.result`), failed (with `job.error`) or cancelled. Closes the id."""

    id: int
    job: JobView


class Shown(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="shown", tag_field="type"):
    """A job as it now is. Closes the id."""

    id: int
    job: JobView


class Happened(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="happened", tag_field="type"):
    """An event of a `Subscribe`. The id stays open."""

    id: int
    event: Event


class Refused(_FromLink, frozen=True, kw_only=True, omit_defaults=True, tag="refused", tag_field="type"):
    """Not done, and why. Closes the id; without an id, none could be read in the frame."""

    problem: Problem
    id: int | None = None


ToLink = Submit | Follow | Show | Cancel | Subscribe | Stop
FromLink = Accepted | Progress | Part | Printed | Ended | Shown | Happened | Refused
