"""Jobs as rows, the road of one job, its task map, attempts and evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from moregpu.wire.api import TaskView
from moregpu_tui.present.cells import Column, Line, Piece, meter
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.time import ago, clock, moment
from moregpu_tui.present.units import NOTHING, plural, seconds, share, short_id
from moregpu_tui.present.workers import job_tone
from moregpu_tui.state.model import Detail, Job, Signature

COLUMNS: tuple[Column, ...] = (
    Column(key="state", title="STATE", width=11),
    Column(key="name", title="JOB", width=20, grow=3),
    Column(key="progress", title="PROGRESS", width=17, rank=1),
    Column(key="tasks", title="GRAINS", width=11, right=True, rank=4),
    Column(key="time", title="TIME", width=8, right=True, rank=3),
    Column(key="checked", title="CHECKED", width=12, rank=5),
    Column(key="submitter", title="BY", width=10, rank=6),
    Column(key="submitted", title="SUBMITTED", width=11, right=True, rank=2),
    Column(key="id", title="ID", width=10, rank=7),
)


def cell(job: Job, key: str, manner: Manner, now: float) -> Line:
    """What stands in one column of a job's row."""
    return _CELLS[key](job, manner, now)


def _state(job: Job, manner: Manner, _now: float) -> Line:
    tone = "warn" if job.failed_calls and job.state == "done" else job_tone(job.state)
    return ((f"{manner.glyphs.jobs.get(job.state, '?')} {job.state}", tone),)


def _name(job: Job, _manner: Manner, _now: float) -> Line:
    if job.name and job.summary:
        return ((job.name, "strong"), (f"  {job.summary}", "dim"))
    return ((job.name or job.summary or job.kind or short_id(job.id), "strong" if not job.ended else "text"),)


def _progress(job: Job, manner: Manner, _now: float) -> Line:
    if job.state == "queued":
        return ((job.waiting_reason or "waiting for a worker", "warn" if job.waiting_reason else "dim"),)
    if job.state == "failed":
        return ((job.error or "failed", "bad"),)
    if job.state == "done" and job.failed_calls:
        some = f"{job.failed_calls:,} of {job.grains:,}"
        return ((f"{plural(job.grains, 'call') if job.failed_calls == job.grains else some} failed", "bad"),)
    tone = "good" if job.state == "done" else "busy" if job.state == "running" else "dim"
    return (*meter(job.share, 11, manner.glyphs.bar, tone), (f"{share(job.share):>6}", "text"))


def _tasks(job: Job, _manner: Manner, _now: float) -> Line:
    return ((f"{job.grains_done:,}", "text"), (f"/{job.grains:,}", "dim"))


def _time(job: Job, _manner: Manner, now: float) -> Line:
    if job.started_at is None:
        return ((NOTHING, "dim"),)
    return ((seconds(max(0.0, (job.ended_at or now) - job.started_at)), "text"),)


def _checked(job: Job, manner: Manner, _now: float) -> Line:
    if not job.evidence:
        return ((NOTHING, "dim"),)
    best = max(job.evidence, key=lambda kind: job.evidence[kind])
    return ((f"{manner.glyphs.check} {best}" if job.checked else best, "good" if job.checked else "dim"),)


def _submitter(job: Job, _manner: Manner, _now: float) -> Line:
    return ((job.submitter_name or job.submitter[:10], "dim"),)


def _submitted(job: Job, _manner: Manner, now: float) -> Line:
    return ((ago(job.created_at, now), "dim"),)


def _id(job: Job, _manner: Manner, _now: float) -> Line:
    return ((short_id(job.id), "dim"),)


_CELLS: dict[str, Callable[[Job, Manner, float], Line]] = {
    "state": _state,
    "name": _name,
    "progress": _progress,
    "tasks": _tasks,
    "time": _time,
    "checked": _checked,
    "submitter": _submitter,
    "submitted": _submitted,
    "id": _id,
}


# ---- one job ---------------------------------------------------------------------------------------------------------


