"""Questions to a snapshot: counts, filtered and sorted lists, what needs the admin. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from moregpu.ids import name_order
from moregpu_tui.state.model import LOOKS, Job, Link, LogEntry, Look, PoolState, Roster, Worker

STALE_S = 5.0
"""The pool speaks once a second; after so long without a word, what is shown is old."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for the admin, and the key that deals with it."""

    level: str  # warning or error
    text: str
    about: str  # id of a worker or job
    action: str  # id of the action that helps


# ---- the link --------------------------------------------------------------------------------------------------------


def link_word(link: Link, now: float) -> str:
    """`live`, `stale`, `offline`, `refused` or `connecting`."""
    if link.state == "live" and now - link.heard_at > STALE_S:
        return "stale"
    return link.state


def why_not_now(state: PoolState, now: float) -> str:
    """Why nothing can be changed at present; "" when it can."""
    match link_word(state.link, now):
        case "live":
            return ""
        case "stale":
            return f"nothing was heard for {now - state.link.heard_at:.0f} s"
        case "refused":
            return state.link.detail or "the coordinator refused us"
        case "connecting":
            return "not connected yet"
        case _:
            return "the coordinator does not answer"


# ---- workers ---------------------------------------------------------------------------------------------------------

_WORKER_KEYS: dict[str, Callable[[Worker], Any]] = {
    "name": lambda worker: (name_order(worker.name), worker.id),
    "state": lambda worker: (LOOKS.index(worker.look), name_order(worker.name)),
    "device": lambda worker: (worker.devices[0].name.lower() if worker.devices else "~", name_order(worker.name)),
    "owner": lambda worker: (worker.owner.lower(), name_order(worker.name)),
    "duty": lambda worker: (-worker.duty, name_order(worker.name)),
    "load": lambda worker: (-worker.user_load, name_order(worker.name)),
    "latency": lambda worker: (worker.round_trip_s if worker.round_trip_s else 9e9, name_order(worker.name)),
    "score": lambda worker: (-worker.score, name_order(worker.name)),
    "leases": lambda worker: (-worker.leases, name_order(worker.name)),
    "done": lambda worker: (-worker.tasks_done, name_order(worker.name)),
    "failed": lambda worker: (-worker.tasks_failed, name_order(worker.name)),
    "seen": lambda worker: (-(worker.seen_at or 0.0), name_order(worker.name)),
}
WORKER_SORTS = tuple(_WORKER_KEYS)
STATIC_SORTS = frozenset({"name", "device", "owner", "id"})
"""Orders that do not change while a pool only works."""


def workers(state: PoolState, text: str = "", sort: str = "name", reverse: bool = False) -> list[Worker]:
    """Workers that match, in order. Revoked ones come last unless asked for by their state."""
    found = [worker for worker in state.workers.values() if worker_matches(worker, text)]
    found.sort(key=_WORKER_KEYS.get(sort, _WORKER_KEYS["name"]), reverse=reverse)
    if sort != "state":
        found.sort(key=lambda worker: worker.revoked)
    return found


def worker_matches(worker: Worker, text: str) -> bool:
    """Every word of the text is in its name, id, owner, groups, state, system or devices; `!word` must not be."""
    if not text:
        return True
    places = [worker.name, worker.id, worker.owner, worker.look, worker.system, *worker.groups]
    return _matches(text, " ".join([*places, *(device.name for device in worker.devices)]))


def look_counts(state: PoolState) -> dict[Look, int]:
    """How many workers look how; all states, also those with none."""
    counted = Counter(worker.look for worker in state.workers.values())
    return {look: counted.get(look, 0) for look in LOOKS}


# ---- jobs ------------------------------------------------------------------------------------------------------------

_JOB_ORDER = {"running": 0, "queued": 1, "failed": 2, "done": 3, "cancelled": 3}
_JOB_KEYS: dict[str, Callable[[Job], Any]] = {
    "queue": lambda job: (
        min(_JOB_ORDER.get(job.state, 3), 2),
        -job.created_at if job.ended else job.created_at,
        job.id,
    ),
    "submitted": lambda job: (-job.created_at, job.id),
    "name": lambda job: (name_order(job.name or job.summary), job.id),
    "state": lambda job: (_JOB_ORDER.get(job.state, 3), -job.created_at),
    "progress": lambda job: (-job.share, -job.created_at),
    "submitter": lambda job: (job.submitter_name or job.submitter, -job.created_at),
}
JOB_SORTS = tuple(_JOB_KEYS)


def jobs(state: PoolState, text: str = "", sort: str = "queue", reverse: bool = False) -> list[Job]:
    """Jobs that match, in order; `queue` is running, then waiting, then what ended last."""
    found = [job for job in state.jobs.values() if job_matches(job, text)]
    found.sort(key=_JOB_KEYS.get(sort, _JOB_KEYS["queue"]), reverse=reverse)
    return found


