"""Which work is ready, leased, or done: indices over job and task rows that follow every change, and its undoing."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from moregpu.coordinator.store.protocol import Candidate, JobRow, TaskRow
from moregpu.coordinator.transitions import is_ready
from moregpu.jobs import JOB_ENDED, JobState, TaskState

MAX_WAITING_SHOWN = 1024
"""Waiting tasks of one job that `choose` sees at once: bounds the work of one lease."""

Rank = tuple[int, float, str]  # −priority, time of birth, id: the order of a submitter's jobs


class WorkIndex:
    """Keeps up with `job` and `task` rows; both mappings are the tables' own rows, read only."""

    def __init__(self, jobs: Mapping[str, JobRow], tasks: Mapping[str, TaskRow]):
        self._jobs = jobs
        self._tasks = tasks
        self.tasks_of: dict[str, dict[int, str]] = {}
        """Job → number → task id."""
        self.leased_by: dict[str, set[str]] = {}
        """Worker → its leased tasks."""
        self.complete: set[str] = set()
        """Jobs whose grains are all accepted and that are not ended."""
        self.by_key: dict[tuple[str, str], str] = {}
        """(submitter, idempotency key) → job, of the jobs in memory."""
        self.followers: dict[str, set[str]] = {}
        """Job → jobs that wait for its end."""
        self._waiting: dict[str, set[str]] = {}
        self._ready: dict[str, list[Rank]] = {}
        self._ranks: dict[str, tuple[str, Rank]] = {}  # job → submitter, rank: those that are in `_ready`
        self._turn: dict[str, None] = {}  # submitters in the order of their last lease, longest ago first
        self._expiring: list[tuple[float, str]] = []

    # ---- following changes

    def watch_job(self, old: JobRow | None, new: JobRow | None) -> None:
        """A job row changed."""
        row = new or old
        if row is None:
            return
        if (old is None) != (new is None):
            self._born_or_gone(row, born=new is not None)
        if new is not None and is_ready(new):
            self.complete.add(row.id)
        else:
            self.complete.discard(row.id)
        self._rank(row.id)
        if old is None or new is None or old.state is not new.state:
            for follower in self.followers.get(row.id, ()):
                self._rank(follower)

    def watch_task(self, old: TaskRow | None, new: TaskRow | None) -> None:
        """A task row changed."""
        row = new or old
        if row is None:
            return
        if old is None:
            self.tasks_of.setdefault(row.job, {})[row.number] = row.id
        elif new is None:
            numbers = self.tasks_of.get(row.job, {})
            numbers.pop(row.number, None)
            if not numbers:
                self.tasks_of.pop(row.job, None)
        if old is not None and old.state is TaskState.LEASED and old.worker is not None:
            _discard(self.leased_by, old.worker, row.id)
        if new is not None and new.state is TaskState.LEASED and new.worker is not None:
            self.leased_by.setdefault(new.worker, set()).add(row.id)
            if old is None or old.state is not TaskState.LEASED or old.token != new.token:
                heapq.heappush(self._expiring, (new.expires, row.id))
        waits = new is not None and new.state is TaskState.WAITING
        if waits:
            self._waiting.setdefault(row.job, set()).add(row.id)
        else:
            _discard(self._waiting, row.job, row.id)
        if waits or (old is not None and old.state is TaskState.WAITING):
            self._rank(row.job)

    def _born_or_gone(self, row: JobRow, *, born: bool) -> None:
        if row.idempotency_key:
            if born:
                self.by_key[row.submitter, row.idempotency_key] = row.id
            else:
                self.by_key.pop((row.submitter, row.idempotency_key), None)
        for dependency in row.spec.after:
            if born:
                self.followers.setdefault(dependency, set()).add(row.id)
            else:
                _discard(self.followers, dependency, row.id)

    def _rank(self, id: str) -> None:
        job = self._jobs.get(id)
        ready = (
            job is not None
            and job.state not in JOB_ENDED
            and (job.cursor < job.plan.grains or id in self._waiting)
            and not self.blocked_by(job)
        )
        known = self._ranks.get(id)
        if job is not None and ready and known is None:
            rank = (-job.spec.priority, job.created_at, id)
            self._ranks[id] = job.submitter, rank
            insort(self._ready.setdefault(job.submitter, []), rank)
            self._turn.setdefault(job.submitter)
        elif not ready and known is not None:
            del self._ranks[id]
            submitter, rank = known
            ranks = self._ready[submitter]
            del ranks[bisect_left(ranks, rank)]
            if not ranks:
                del self._ready[submitter]

    # ---- asking

    def blocked_by(self, job: JobRow) -> list[str]:
        """Jobs that `job` waits for. One that is not in memory is done: else `job` would have failed with it."""
        return [
            id for id in job.spec.after if (row := self._jobs.get(id)) is not None and row.state is not JobState.DONE
        ]

    def has_ready_work(self) -> bool:
        """Whether anything could be leased."""
        return bool(self._ready)

    def submitters(self) -> Sequence[str]:
        """Those with ready work, longest without a lease first."""
        return [submitter for submitter in self._turn if submitter in self._ready]

    def of(self, submitter: str) -> Iterator[Candidate]:
        """Their jobs, highest priority and oldest first; nothing may change while this is walked."""
        for _, _, id in self._ready.get(submitter, ()):
            job = self._jobs[id]
            ids = islice(self._waiting.get(id, ()), MAX_WAITING_SHOWN)
            waiting = sorted((self._tasks[task] for task in ids), key=lambda task: task.number)
            yield Candidate(job=job, waiting=tuple(waiting))

    def served(self, submitter: str) -> None:
        """The submitter got a lease: it goes to the end of the round."""
        self._turn.pop(submitter, None)
        if submitter in self._ready:
            self._turn[submitter] = None

    def expired(self, now: float) -> Iterator[TaskRow]:
        """Leased tasks past their time. A renewal does not touch the heap: what was renewed goes back into it here."""
        while self._expiring and self._expiring[0][0] <= now:
            _, id = heapq.heappop(self._expiring)
            task = self._tasks.get(id)
            if task is None or task.state is not TaskState.LEASED:
                continue
            if task.expires > now:
                heapq.heappush(self._expiring, (task.expires, id))
            else:
                yield task

    def requeue(self, task: TaskRow) -> None:
        """Watch a lease that `expired` gave out but that goes on after all."""
        heapq.heappush(self._expiring, (task.expires, task.id))

    def leased(self) -> Iterator[TaskRow]:
        """Every leased task."""
        for ids in self.leased_by.values():
            for id in ids:
                yield self._tasks[id]

    def tasks(self, job: str) -> list[TaskRow]:
        """A job's tasks in the order they were cut."""
        return [self._tasks[id] for _, id in sorted(self.tasks_of.get(job, {}).items())]

    def facts(self) -> dict[str, object]:
        """What the indices say, comparable: an index built anew from the rows must say the same."""
        return {
            "tasks_of": self.tasks_of,
            "leased_by": self.leased_by,
            "complete": self.complete,
            "by_key": self.by_key,
            "followers": self.followers,
            "waiting": self._waiting,
            "ready": self._ready,
        }


def _discard(sets: dict[str, set[str]], key: str, value: str) -> None:
    values = sets.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del sets[key]
