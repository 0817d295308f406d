"""What ran here: for whom, how long, about how much energy. Kept by hour and job in one SQLite file.

Many tasks a second come in; they are summed in memory and written every half minute and at the end. A disk that is full
costs the hour's sums nothing but their place: they stay in memory and are written later.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from moregpu.platform.private import private_folder
from moregpu.wire.text import clean

_log = logging.getLogger(__name__)

HOUR_S = 3600
FLUSH_S = 30.0
KEPT_DAYS = 400
FILE = "history.db"

WATTS_PER_CORE = 8.0
"""What one busy core draws beyond an idle one: a desktop's 65 W over 8 cores. An estimate, and called one."""

_TABLE = """
CREATE TABLE IF NOT EXISTS ran (
    hour INTEGER NOT NULL, job TEXT NOT NULL, submitter TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
    tasks INTEGER NOT NULL, seconds REAL NOT NULL, core_seconds REAL NOT NULL,
    PRIMARY KEY (hour, job)
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO ran VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hour, job) DO UPDATE SET
    tasks = tasks + excluded.tasks, seconds = seconds + excluded.seconds,
    core_seconds = core_seconds + excluded.core_seconds
"""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One job's work here, over a stretch of time."""

    job: str
    submitter: str
    name: str
    kind: str
    tasks: int
    seconds: float
    watt_hours: float


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """All work of a stretch of time."""

    tasks: int = 0
    seconds: float = 0.0
    watt_hours: float = 0.0


class _Row(msgspec.Struct, kw_only=True):
    submitter: str
    name: str
    kind: str
    tasks: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0


class History:
    """Notes what ran. Any thread may call it."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time):
        self._file = private_folder(folder) / FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._fresh: dict[tuple[int, str], _Row] = {}
        self._flushed_at = clock()
        self._failed = False

    def note(self, *, job: str, submitter: str, name: str, kind: str, seconds: float, cores: int) -> None:
        """Add one task. Names are a stranger's: they are cleaned here."""
        now = self._clock()
        with self._lock:
            row = self._fresh.get((int(now // HOUR_S), job))
            if row is None:
                row = _Row(submitter=clean(submitter, 100), name=clean(name, 100), kind=clean(kind, 40))
                self._fresh[int(now // HOUR_S), job] = row
            row.tasks += 1
            row.seconds += seconds
            row.core_seconds += seconds * cores
            if not 0.0 <= now - self._flushed_at < FLUSH_S:  # or the clock was set back
                self._flush(now)

    def flush(self) -> None:
        """Write what is only in memory."""
        with self._lock:
            self._flush(self._clock())

    def since(self, at: float) -> Sum:
        """All work since a wall time, to the hour."""
        rows = self._read(
            "SELECT coalesce(sum(tasks), 0), coalesce(sum(seconds), 0), coalesce(sum(core_seconds), 0)"
            " FROM ran WHERE hour >= ?", (int(at // HOUR_S),),
        )  # fmt: skip
        if not rows:
            return Sum()
        tasks, seconds, core_seconds = rows[0]
        return Sum(tasks=tasks, seconds=seconds, watt_hours=_watt_hours(core_seconds))

    def jobs_since(self, at: float, limit: int = 20) -> list[Ran]:
        """The jobs that took most time since then."""
        rows = self._read(
            "SELECT job, max(submitter), max(name), max(kind), sum(tasks), sum(seconds), sum(core_seconds)"
            " FROM ran WHERE hour >= ? GROUP BY job ORDER BY sum(seconds) DESC LIMIT ?", (int(at // HOUR_S), limit),
        )  # fmt: skip
        return [
            Ran(job=job, submitter=submitter, name=name, kind=kind, tasks=tasks, seconds=seconds,
                watt_hours=_watt_hours(core_seconds))
            for job, submitter, name, kind, tasks, seconds, core_seconds in rows
        ]  # fmt: skip

    def hours(self, count: int = 24) -> list[float]:
        """Seconds of work in each of the last hours, oldest first."""
        last = int(self._clock() // HOUR_S)
        rows = dict(self._read("SELECT hour, sum(seconds) FROM ran WHERE hour > ? GROUP BY hour", (last - count,)))
        return [float(rows.get(hour, 0.0)) for hour in range(last - count + 1, last + 1)]

    def _read(self, query: str, values: tuple[int, ...]) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            self._flush(self._clock())
            try:
                with closing(self._open()) as database:
                    return database.execute(query, values).fetchall()
            except (sqlite3.Error, OSError) as error:
                _log.warning("what ran here cannot be read: %s", error)
                return []

    def _flush(self, now: float) -> None:
        self._flushed_at = now
        if not self._fresh:
            return
        try:
            with closing(self._open()) as database, database:
                database.executemany(
                    _ADD,
                    [
                        (hour, job, row.submitter, row.name, row.kind, row.tasks, row.seconds, row.core_seconds)
                        for (hour, job), row in self._fresh.items()
                    ],
                )
                database.execute("DELETE FROM ran WHERE hour < ?", (int(now // HOUR_S) - 24 * KEPT_DAYS,))
        except (sqlite3.Error, OSError) as error:
            if not self._failed:
                _log.warning("what ran here cannot be written now: %s", error)
            self._failed = True
            return
        self._failed = False
        self._fresh.clear()

    def _open(self) -> sqlite3.Connection:
        if not self._file.exists():
            self._file.touch(mode=0o600)
        database = sqlite3.connect(self._file, timeout=5.0)
        database.execute(_TABLE)
        return database


def _watt_hours(core_seconds: float) -> float:
    return core_seconds * WATTS_PER_CORE / HOUR_S


def duration(seconds: float) -> str:
    """Like `3 h 20 min`, `4 min`, `12 s`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def energy(watt_hours: float) -> str:
    """Like `about 12 Wh`."""
    if watt_hours >= 1000:
        return f"about {watt_hours / 1000:.1f} kWh"
    return f"about {watt_hours:.0f} Wh" if watt_hours >= 10 else f"about {watt_hours:.1f} Wh"


def bars(values: list[float], full: float) -> str:
    """A plot of one line: eight heights, of `full`."""
    heights = " ▁▂▃▄▅▆▇█"
    return "".join(heights[0 if value <= 0 else min(8, 1 + int(7 * value / full))] for value in values)