def job_matches(job: Job, text: str) -> bool:
    """Every word of the text is in its name, id, kind, summary, state or submitter."""
    whose = f"{job.submitter} {job.submitter_name}"
    return not text or _matches(text, f"{job.name} {job.id} {job.kind} {job.summary} {job.state} {whose}")


def job_counts(state: PoolState) -> tuple[int, int]:
    """Jobs (queued, running)."""
    queued = sum(job.state == "queued" for job in state.jobs.values())
    return queued, sum(job.state == "running" for job in state.jobs.values())


def busiest(state: PoolState, limit: int) -> list[Job]:
    """Running jobs first, by what is left; then waiting ones, then what ended last."""
    return jobs(state)[:limit]


def holders(state: PoolState, worker: str) -> list[Job]:
    """Jobs that a worker has computed for, running ones first."""
    return [job for job in jobs(state) if worker in job.workers][:20]


# ---- what needs the admin --------------------------------------------------------------------------------------------


def needs(state: PoolState, limit: int = 50) -> list[Need]:
    """What waits for a person, worst first; capped, so that ten thousand troubles are still a list."""
    found: list[Need] = []
    for worker in state.workers.values():
        look = worker.look
        if look == "suspect":
            found.append(_need("error", f"{worker.name} gave a wrong result", worker.id, "worker.revoke"))
        elif look == "pending":
            found.append(_need("warning", f"{worker.name} waits for approval", worker.id, "worker.approve"))
        elif look != "revoked" and not worker.tls_ends_here:
            found.append(_need("error", f"{worker.name} saw another certificate", worker.id, "worker.open"))
        elif worker.tasks_failed > 8 and worker.tasks_failed > worker.tasks_done / 10 and look != "revoked":
            found.append(
                _need("warning", f"{worker.name} failed {worker.tasks_failed:,} tasks", worker.id, "worker.open")
            )
    for job in state.jobs.values():
        if job.state == "queued" and job.waiting_reason:
            found.append(_need("warning", f"{job.name or job.summary}: {job.waiting_reason}", job.id, "job.open"))
    if state.pool is not None and 0 < state.pool.storage_free_bytes < 2 << 30:
        free = state.pool.storage_free_bytes / (1 << 30)
        found.append(_need("error", f"only {free:.1f} GiB of disk are left", "", "screen.settings"))
    if state.audit is not None and not state.audit.ok:
        found.append(_need("error", "the ledger does not verify", "", "screen.access"))
    found.sort(key=lambda need: (need.level != "error", need.text))
    return found[:limit]


# ---- log -------------------------------------------------------------------------------------------------------------

LEVELS = ("info", "warning", "error")


def log_lines(
    log: Iterable[LogEntry], text: str = "", least: str = "info", sources: frozenset[str] = frozenset()
) -> list[LogEntry]:
    """Lines of at least a level, of some sources (none named: all), that match."""
    floor = LEVELS.index(least)
    return [
        entry
        for entry in log
        if LEVELS.index(entry.level) >= floor and (not sources or entry.source in sources) and log_matches(entry, text)
    ]


def log_matches(entry: LogEntry, text: str) -> bool:
    """Every word of the text is in the line, its source or the id it is about."""
    return not text or _matches(text, f"{entry.text} {entry.about} {entry.source}")


_NOT_ACCESS = ("is online", "went offline", "was measured", "has new limits")


def access_lines(log: Iterable[LogEntry]) -> list[LogEntry]:
    """Lines about who may do what: invites, tokens, keys, workers that joined, were approved or revoked."""
    return [
        entry
        for entry in log
        if entry.source not in ("task", "job", "log", "console")
        and not (entry.source == "worker" and entry.text.endswith(_NOT_ACCESS))
    ]


# ---- figures ---------------------------------------------------------------------------------------------------------


def fleet_counts(state: PoolState) -> tuple[int, int]:
    """Workers that are online, and all that were not revoked."""
    workers = state.workers
    if isinstance(workers, Roster) and workers.counted is not None:
        return workers.counted
    kept = [worker.connected for worker in workers.values() if not worker.revoked]
    counted = sum(kept), len(kept)
    if isinstance(workers, Roster):
        workers.counted = counted
    return counted


def sample(state: PoolState, grains_per_s: float) -> dict[str, float]:
    """The four figures of the graphs, now."""
    queued, running = job_counts(state)
    online = [worker for worker in state.workers.values() if worker.connected and not worker.revoked]
    trips = sorted(worker.round_trip_s for worker in online if worker.round_trip_s)
    return {
        "queue": float(queued + running),
        "throughput": grains_per_s,
        "throttle": 100.0 * sum(worker.duty for worker in online) / len(online) if online else 0.0,
        "latency": 1000.0 * trips[len(trips) // 2] if trips else 0.0,
    }


def _matches(text: str, where: str) -> bool:
    where = where.lower()
    for word in text.lower().split():
        if word.startswith("!") and len(word) > 1:
            if word[1:] in where:
                return False
        elif word not in where:
            return False
    return True


def _need(level: str, text: str, about: str, action: str) -> Need:
    return Need(level=level, text=text, about=about, action=action)
