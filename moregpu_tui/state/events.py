"""What the reducer takes in. Text is cleaned here, once: no control character of a stranger passes this module."""

from __future__ import annotations

from typing import Any

import msgspec

from moregpu.wire.api import (
    AuditView,
    Event,
    InviteView,
    JobView,
    LogLine,
    Me,
    PoolView,
    TaskView,
    TokenView,
    WorkerView,
)
from moregpu.wire.text import NAME_LIMIT, clean
from moregpu_tui.state.model import Job, Link, LogEntry, Signature, Worker


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """Everything anew, as the server has it, read when the stream stood at `seq`."""

    seq: int
    workers: tuple[Worker, ...]
    jobs: tuple[Job, ...]


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream."""

    event: Event


class Figures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a worker says of itself once a second; None leaves what was known."""

    duty: dict[str, float] | None = None
    user_load: float | None = None
    reason: str = ""
    round_trip_s: float | None = None
    leases: int | None = None


class Live(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="worker.live"):
    """A worker's figures of a moment. The event of this name as it comes: ten thousand workers say so each second."""

    id: str
    at: float = 0.0
    data: Figures = Figures()


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's row, read when the stream stood at `seq` or later."""

    seq: int
    worker: Worker


class WorkerGone(msgspec.Struct, frozen=True, kw_only=True):
    """The server knows no such worker."""

    id: str


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job's row, read when the stream stood at `seq` or later; `tasks` where they were asked for."""

    seq: int
    job: Job
    tasks: tuple[TaskView, ...] | None = None


class JobGone(msgspec.Struct, frozen=True, kw_only=True):
    """The server knows no such job, or it is not ours."""

    id: str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool says of itself; None leaves what was known."""

    pool: PoolView | None = None
    me: Me | None = None
    invites: tuple[InviteView, ...] | None = None
    tokens: tuple[TokenView, ...] | None = None
    audit: AuditView | None = None


class Signatures(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed a job's tasks, verified here."""

    job: str
    signatures: tuple[Signature, ...]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """A job's result in a few lines."""

    job: str
    lines: tuple[str, ...]


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a job's own log; `begin`: its first ones."""

    job: str
    entries: tuple[LogEntry, ...]
    begin: bool = False


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """The connection changed."""

    link: Link


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the console's own for the log."""

    entry: LogEntry


Input = (
    Replaced
    | Happened
    | Live
    | WorkerRow
    | WorkerGone
    | JobRow
    | JobGone
    | About
    | Signatures
    | Preview
    | JobLog
    | Linked
    | Said
)  # fmt: skip


# ---- from the wire, cleaned ------------------------------------------------------------------------------------------


def heard(data: bytes) -> Happened | Live:
    """An event from the bytes of the stream, made safe. Raises `msgspec.DecodeError` for what is none."""
    if data.startswith(_LIVE_BEGINS):
        try:
            return _clean_live(_decode_live(data))
        except msgspec.ValidationError:
            pass  # another version's: what it says that we understand is taken below
    return happened(_decode_event(data))


def happened(event: Event) -> Happened | Live:
    """An event, made safe."""
    if event.type == "worker.live":
        return _clean_live(Live(id=event.id, at=event.at, data=_figures(event.data)))
    return Happened(
        event=msgspec.structs.replace(
            event, type=clean(event.type, NAME_LIMIT), id=clean(event.id, NAME_LIMIT), data=clean_data(event.data)
        )
    )


def worker_of(view: WorkerView, seq: int = 0) -> Worker:
    """A worker's row. What it says of flags holds from `seq` on."""
    return Worker(
        id=_name(view.id),
        name=_name(view.name),
        owner=_name(view.owner),
        groups=tuple(_name(group) for group in view.groups),
        connected=view.state not in ("offline", "revoked"),
        approved=view.state != "pending",
        paused=view.limits.paused or view.state == "paused",
        draining=view.state == "draining",
        suspect=view.state == "quarantined",
        revoked=view.state == "revoked",
        owner_paused=view.owner_limits.paused,
        reason=_name(view.reason),
        devices=tuple(
            msgspec.structs.replace(
                device,
                id=_name(device.id),
                name=_name(device.name),
                driver=_name(device.driver),
                engine=_name(device.engine),
            )
            for device in view.devices
        ),
        kinds=tuple(_name(kind) for kind in view.kinds),
        consent={_name(kind): tuple(_name(who) for who in whose) for kind, whose in view.consent.items()},
        isolation=_name(view.isolation),
        system=_name(view.system),
        version=_name(view.version),
        ceiling=view.limits.ceiling,
        schedule=_name(view.limits.schedule),
        owner_ceiling=view.owner_limits.ceiling,
        owner_schedule=_name(view.owner_limits.schedule),
        duty=mean_duty(view.duty),
        user_load=view.user_load,
        speeds={_name(key): value for key, value in view.speeds.items()},
        score=view.score,
        leases=view.leases,
        tasks_done=view.tasks_done,
        tasks_failed=view.tasks_failed,
        busy_s=view.busy_s,
        round_trip_s=view.round_trip_s,
        connected_at=view.connected_at,
        seen_at=view.seen_at,
        enrolled_at=view.enrolled_at,
        tls_ends_here=view.tls_ends_here,
        flags_seq=seq,
        link_seq=seq,
    )


