"""Which work is ready, leased, or done: indices over job and task rows that follow every change, and its undoing."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from moregpu.coordinator.fairness import Turns, rank_s
from moregpu.coordinator.fitting import FitClass, fit_class
from moregpu.coordinator.store.protocol import Candidate, Fits, JobRow, TaskRow, Turn
from moregpu.coordinator.transitions import is_ready, leases_of
from moregpu.jobs import JOB_ENDED, JobState, TaskState

MAX_WAITING_SHOWN = 1024
"""Waiting tasks of one job that `choose` sees at once: bounds the work of one lease."""

TAIL = 0.75
"""A job is in its tail when this part of it is done and nothing of it is left to hand out."""

Rank = tuple[float, str]  # birth moved by priority, id: the order of a submitter's jobs
Class = tuple[FitClass, frozenset[str]]  # what workers, and which owners may not


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
        self._ready: dict[str, dict[Class, Ranks]] = {}
        self._ranks: dict[str, tuple[str, Class, Rank]] = {}  # job → where it is in `_ready`
        self._expiring: list[tuple[float, str, bytes]] = []
        self.turns = Turns()
        self.shares: Mapping[str, float] = {}
        """Each submitter's share of the pool, where it is not 1."""
        self.alive: dict[str, int] = {}
        """Submitter → jobs that have not ended."""
        self.calls: dict[str, int] = {}
        """Submitter → calls of functions in these jobs."""
        self.tails: set[str] = set()
        """Jobs that are nearly done, all their last tasks leased."""
        self.version = 0
        """Counts whatever became ready."""

    # ---- following changes

    def watch_job(self, old: JobRow | None, new: JobRow | None) -> None:
        """A job row changed."""
        row = new or old
        if row is None:
            return
        if old is None or new is None:
            self._born_or_gone(row, born=new is not None)
        if new is not None and is_ready(new):
            self.complete.add(row.id)
        else:
            self.complete.discard(row.id)
        self._rank(row.id)
        if old is None or new is None or old.state is not new.state:
            _count(self.alive, row.submitter, _is_alive(new) - _is_alive(old))
            _count(self.calls, row.submitter, _calls_alive(new) - _calls_alive(old))
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
        self._watch_leases(row.id, old, new)
        waits = new is not None and new.state is TaskState.WAITING
        if waits:
            self._waiting.setdefault(row.job, set()).add(row.id)
            self.version += 1
        else:
            _discard(self._waiting, row.job, row.id)
        if waits or (old is not None and old.state is TaskState.WAITING):
            self._rank(row.job)

    def forget(self, job: JobRow) -> list[str]:
        """An ended job leaves memory; gives the ids of its tasks.

        As if `watch_job` and `watch_task` had seen its rows go; but of an ended job nothing is ready, leased or alive,
        and one leaves for every job that ends.
        """
        self._born_or_gone(job, born=False)
        return list(self.tasks_of.pop(job.id, {}).values())

    def _watch_leases(self, id: str, old: TaskRow | None, new: TaskRow | None) -> None:
        was = old is not None and old.state is TaskState.LEASED
        now = new is not None and new.state is TaskState.LEASED
        if not was and not now:
            return
        if (old is None or old.rival is None) and (new is None or new.rival is None):  # one lease, as nearly always
            self._watch_lease(id, old if was else None, new if now else None)
            return
        before = {lease.token: lease for lease in leases_of(old)} if old is not None and was else {}
        for lease in before.values():
            _discard(self.leased_by, lease.worker, id)
        for lease in () if new is None else leases_of(new):
            self.leased_by.setdefault(lease.worker, set()).add(id)
            if lease.token not in before:
                heapq.heappush(self._expiring, (lease.expires, id, lease.token))

    def _watch_lease(self, id: str, old: TaskRow | None, new: TaskRow | None) -> None:
        """The same of a task that was, or is, leased to one worker."""
        if old is not None and old.worker is not None:
            _discard(self.leased_by, old.worker, id)
        if new is not None and new.worker is not None:
            self.leased_by.setdefault(new.worker, set()).add(id)
            if old is None or old.token != new.token:
                heapq.heappush(self._expiring, (new.expires, id, new.token))

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
        if job is None or not ready:
            self._unrank(id)
        else:
            self._enrank(job)
        if job is not None and self._is_tail(job):
            self.tails.add(id)
        else:
            self.tails.discard(id)

    def _enrank(self, job: JobRow) -> None:
        known = self._ranks.get(job.id)
        rank = (rank_s(job.created_at, job.spec.priority), job.id)
        if known is not None and known[2] == rank and not _needs_agreement(job):
            return  # all that its class is made of stays as it was
        wanted = (fit_class(job), self._barred(job))
        if known is not None:
            if known[1:] == (wanted, rank):
                return
            self._unrank(job.id)
        self._ranks[job.id] = job.submitter, wanted, rank
        classes = self._ready.get(job.submitter)
        if classes is None:
            classes = self._ready[job.submitter] = {}
            self.turns.enter(job.submitter)
        ranks = classes.get(wanted)
        if ranks is None:
            ranks = classes[wanted] = Ranks()
        ranks.add(rank)
        self.version += 1

    def _unrank(self, id: str) -> None:
        known = self._ranks.pop(id, None)
        if known is None:
            return
        submitter, of_class, rank = known
        classes = self._ready[submitter]
        ranks = classes[of_class]
        ranks.remove(rank)
        if not ranks:
            del classes[of_class]
        if not classes:
            del self._ready[submitter]
            self.turns.leave(submitter)

    def _barred(self, job: JobRow) -> frozenset[str]:
        """Owners that may take none of a job's ready tasks: all wait for a word of somebody else."""
        if not _needs_agreement(job) or job.cursor < job.plan.grains:
            return frozenset()
        owners = [{vote.owner for vote in self._tasks[id].votes} for id in self._waiting.get(job.id, ())]
        return frozenset(set.intersection(*owners)) if owners else frozenset()

    def _is_tail(self, job: JobRow) -> bool:
        if job.state is not JobState.RUNNING or job.cursor < job.plan.grains or job.id in self._waiting:
            return False
        nearly = job.grains_done >= TAIL * job.plan.grains or job.tasks_total - job.tasks_done == 1
        return nearly and 0 < job.grains_done < job.plan.grains and not _needs_agreement(job)

    # ---- asking

    def blocked_by(self, job: JobRow) -> list[str]:
        """Jobs that `job` waits for. One that is not in memory is done: else `job` would have failed with it."""
        return [
            id for id in job.spec.after if (row := self._jobs.get(id)) is not None and row.state is not JobState.DONE
        ]

    def has_ready_work(self) -> bool:
        """Whether anything could be leased."""
        return bool(self._ready)

    def ready_count(self) -> int:
        """How many jobs have something to lease."""
        return len(self._ranks)

    def needs_ready(self, submitter: str) -> int:
        """How many classes the ready jobs of a submitter are of."""
        return len({fit for fit, _ in self._ready.get(submitter, ())})

    def submitters(self) -> Sequence[str]:
        """Those with ready work, longest without a lease first."""
        return self.turns.in_order()

    def turn(self, submitter: str) -> Turn:
        """Where one of them stands in the round."""
        return Turn(self.turns.at(submitter), self.shares.get(submitter, 1.0))

    def of(self, submitter: str, fits: Fits | None = None) -> Iterator[Candidate]:
        """Their jobs, highest priority and oldest first; nothing may change while this is walked."""
        queues = [
            ranks
            for (_, barred), ranks in self._ready.get(submitter, {}).items()
            if fits is None or fits(self._jobs[ranks.first[1]], barred)
        ]
        for _, id in queues[0] if len(queues) == 1 else heapq.merge(*queues):
            job = self._jobs[id]
            ids = islice(self._waiting.get(id, ()), MAX_WAITING_SHOWN)
            waiting = sorted((self._tasks[task] for task in ids), key=lambda task: task.number)
            yield Candidate(job=job, waiting=tuple(waiting))

    def served(self, submitter: str, seconds: float) -> None:
        """The submitter got a lease."""
        self.turns.served(submitter, seconds, self.shares.get(submitter, 1.0))

    def expired(self, now: float) -> Iterator[tuple[TaskRow, bytes]]:
        """Tasks, each with the token of a lease that is past its time.

        A renewal does not touch the heap: what was renewed goes back into it here.
        """
        while self._expiring and self._expiring[0][0] <= now:
            _, id, token = heapq.heappop(self._expiring)
            task = self._tasks.get(id)
            lease = None if task is None else next((each for each in leases_of(task) if each.token == token), None)
            if task is None or lease is None:
                continue
            if lease.expires > now:
                heapq.heappush(self._expiring, (lease.expires, id, token))
            else:
                yield task, token

    def leased(self) -> Iterator[TaskRow]:
        """Every leased task."""
        for id in {id for ids in self.leased_by.values() for id in ids}:
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
            "ready": {
                submitter: {of_class: list(ranks) for of_class, ranks in classes.items()}
                for submitter, classes in self._ready.items()
            },
            "alive": self.alive,
            "tails": self.tails,
        }