def road(job: Job, manner: Manner) -> Line:
    """Planned → leased → computed → checked → combined: what lies behind is marked, where it stands is bright."""
    reached = 1
    if job.started_at is not None or job.state == "running":
        reached = 2
    if job.grains_done:
        reached = 3
    if job.grains and job.grains_done >= job.grains:
        reached = 4
    if job.state == "done":
        reached = 6
    pieces: list[Piece] = []
    for number, step in enumerate(("planned", "leased", "computed", "checked", "combined"), 1):
        if number > 1:
            pieces.append((f" {manner.glyphs.line}{manner.glyphs.line} ", "dim"))
        if step == "checked" and job.state == "done" and not job.checked:
            pieces.append((f"{manner.glyphs.cross} not checked", "warn"))  # such as a function's: nobody can know it
        elif number < reached:
            pieces.append((f"{manner.glyphs.check} {step}", "good"))
        elif number == reached:
            tone = "bad" if job.state == "failed" else "dim" if job.state == "cancelled" else "busy"
            pieces.append((f"{manner.glyphs.jobs['running']} {step}", tone))
        else:
            pieces.append((f"{manner.glyphs.jobs['queued']} {step}", "dim"))
    return tuple(pieces)


def facts(job: Job, manner: Manner, now: float) -> list[Line]:
    """The head of a job's page."""
    found: list[tuple[str, Sequence[Piece]]] = [
        ("what", [(job.summary or job.kind, "text")]),
        ("id", [(job.id, "dim")]),
        ("by", [(job.submitter_name or job.submitter, "text"), (f"  {moment(job.created_at, manner.zone)}", "dim")]),
    ]
    if job.waiting_reason and not job.ended:
        found.append(("waiting", [(job.waiting_reason, "warn")]))
    if job.error:
        found.append(("error", [(job.error, "bad")]))
        if job.hint:
            found.append(("hint", [(job.hint, "text")]))
    if job.failed_calls:
        told = f"{job.failed_calls:,} of {plural(job.grains, 'call')} failed: what they raised is their result"
        found.append(("failed", [(told, "bad")]))
    end = job.ended_at or now
    ran = max(0.0, end - job.started_at) if job.started_at else None
    times = [
        ("queued ", "dim"), (seconds(job.queued_s if job.started_at else max(0.0, now - job.created_at)), "text"),
        ("   ran ", "dim"), (seconds(ran), "text"),
        ("   checking ", "dim"), (seconds(job.checking_s), "text"),
        ("   combining ", "dim"), (seconds(job.combining_s), "text"),
    ]  # fmt: skip
    found.append(("time", times))
    if job.digest:
        found.append(("result", [(job.digest[:32], "dim")]))
    elif job.dropped:
        found.append(("result", [("a benchmark: checked and dropped", "dim")]))
    return [((f"{name:<9}", "dim"), *pieces) for name, pieces in found]


class Square(msgspec.Struct, frozen=True, kw_only=True):
    """One square of the task map: neighbouring grains."""

    state: str  # done, leased, waiting, failed, none
    share: float = 0.0  # of its grains that are done


