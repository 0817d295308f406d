"""Whether a process that says nothing gets a core at all: who is starved by others does not hang."""

from __future__ import annotations

from pathlib import Path


class Starvation:
    """How long a process was ready, and others ran: what `look` sees from one call to the next.

    The kernel counts a thread's wait for a core only once it is over, so states are looked at: a thread that is ready
    ("R") at two looks and hardly ran between them waited. One that spins runs, one that a driver holds is not ready.
    Tells nothing (0) where there is no such book (other systems than Linux).
    """

    def __init__(self, pid: int, now: float):
        self._threads = Path(f"/proc/{pid}/task")
        self._at, self._ran_s = now, self._ready()
        self.total_s = 0.0

    def look(self, now: float) -> float:
        """Look; returns `total_s`."""
        ready = self._ready()
        waits_s = (now - self._at - (ran_s - self._ran_s[each]) for each, ran_s in ready.items() if each in self._ran_s)
        self.total_s += max(0.0, max(waits_s, default=0.0))
        self._at, self._ran_s = now, ready
        return self.total_s

    def _ready(self) -> dict[str, float]:
        """Seconds that each thread ran which is ready now."""
        found: dict[str, float] = {}
        try:
            for thread in self._threads.iterdir():
                if (thread / "stat").read_text().rpartition(") ")[2].startswith("R"):
                    found[thread.name] = int((thread / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, LookupError, ValueError):  # another system; a process that has just ended
            pass
        return found