def job_of(view: JobView, seq: int = 0) -> Job:
    """A job's row."""
    return Job(
        id=_name(view.id),
        kind=_name(view.kind),
        name=clean(view.name),
        state=str(view.state),
        submitter=_name(view.submitter),
        submitter_name=_name(view.submitter_name),
        created_at=view.created_at,
        started_at=view.started_at,
        ended_at=view.ended_at,
        grains=view.grains,
        grains_done=view.grains_done,
        tasks_total=view.tasks_total,
        tasks_done=view.tasks_done,
        checked=view.checked,
        evidence={_name(kind): count for kind, count in view.evidence.items()},
        signed=view.signed,
        workers=tuple(_name(worker) for worker in view.workers),
        waiting_reason=clean(view.waiting_reason),
        error=clean(view.error.detail or view.error.title) if view.error else "",
        hint=clean(view.error.hint) if view.error else "",
        summary=clean(view.summary),
        queued_s=view.timing.queued_s,
        running_s=view.timing.running_s,
        checking_s=view.timing.checking_s,
        combining_s=view.timing.combining_s,
        dropped=view.result is not None and view.result.dropped,
        digest=_name(view.result.digest) if view.result else "",
        failed_calls=view.failed_calls,
        seq=seq,
    )


def tasks_of(views: list[TaskView] | None) -> tuple[TaskView, ...] | None:
    """A job's tasks, by number; None where they were not asked for."""
    if views is None:
        return None
    return tuple(_task(view) for view in sorted(views, key=lambda view: view.number))


def log_of(job: str, lines: list[LogLine], *, begin: bool = False) -> JobLog:
    """A job's log: what was printed with its worker before it, steps as they are told."""
    return JobLog(
        job=_name(job),
        begin=begin,
        entries=tuple(
            LogEntry(
                at=line.at,
                level=line.level,
                source="log" if line.printed else "task" if line.task is not None else "job",
                about=_name(job),
                text=clean(f"{line.worker}: {line.message}" if line.printed else line.message),
            )
            for line in lines
        ),
    )


def about(
    pool: PoolView | None = None,
    me: Me | None = None,
    invites: list[InviteView] | None = None,
    tokens: list[TokenView] | None = None,
    audit: AuditView | None = None,
) -> About:
    """What was fetched about the pool, made safe; invites and tokens lose their secret lines."""
    return About(
        pool=pool and msgspec.structs.replace(
            pool,
            name=_name(pool.name),
            fingerprint=clean(pool.fingerprint),
            version=_name(pool.version),
            addresses=[_name(address) for address in pool.addresses],
            description=clean(pool.description),
        ),
        me=me and msgspec.structs.replace(me, id=_name(me.id), label=_name(me.label)),
        invites=None if invites is None else tuple(
            msgspec.structs.replace(
                invite,
                id=_name(invite.id),
                owner=_name(invite.owner),
                groups=[_name(group) for group in invite.groups],
                kinds=[_name(kind) for kind in invite.kinds],
                line="",
            )
            for invite in invites
        ),
        tokens=None if tokens is None else tuple(
            msgspec.structs.replace(
                token,
                id=_name(token.id),
                label=_name(token.label),
                kinds=[_name(kind) for kind in token.kinds],
                groups=[_name(group) for group in token.groups],
                line="",
            )
            for token in tokens
        ),
        audit=audit and msgspec.structs.replace(
            audit, problems=[clean(found) for found in audit.problems], head=_name(audit.head)
        ),
    )  # fmt: skip


def mean_duty(duty: dict[str, float]) -> float:
    """One figure for all devices."""
    return sum(duty.values()) / len(duty) if duty else 0.0


def clean_data(value: Any, depth: int = 4) -> Any:
    """All text inside made safe; what is nested deeper than events are goes."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return (
            {clean(str(key), NAME_LIMIT): clean_data(each, depth - 1) for key, each in value.items()} if depth else {}
        )
    if isinstance(value, list | tuple):
        return [clean_data(each, depth - 1) for each in value] if depth else []
    return value


_LIVE_BEGINS = b'{"type":"worker.live"'
_decode_live = msgspec.json.Decoder(Live).decode
_decode_event = msgspec.json.Decoder(Event).decode


def _clean_live(live: Live) -> Live:
    """The names of devices are never shown; the id is only looked up."""
    reason = live.data.reason
    if not reason:
        return live
    return msgspec.structs.replace(live, data=msgspec.structs.replace(live.data, reason=_name(reason)))


def _figures(data: dict[str, Any]) -> Figures:
    """Each figure by itself: one that is none is passed over."""
    known: dict[str, Any] = {}
    for name, kind in _FIGURES.items():
        try:
            known[name] = msgspec.convert(data[name], kind)
        except (KeyError, msgspec.ValidationError):
            continue
    return Figures(**known)


_FIGURES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Figures)}


def _task(view: TaskView) -> TaskView:
    return msgspec.structs.replace(
        view,
        id=_name(view.id),
        worker=_name(view.worker or ""),
        attempts=[
            msgspec.structs.replace(
                attempt,
                worker=_name(attempt.worker),
                worker_name=_name(attempt.worker_name),
                error=clean(attempt.error),
            )
            for attempt in view.attempts
        ],
    )


def _name(text: str) -> str:
    return clean(text, NAME_LIMIT)