def task_map(job: Job, tasks: Sequence[TaskView], squares: int) -> list[Square]:
    """The job's grains in at most `squares` squares, in order; each shows the worst that happens in it."""
    if job.grains <= 0 or squares <= 0:
        return []
    count = min(job.grains, squares)
    found: list[Counter[str]] = [Counter() for _ in range(count)]
    for task in tasks:
        start, stop = task.grains
        first = start * count // job.grains
        last = -(-max(start + 1, stop) * count // job.grains) - 1
        for place in range(first, min(last, count - 1) + 1):
            low, high = place * job.grains / count, (place + 1) * job.grains / count
            covered = max(0.0, min(high, stop) - max(low, start))
            found[place][task.state] += max(1, round(1e6 * covered / (high - low)))
    return [_square(states) for states in found]


def _square(states: Counter[str]) -> Square:
    done = min(1.0, states["done"] / 1e6)
    for state in ("failed", "leased", "waiting"):
        if states[state]:
            return Square(state=state, share=done)
    return Square(state="done" if done > 0.995 else "leased" if done else "none", share=done)


TASK_COLUMNS: tuple[Column, ...] = (
    Column(key="number", title="TASK", width=5, right=True),
    Column(key="state", title="STATE", width=11),
    Column(key="grains", title="GRAINS", width=13, right=True, rank=3),
    Column(key="worker", title="WORKER", width=14, grow=2),
    Column(key="attempts", title="ATTEMPTS", width=8, right=True, rank=4),
    Column(key="seconds", title="TIME", width=8, right=True, rank=2),
    Column(key="evidence", title="EVIDENCE", width=26, grow=1, rank=1),
    Column(key="signed", title="SIGNED", width=12, rank=5),
)


def task_cell(task: TaskView, key: str, signature: Signature | None, manner: Manner, now: float) -> Line:
    """What stands in one column of a task's row."""
    last = task.attempts[-1] if task.attempts else None
    match key:
        case "number":
            return ((str(task.number), "text"),)
        case "state":
            tone = {"done": "good", "leased": "busy", "failed": "bad", "waiting": "warn"}.get(task.state, "dim")
            return ((f"{manner.glyphs.tasks.get(task.state, ' ')} {task.state}", tone),)
        case "grains":
            start, stop = task.grains
            return ((f"{start:,}–{max(start, stop - 1):,}", "dim"),)
        case "worker":
            name = last.worker_name or short_id(last.worker) if last else NOTHING
            if last and last.error:
                return ((name, "text"), (f"  {last.error}", "bad"))
            return ((name, "text"),)
        case "attempts":
            return ((str(len(task.attempts)), "warn" if len(task.attempts) > 1 else "dim"),)
        case "seconds":
            spent = last.seconds if last else None
            if spent is None and last is not None and task.state == "leased":
                spent = max(0.0, now - last.leased_at)
            return ((seconds(spent), "text"),)
        case "evidence":
            return evidence(task, manner)
        case _:
            if signature is None:
                return ((NOTHING, "dim"),)
            return ((f"{manner.glyphs.check} row {signature.ledger_row:,}", "good") if signature.verified
                    else ("BAD", "bad"),)  # fmt: skip


def evidence(task: TaskView, manner: Manner) -> Line:
    """How a task's result was checked, in a few words."""
    found = task.evidence
    if found is None:
        return ((NOTHING, "dim"),)
    more = ""
    if found.kind == "freivalds":
        more = plural(found.vectors, "vector")
    elif found.kind == "sampled":
        more = f"{plural(found.rows, 'row')}, finds {100 * found.probability:.2f} %"
    elif found.kind == "agreed":
        more = plural(len(found.workers), "worker")
    if found.worst_ratio:
        more += f"{', ' if more else ''}error {100 * found.worst_ratio:.2g} % of bound"
    tone = "good" if found.checked else "bad" if found.kind == "suspect" else "dim"
    return ((f"{manner.glyphs.check if found.checked else ' '} {found.kind}", tone), (f"  {more}", "dim"))


def attempts(tasks: Sequence[TaskView], manner: Manner, limit: int = 200) -> list[Line]:
    """All attempts, newest first, with their errors."""
    rows = [(attempt, task) for task in tasks for attempt in task.attempts]
    rows.sort(key=lambda row: -row[0].leased_at)
    tones = {"accepted": "good", "rejected": "bad", "lost": "warn", "started": "busy"}
    return [
        (
            (f"{clock(attempt.leased_at, manner.zone)}  ", "dim"),
            (f"task {task.number:<4} #{attempt.number}  ", "text"),
            (f"{attempt.state:<9} ", tones.get(attempt.state, "dim")),
            (f"{attempt.worker_name or short_id(attempt.worker)}", "text"),
            (f"  {seconds(attempt.seconds)}" if attempt.seconds is not None else "", "dim"),
            (f"  {attempt.error}" if attempt.error else "", "bad"),
        )
        for attempt, task in rows[:limit]
    ]


def proof(job: Job, detail: Detail, manner: Manner) -> list[Line]:
    """Evidence and signatures in words."""
    glyphs = manner.glyphs
    lines: list[Line] = []
    if job.state == "done":
        lines.append(
            ((f"{glyphs.check} checked", "good") if job.checked else (f"{glyphs.cross} not checked", "warn"),
             (f"   {glyphs.check} signed" if job.signed else "", "good"))
        )  # fmt: skip
    else:
        lines.append((("not done yet: what is here so far", "dim"),))
    for kind, number in sorted(job.evidence.items()):
        lines.append(((f"  {plural(number, 'task')} ", "text"), (kind, "dim")))
    lines.append(())
    signatures = detail.signatures
    if signatures is None:
        lines.append(((f"signatures: press {manner.key('job.verify')} to fetch and verify them here", "dim"),))
        return lines
    by_worker = Counter(
        (signature.worker_name or short_id(signature.worker), signature.verified) for signature in signatures
    )
    for (worker, good), number in sorted(by_worker.items()):
        lines.append(
            ((f"  {glyphs.check if good else glyphs.cross} {worker}", "good" if good else "bad"),
             (f"  {plural(number, 'signature')} {'verified here' if good else 'NOT GOOD'}", "dim"))
        )  # fmt: skip
    if not signatures:
        lines.append((("  no signed statement yet", "dim"),))
    lines += [((f"  {signature.detail}", "bad"),) for signature in signatures if signature.detail][:5]
    return lines