class Ranks:
    """Ranks in order. Most leave at the front, and most come at the end: neither moves ten thousand others."""

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._begin = 0  # those before it have left

    def __bool__(self) -> bool:
        return self._begin < len(self._ranks)

    def __iter__(self) -> Iterator[Rank]:
        return map(self._ranks.__getitem__, range(self._begin, len(self._ranks)))

    @property
    def first(self) -> Rank:
        """The lowest."""
        return self._ranks[self._begin]

    def add(self, rank: Rank) -> None:
        """Put one in its place."""
        insort(self._ranks, rank, self._begin)

    def remove(self, rank: Rank) -> None:
        """Take one out that is there."""
        at = bisect_left(self._ranks, rank, self._begin)
        if at > self._begin:
            del self._ranks[at]
            return
        self._begin += 1
        if 2 * self._begin > len(self._ranks) + 32:
            del self._ranks[: self._begin]
            self._begin = 0


def _discard(sets: dict[str, set[str]], key: str, value: str) -> None:
    values = sets.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del sets[key]


def _is_alive(job: JobRow | None) -> int:
    return job is not None and job.state not in JOB_ENDED


def _calls_alive(job: JobRow | None) -> int:
    """Of a submitter's own code a grain is a call."""
    return job.plan.grains if job is not None and job.state not in JOB_ENDED and job.plan.needs.own_code else 0


def _count(counts: dict[str, int], submitter: str, change: int) -> None:
    if change:
        count = counts.get(submitter, 0) + change
        if count:
            counts[submitter] = count
        else:
            del counts[submitter]


def _needs_agreement(job: JobRow) -> bool:
    return job.spec.check == "agree"
