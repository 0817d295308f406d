"""The batch reducer: (state, inputs) → (state, what changed). Pure.

Events may come twice, in any order, with holes. What an event says is absolute (flags, a state, grains done so far) and
carries the server's sequence, so for each thing the newest word wins, whenever it arrives; a row that was read later
replaces what older events said. So every order ends at the server's own state, and holes are healed by the next row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import msgspec

from moregpu.wire.api import Event
from moregpu_tui.state import words
from moregpu_tui.state.events import (
    About,
    Happened,
    Input,
    JobGone,
    JobLog,
    JobRow,
    Linked,
    Live,
    Preview,
    Replaced,
    Said,
    Signatures,
    WorkerGone,
    WorkerRow,
    mean_duty,
)
from moregpu_tui.state.model import Detail, Job, LogEntry, PoolState, Roster, Stats, Worker

MAX_LOG = 5_000
MIN_OTHERS = 1_000
"""So many lines about the pool itself stay, however much its jobs print."""

MAX_JOB_LOG = 2_000
MAX_ENDED_JOBS = 2_000
_replace = msgspec.structs.replace

_FLAGS = ("approved", "revoked", "paused", "draining")
_ENDS = {"job.done": "done", "job.failed": "failed", "job.cancelled": "cancelled"}
_RANK = {"queued": 0, "running": 1, "done": 2, "failed": 2, "cancelled": 2}


class Changed(msgspec.Struct, kw_only=True):
    """What a batch touched, so that only that is drawn again."""

    everything: bool = False
    workers: set[str] = msgspec.field(default_factory=set[str])
    members: bool = False  # workers came or went
    jobs: set[str] = msgspec.field(default_factory=set[str])
    job_list: bool = False  # jobs came, went or moved between states
    details: set[str] = msgspec.field(default_factory=set[str])
    urgent: set[str] = msgspec.field(default_factory=set[str])  # workers that went offline or were throttled
    log: bool = False
    about: bool = False
    link: bool = False
    stats: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.everything
            or self.workers
            or self.members
            or self.jobs
            or self.job_list
            or self.details
            or self.log
            or self.about
            or self.link
            or self.stats
        )


def reduce(state: PoolState, inputs: Iterable[Input]) -> tuple[PoolState, Changed]:
    """Take in a batch. Each dictionary is copied once a batch at most."""
    batch = _Batch(state)
    for each in inputs:
        if type(each) is Live:
            batch.live(each)
        else:
            batch.take(each)
    return batch.finished(), batch.changed


class _Batch:
    """A state under construction."""

    def __init__(self, state: PoolState) -> None:
        self.state = state
        self.changed = Changed()
        self._workers: Roster | None = None
        self._jobs: dict[str, Job] | None = None
        self._details: dict[str, Detail] | None = None
        self._log: list[LogEntry] = []
        self._fields: dict[str, Any] = {}
        self._seq = state.seq
        self._grains = state.grains_total

    def live(self, one: Live) -> None:
        """By far the most of what comes."""
        workers = self.workers()
        worker = workers.get(one.id)
        if worker is None or one.at < worker.live_at:
            return
        data = one.data
        workers[one.id] = fresh = _replace(
            worker,
            duty=worker.duty if data.duty is None else mean_duty(data.duty),
            user_load=worker.user_load if data.user_load is None else data.user_load,
            reason=data.reason,
            round_trip_s=data.round_trip_s or worker.round_trip_s,
            leases=worker.leases if data.leases is None else data.leases,
            seen_at=one.at,
            live_at=one.at,
        )
        if worker.reason == data.reason:
            self.changed.workers.add(one.id)
        else:
            self._mark_worker(worker, fresh)

    def take(self, one: Input) -> None:
        match one:
            case Live():
                self.live(one)
            case Happened():
                self._event(one.event)
            case WorkerRow():
                self._worker_row(one.worker, one.seq)
            case JobRow():
                self._job_row(one)
            case Replaced():
                self._replaced(one)
            case WorkerGone():
                if self.workers().pop(one.id, None) is not None:
                    self.workers().counted = None
                    self.changed.members = True
            case JobGone():
                if self.jobs().pop(one.id, None) is not None:
                    self.changed.job_list = True
            case About():
                self._about(one)
            case Signatures():
                self._detail(one.job, signatures=one.signatures)
            case Preview():
                self._detail(one.job, preview=one.lines)
            case JobLog():
                self._job_log(one)
            case Linked():
                self._fields["link"] = one.link
                self.changed.link = True
            case Said():
                self._say(one.entry)

    def finished(self) -> PoolState:
        fields = self._fields
        if self._workers is not None:
            fields["workers"] = self._workers
        if self._jobs is not None:
            fields["jobs"] = _bounded(self._jobs)
        if self._details is not None:
            fields["details"] = self._details
        if self._log:
            newest = fields.get("log_newest", self.state.log_newest)
            fields["log"] = _merged(fields.get("log", self.state.log), newest, self._log)
            fields["log_total"] = self.state.log_total + len(self._log)
            fields["log_newest"] = max(newest, *(entry.seq for entry in self._log))
        if self._seq != self.state.seq:
            fields["seq"] = self._seq
        if self._grains != self.state.grains_total:
            fields["grains_total"] = self._grains
        return _replace(self.state, **fields) if fields else self.state

    def workers(self) -> Roster:
        if self._workers is None:
            known = self.state.workers
            self._workers = Roster(known)
            self._workers.counted = known.counted if isinstance(known, Roster) else None
        return self._workers

    def jobs(self) -> dict[str, Job]:
        if self._jobs is None:
            self._jobs = dict(self.state.jobs)
        return self._jobs

    # ---- rows

    def _replaced(self, all: Replaced) -> None:
        """What the server has is what there is; only newer words of events stay."""
        old_workers, old_jobs = self.workers(), self.jobs()
        workers = Roster((worker.id, worker) for worker in all.workers)
        jobs = {job.id: job for job in all.jobs}
        for id, worker in old_workers.items():
            if id in workers:
                workers[id] = _newer_worker(worker, workers[id])
            elif max(worker.flags_seq, worker.link_seq) > all.seq:
                workers[id] = worker
        for id, job in old_jobs.items():
            if id in jobs:
                jobs[id] = _newer_job(job, jobs[id])
            elif job.seq > all.seq:
                jobs[id] = job
        self._workers, self._jobs = workers, jobs
        self._fields["loaded"] = True
        self._seq = max(self._seq, all.seq)
        self.changed.everything = True

    def _worker_row(self, row: Worker, seq: int) -> None:
        workers = self.workers()
        known = workers.get(row.id)
        row = _replace(row, flags_seq=seq, link_seq=seq)
        if known is None:
            self.changed.members = True
        else:
            row = _newer_worker(known, row)
        if row != known:
            self._put_worker(known, row)

    def _job_row(self, one: JobRow) -> None:
        jobs = self.jobs()
        known = jobs.get(one.job.id)
        row = _replace(one.job, seq=one.seq)
        if known is not None:
            row = _newer_job(known, row)
        if row != known:
            self._put_job(known, row)
        if one.tasks is not None:
            self._detail(one.job.id, tasks=one.tasks)

    def _about(self, one: About) -> None:
        for name in ("pool", "me", "invites", "tokens", "audit"):
            value = getattr(one, name)
            if value is not None:
                self._fields[name] = value
        self.changed.about = True

    def _detail(self, job: str, **fields: Any) -> None:
        if self._details is None:
            self._details = dict(self.state.details)
        details = self._details
        details[job] = _replace(details.get(job, Detail()), **fields)
        while len(details) > 8:
            details.pop(next(id for id in details if id != job))
        self.changed.details.add(job)

    def _job_log(self, one: JobLog) -> None:
        known = (self._details if self._details is not None else self.state.details).get(one.job)
        before = () if one.begin or known is None else known.log or ()
        self._detail(one.job, log=(before + one.entries)[-MAX_JOB_LOG:])
        self.changed.log = True

    # ---- events

    def _event(self, event: Event) -> None:
        kind = event.type
        if kind == "pool.stats":
            data = event.data
            self._fields["stats"] = Stats(
                workers=_int(data, "workers"), leases=_int(data, "leases"), judging=_int(data, "judging"), at=event.at
            )
            self.changed.stats = True
            return
        if kind == "resync":
            self._number_anew(event.seq or 0)
            return
        fresh = event.seq is None or event.seq > self._seq
        if event.seq is not None:
            self._seq = max(self._seq, event.seq)
        if kind.startswith("worker."):
            self._worker_event(event)
        elif kind.startswith("job."):
            self._job_event(event)
        elif kind.startswith("task."):
            self._task_event(event, fresh)
        said = words.about(event, self._name_of)
        for entry in said:
            self._say(entry)

    def _number_anew(self, seq: int) -> None:
        """The pool goes on from a backup: what was told after that has numbers that will be given again."""
        self._seq = seq
        for id, worker in self.workers().items():
            self.workers()[id] = _replace(worker, flags_seq=0, link_seq=0)
        for id, job in self.jobs().items():
            self.jobs()[id] = _replace(job, seq=0)
        self._log = [_replace(entry, seq=0) for entry in self._log]
        self._fields |= {"log": tuple(_replace(entry, seq=0) for entry in self.state.log), "log_newest": 0}
        self.changed.everything = True

    def _worker_event(self, event: Event) -> None:
        if not event.id.startswith("w-"):
            return
        seq, data = event.seq or 0, event.data
        known = self.workers().get(event.id)
        worker = known or Worker(id=event.id, known=False)
        if known is None:
            self.changed.members = True
        if seq > worker.flags_seq and all(name in data for name in _FLAGS):
            worker = _replace(
                worker,
                name=str(data.get("name") or worker.name),
                owner=str(data.get("owner") or worker.owner),
                approved=bool(data["approved"]),
                revoked=bool(data["revoked"]),
                paused=bool(data["paused"]),
                draining=bool(data["draining"]),
                suspect=bool(data.get("quarantined", worker.suspect)),
                flags_seq=seq,
            )
        if event.type in ("worker.online", "worker.offline") and seq > worker.link_seq:
            online = event.type == "worker.online"
            worker = _replace(
                worker,
                connected=online,
                link_seq=seq,
                leases=worker.leases if online else 0,
                duty=worker.duty if online else 0.0,
                reason="" if not online else worker.reason,
                connected_at=event.at if online else None,
                seen_at=max(worker.seen_at or 0.0, event.at),
            )
        if worker != known:
            self._put_worker(known, worker)

    def _job_event(self, event: Event) -> None:
        seq, data = event.seq or 0, event.data
        known = self.jobs().get(event.id)
        job = known or Job(id=event.id, known=False)
        fields: dict[str, Any] = {}
        done = _int(data, "grains_done")
        if done > job.grains_done:
            fields["grains_done"] = done
        if event.type == "job.queued":
            fields["created_at"] = event.at
        if event.type == "job.running" and job.started_at is None:
            fields["started_at"] = event.at
        if seq > job.seq or known is None:
            fields |= {
                "kind": str(data.get("kind") or job.kind),
                "name": str(data.get("name") or job.name),
                "submitter": str(data.get("submitter") or job.submitter),
                "grains": _int(data, "grains") or job.grains,
                "seq": seq,
            }
            state = _ENDS.get(event.type) or str(data.get("state") or job.state)
            if _RANK.get(state, 0) >= _RANK.get(job.state, 0):  # the moves of a job never go back
                fields["state"] = state
        if event.type in _ENDS:
            fields["ended_at"] = event.at
            fields["waiting_reason"] = ""
            if data.get("detail"):
                fields["error"] = str(data["detail"])
        self._put_job(known, _replace(job, **fields))

    def _task_event(self, event: Event, fresh: bool) -> None:
        known = self.jobs().get(event.id)
        if known is None:
            return
        done = _int(event.data, "grains_done")
        self.changed.details.add(event.id)
        if done > known.grains_done:
            if fresh:
                self._grains += done - known.grains_done
            self._put_job(known, _replace(known, grains_done=done))

    # ---- bookkeeping

    def _put_job(self, known: Job | None, job: Job) -> None:
        if job == known:
            return
        self.jobs()[job.id] = job
        self.changed.jobs.add(job.id)
        if known is None or known.state != job.state:
            self.changed.job_list = True

    def _put_worker(self, known: Worker | None, worker: Worker) -> None:
        workers = self.workers()
        workers[worker.id] = worker
        workers.counted = None
        self._mark_worker(known, worker)

    def _mark_worker(self, before: Worker | None, now: Worker) -> None:
        self.changed.workers.add(now.id)
        if before is not None and before.reason == now.reason and before.connected == now.connected:
            return
        look = now.look
        if look in ("offline", "throttled") and (before is None or before.look != look):
            self.changed.urgent.add(now.id)

    def _say(self, entry: LogEntry) -> None:
        self._log.append(entry)
        self.changed.log = True

    def _name_of(self, id: str) -> str:
        worker = (self._workers if self._workers is not None else self.state.workers).get(id)
        if worker is not None:
            return worker.name
        job = (self._jobs if self._jobs is not None else self.state.jobs).get(id)
        return (job.name or job.summary) if job is not None else ""


def _newer_worker(known: Worker, row: Worker) -> Worker:
    """A row that was read, with what events have said since."""
    fields: dict[str, Any] = {}
    if known.flags_seq > row.flags_seq:
        fields |= {
            "approved": known.approved,
            "revoked": known.revoked,
            "paused": known.paused,
            "draining": known.draining,
            "suspect": known.suspect,
            "flags_seq": known.flags_seq,
        }
    if known.link_seq > row.link_seq:
        fields |= {"connected": known.connected, "link_seq": known.link_seq}
    if known.live_at:
        fields["live_at"] = known.live_at
    return _replace(row, **fields) if fields else row


def _newer_job(known: Job, row: Job) -> Job:
    fields: dict[str, Any] = {}
    if known.grains_done > row.grains_done:
        fields["grains_done"] = known.grains_done
    if known.seq > row.seq:
        fields["seq"] = known.seq
        if _RANK.get(known.state, 0) > _RANK.get(row.state, 0):
            fields |= {
                "state": known.state,
                "started_at": row.started_at or known.started_at,
                "ended_at": known.ended_at,
                "error": row.error or known.error,
            }
    return _replace(row, **fields) if fields else row


def _bounded(jobs: dict[str, Job]) -> dict[str, Job]:
    """Ended jobs beyond a limit go, oldest first; the server has them all."""
    if len(jobs) <= MAX_ENDED_JOBS:
        return jobs
    ended = sorted((job.ended_at or 0.0, job.id) for job in jobs.values() if job.ended)
    for _, id in ended[: max(0, len(ended) - MAX_ENDED_JOBS)]:
        del jobs[id]
    return jobs


def _merged(log: tuple[LogEntry, ...], newest: int, fresh: list[LogEntry]) -> tuple[LogEntry, ...]:
    """Lines of durable events once each, in the server's order; others where they came."""
    if all(entry.seq == 0 or entry.seq > newest for entry in fresh) and _ascends(fresh):
        return _newest(log + tuple(fresh))
    lines = list(log)
    for entry in fresh:
        if entry.seq == 0:
            lines.append(entry)
            continue
        numbered = [(line.seq, place) for place, line in enumerate(lines) if line.seq]
        at = bisect_left(numbered, (entry.seq, -1))
        if at < len(numbered) and numbered[at][0] == entry.seq:  # an event makes one line
            continue
        lines.insert(numbered[at][1] if at < len(numbered) else len(lines), entry)
    return _newest(tuple(lines))


def _newest(lines: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
    """The oldest lines go; of what happens to the pool, the newest stay while jobs flood the log."""
    over = len(lines) - MAX_LOG
    if over <= 0:
        return lines
    others = sum(entry.source != "log" for entry in lines)
    kept: list[LogEntry] = []
    for place, entry in enumerate(lines):
        if over == 0:
            return (*kept, *lines[place:])
        if entry.source != "log" and others <= MIN_OTHERS:
            kept.append(entry)
        else:
            others -= entry.source != "log"
            over -= 1
    return tuple(kept)


def _ascends(entries: list[LogEntry]) -> bool:
    last = 0
    for entry in entries:
        if entry.seq:
            if entry.seq <= last:
                return False
            last = entry.seq
    return True


def _int(data: dict[str, Any], name: str) -> int:
    value = data.get(name, 0)
    return value if isinstance(value, int) else 0
