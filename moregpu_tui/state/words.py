"""Events in the words of the log: one line each, for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from moregpu.wire.api import Event
from moregpu_tui.state.model import LogEntry

Level = Literal["info", "warning", "error"]

_WORKER: dict[str, tuple[Level, str]] = {
    "worker.enrolled": ("info", "joined the pool"),
    "worker.online": ("info", "is online"),
    "worker.offline": ("warning", "went offline"),
    "worker.measured": ("info", "was measured"),
    "worker.paused": ("info", "was paused"),
    "worker.resumed": ("info", "was resumed"),
    "worker.draining": ("info", "is draining: it finishes what it holds"),
    "worker.approved": ("info", "was approved"),
    "worker.changed": ("info", "has new limits"),
    "worker.revoked": ("warning", "was revoked"),
    "worker.flapping": ("warning", "connects from two places: one key on two machines?"),
    "worker.canary_failed": ("error", "computed its first test wrongly and was paused"),
    "worker.paused_for_failures": ("warning", "failed too often and was paused"),
    "worker.quarantined": ("error", "gave a wrong result: nothing more goes to it"),
    "worker.probation": ("warning", "is on probation: all its results are checked in full"),
    "worker.suspect": ("error", "gave a result that others did not"),
}


def about(event: Event, name_of: Callable[[str], str]) -> list[LogEntry]:
    """Lines about one event; none for what is only a step on the way."""
    family, _, verb = event.type.partition(".")
    match family:
        case "worker":
            level, text = _WORKER.get(event.type, ("info", verb.replace("_", " ")))
            name = str(event.data.get("name") or name_of(event.id) or event.id[:12])
            return [_entry(event, level, family, f"{name} {text}")]
        case "job":
            return [_job(event, verb)]
        case "task":
            return _task(event, verb, name_of)
        case "invite":
            return [_entry(event, "info", family, _invite(event, verb, name_of))]
        case "log":
            lines = event.data.get("lines")
            who = name_of(str(event.data.get("worker") or "")) or str(event.data.get("worker") or "")[:12]
            return [
                *_left_out(event),
                *(
                    _line(event, f"{who}: {line}" if who else str(line))
                    for line in (lines if isinstance(lines, list) else [])
                ),
            ]
        case "snapshot" | "resync":
            return []
        case _:
            detail = event.data.get("detail") or event.data.get("reason") or ""
            return [_entry(event, "info", family, f"{verb.replace('_', ' ') or family} {event.id} {detail}".strip())]


def _job(event: Event, verb: str) -> LogEntry:
    data = event.data
    name = str(data.get("name") or event.id[:14])
    match verb:
        case "queued":
            return _entry(event, "info", "job", f"{name} was submitted: {_counted(data.get('grains'), 'grain')}")
        case "running":
            return _entry(event, "info", "job", f"{name} runs")
        case "done":
            return _entry(event, "info", "job", f"{name} is done")
        case "failed":
            return _entry(event, "error", "job", f"{name} failed: {data.get('detail') or 'no reason given'}")
        case "cancelled":
            return _entry(event, "warning", "job", f"{name} was cancelled")
        case _:
            return _entry(event, "info", "job", f"{name} {verb.replace('_', ' ')}")


def _task(event: Event, verb: str, name_of: Callable[[str], str]) -> list[LogEntry]:
    tasks = event.data.get("tasks")
    count = len(tasks) if isinstance(tasks, list) else 0
    who = name_of(str(event.data.get("worker") or "")) or "a worker"
    job = name_of(event.id) or event.id[:14]
    match verb:
        case "failed":
            return [_entry(event, "warning", "task", f"{who} failed {_counted(count, 'task')} of {job}")]
        case "lost":
            return [_entry(event, "warning", "task", f"{who} lost {_counted(count, 'task')} of {job}: they run again")]
        case "done":
            return [_entry(event, "info", "task", f"{who} finished {_counted(count, 'task')} of {job}")]
        case _:
            return []


def _invite(event: Event, verb: str, name_of: Callable[[str], str]) -> str:
    owner = str(event.data.get("owner") or "")
    match verb:
        case "created":
            return f"invite {event.id[:8]} was made" + (f" for {owner}" if owner and owner != event.id else "")
        case "used":
            return f"invite {event.id[:8]} was used by {name_of(str(event.data.get('worker') or '')) or 'a worker'}"
        case _:
            return f"invite {event.id[:8]} {verb.replace('_', ' ')}"


def _entry(event: Event, level: Level, source: str, text: str) -> LogEntry:
    return LogEntry(at=event.at, level=level, source=source, about=event.id, text=text, seq=event.seq or 0)


def _line(event: Event, text: str) -> LogEntry:
    """A line that a job wrote: live, so it has no place in the order of what is kept."""
    about = str(event.data.get("job") or event.id or event.data.get("task") or "")
    return LogEntry(at=event.at, level="info", source="log", about=about, text=text)


def _left_out(event: Event) -> list[LogEntry]:
    """Lines that came faster than anybody reads, here or on their way; they stand on their jobs' own pages."""
    count = event.data.get("left_out")
    if not isinstance(count, int) or count <= 0:
        return []
    text = f"{_counted(count, 'line')} that jobs printed {'is' if count == 1 else 'are'} left out here"
    return [LogEntry(at=event.at, level="warning", source="log", about="", text=text)]


def _counted(count: object, word: str) -> str:
    number = count if isinstance(count, int) else 0
    return f"{number:,} {word}{'' if number == 1 else 's'}"
