"""Workers as rows and as a side panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moregpu_tui.present.cells import Column, Line, Piece, meter, sparkline
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.time import ago, moment
from moregpu_tui.present.units import NOTHING, count, plural, seconds, share, short_id, size, speed
from moregpu_tui.state.model import Job, PoolState, Worker
from moregpu_tui.state.selectors import look_counts

COLUMNS: tuple[Column, ...] = (
    Column(key="state", title="STATE", width=11),
    Column(key="name", title="WORKER", width=14, grow=3),
    Column(key="device", title="DEVICE", width=18, grow=3, rank=3),
    Column(key="duty", title="DUTY", width=11, rank=2),
    Column(key="load", title="OWNER", width=6, right=True, rank=5),
    Column(key="latency", title="LATENCY", width=8, right=True, rank=4),
    Column(key="score", title="SCORE", width=5, right=True, rank=6),
    Column(key="leases", title="TASKS", width=5, right=True, rank=1),
    Column(key="done", title="DONE", width=6, right=True, rank=7),
    Column(key="failed", title="FAILED", width=6, right=True, rank=8),
    Column(key="owner", title="WHOSE", width=10, grow=1, rank=9),
    Column(key="seen", title="SEEN", width=10, right=True, rank=10),
)


def cell(worker: Worker, key: str, manner: Manner, now: float) -> Line:
    """What stands in one column of a worker's row."""
    return _CELLS[key](worker, manner, now)


def version(worker: Worker) -> Worker:
    """What a row depends on: the worker itself."""
    return worker


def _state(worker: Worker, manner: Manner, _now: float) -> Line:
    look = worker.look
    return ((f"{manner.glyphs.looks[look]} {look}", look),)


def _name(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((worker.name or short_id(worker.id), "strong" if worker.look == "busy" else "text"),)


def _device(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((device_text(worker), "text" if worker.connected else "dim"),)


def _duty(worker: Worker, manner: Manner, _now: float) -> Line:
    if not worker.connected:
        return ((NOTHING, "dim"),)
    tone = "throttled" if worker.look == "throttled" else "busy" if worker.leases else "dim"
    return (*meter(worker.duty, 5, manner.glyphs.bar, tone), (f"{100 * worker.duty:4.0f} %", "text"))


def _load(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((share(worker.user_load), "text"),) if worker.connected else ((NOTHING, "dim"),)


def _latency(worker: Worker, _manner: Manner, _now: float) -> Line:
    trip = worker.round_trip_s if worker.connected else None
    return ((seconds(trip), "warn" if trip and trip > 0.25 else "text" if trip else "dim"),)


def _score(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((str(worker.score) if worker.score else NOTHING, "text" if worker.score else "dim"),)


def _leases(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((str(worker.leases), "text" if worker.leases else "dim"),)


def _done(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((count(worker.tasks_done), "text" if worker.tasks_done else "dim"),)


def _failed(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((count(worker.tasks_failed), "bad" if worker.tasks_failed else "dim"),)


def _owner(worker: Worker, _manner: Manner, _now: float) -> Line:
    return ((short_id(worker.owner) if worker.owner.startswith("i-") else worker.owner, "dim"),)


def _seen(worker: Worker, _manner: Manner, now: float) -> Line:
    return (("now" if worker.connected else ago(worker.seen_at, now), "dim"),)


_CELLS: dict[str, Callable[[Worker, Manner, float], Line]] = {
    "state": _state,
    "name": _name,
    "device": _device,
    "duty": _duty,
    "load": _load,
    "latency": _latency,
    "score": _score,
    "leases": _leases,
    "done": _done,
    "failed": _failed,
    "owner": _owner,
    "seen": _seen,
}


def device_text(worker: Worker) -> str:
    """A worker's devices in a few words."""
    if not worker.devices:
        return NOTHING
    first = worker.devices[0]
    text = f"{first.name} ({plural(first.cores, 'core')})" if first.kind == "cpu" and first.cores else first.name
    return f"{text} +{len(worker.devices) - 1}" if len(worker.devices) > 1 else text


# ---- the side panel --------------------------------------------------------------------------------------------------


def panel(
    worker: Worker, jobs: Sequence[Job], curve: Sequence[tuple[float, float]], manner: Manner, now: float, width: int
) -> list[Line]:
    """Everything about one worker. `curve`: (duty, user load) of the last minutes."""
    look = worker.look
    lines: list[Line] = [
        ((worker.name or worker.id, "strong"),),
        ((f"{manner.glyphs.looks[look]} {look}", look), (f"  {worker.reason}" if worker.reason else "", "dim")),
        (),
        *_facts(
            [
                ("id", [(worker.id, "dim")]),
                ("owner", [(worker.owner or NOTHING, "text")]),
                ("groups", [(", ".join(worker.groups) or NOTHING, "text")]),
                ("system", [(worker.system or NOTHING, "text")]),
                ("version", [(worker.version or NOTHING, "text")]),
                ("joined", [(moment(worker.enrolled_at, manner.zone), "text")]),
                ("seen", [("now" if worker.connected else ago(worker.seen_at, now), "text")]),
                ("latency", [(seconds(worker.round_trip_s), "text")]),
            ]
        ),
        (),
        _title("devices"),
    ]
    for device in worker.devices:
        lines.append(((f"  {device.name}", "text"),))
        facts = [device.kind]
        if device.cores:
            facts.append(plural(device.cores, "core"))
        if device.memory_bytes:
            facts.append(size(device.memory_bytes))
        facts += [part for part in (device.engine, device.driver) if part]
        lines.append(((f"    {' · '.join(facts)}", "dim"),))
    cells = max(8, min(60, width - 18))
    lines += [
        (),
        _title("duty and the owner's load, last minutes"),
        (("  duty  ", "dim"), (sparkline([duty for duty, _ in curve], cells, manner.glyphs.rise, 1.0), "busy"),
         (f" {share(worker.duty):>5}", "text")),
        (("  owner ", "dim"), (sparkline([load for _, load in curve], cells, manner.glyphs.rise, 1.0), "throttle"),
         (f" {share(worker.user_load):>5}", "text")),
        (),
        _title("limits"),
        *_facts(
            [
                ("ceiling", [(share(worker.ceiling), "text"), (f"  owner's own {share(worker.owner_ceiling)}", "dim")]),
                ("schedule", [(worker.schedule, "text"), (f"  owner's own {worker.owner_schedule}", "dim")]),
                ("isolation", [(worker.isolation, "text")]),
            ]
        ),
        (),
        _title("what its owner lets in"),
        *_facts([(kind, _whose(worker, kind)) for kind in worker.kinds] or [("anything", _whose(worker, "*"))]),
        (),
        _title("trust"),
        *_facts(
            [
                ("tasks", [(f"{worker.tasks_done:,} done", "good" if worker.tasks_done else "dim"),
                           (f"  {worker.tasks_failed:,} failed", "bad" if worker.tasks_failed else "dim")]),
                ("computed", [(seconds(worker.busy_s), "text")]),
                ("score", [(str(worker.score), "text")]),
                ("link", [("sealed to this coordinator", "good") if worker.tls_ends_here
                          else ("another certificate was seen", "bad")]),
            ]
        ),
    ]  # fmt: skip
    if worker.speeds:
        lines += [(), _title("measured speeds")]
        for key, value in sorted(worker.speeds.items())[:6]:
            lines.append(((f"  {key:<22}", "dim"), (f"{speed(value, key):>13}", "text")))
    if jobs:
        lines += [(), _title("jobs it computed for")]
        for job in jobs[:6]:
            lines.append(
                (
                    (f"  {manner.glyphs.jobs.get(job.state, ' ')} ", job_tone(job.state)),
                    (job.name or job.summary, "text"),
                )
            )
    return lines


def _whose(worker: Worker, kind: str) -> list[Piece]:
    """Whose jobs of a kind: everybody's, unless its owner named some."""
    whose = worker.consent.get(kind, ("*",))
    if "*" in whose:
        return [("from everybody", "text")]
    if not whose:
        return [("from nobody", "warn")]
    more = f" and {len(whose) - 4} more" if len(whose) > 4 else ""
    return [(f"only from {', '.join(whose[:4])}{more}", "text")]


def job_tone(state: str) -> str:
    """Tone of a job's state."""
    return {"running": "busy", "done": "good", "failed": "bad", "queued": "ready"}.get(state, "dim")


def counts_lines(state: PoolState, manner: Manner, width: int) -> list[Line]:
    """`● 3 busy  ○ 9 ready  …`, only what there is, in as many lines as it takes."""
    lines: list[list[Piece]] = [[]]
    for look, number in look_counts(state).items():
        if not number:
            continue
        word = f"{manner.glyphs.looks[look]} {number:,} {look}  "
        if lines[-1] and sum(len(text) for text, _ in lines[-1]) + len(word) - 2 > width:
            lines.append([])
        lines[-1].append((word, look))
    return [tuple(line) for line in lines]


def _title(text: str) -> Line:
    return ((text, "head"),)


def _facts(facts: Sequence[tuple[str, Sequence[Piece]]]) -> list[Line]:
    return [((f"  {name:<10}", "dim"), *pieces) for name, pieces in facts]
