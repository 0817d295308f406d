"""Memory and SQLite are twins: any history leaves both with the same answers, and the invariants of durability hold."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from moregpu.coordinator import transitions
from moregpu.coordinator.store.durable import BookStore
from moregpu.coordinator.store.protocol import Lease, TaskRow
from moregpu.errors import Conflict, MoreGPUError
from moregpu.jobs import JOB_ENDED, JobState, TaskState
from moregpu.wire.api import Problem
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import Pool

WORKERS = ["w-1", "w-2", "w-3"]
workers = st.sampled_from(WORKERS)
numbers = st.integers(0, 30)
PROBLEM = Problem(type="about:moregpu/job-failed", title="x", status=200)


class Twins(RuleBasedStateMachine):
    """Every step runs on both; entropy and clock are alike, so every row must be."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.pools = [Pool("memory", Path(self.folder.name)), Pool("sqlite", Path(self.folder.name))]
        for pool in self.pools:
            self.loop.run_until_complete(pool.open(keep_ended=1))
        self.jobs: list[str] = []
        self.leases: list[Lease] = []
        self.votes: dict[bytes, Any] = {}
        self.accepted: dict[str, tuple[Lease, Any]] = {}
        self.ended: dict[str, JobState] = {}
        self.revoked: set[str] = set()

    def teardown(self) -> None:
        for pool in self.pools:
            self.loop.run_until_complete(pool.store.close())
        self.loop.close()
        self.folder.cleanup()

    def both(self, step: Any) -> Any:
        """Run a step on both stores; their answers, or errors, are the same."""
        answers: list[Any] = []
        for pool in self.pools:
            try:
                answers.append(self.loop.run_until_complete(step(pool)))
            except MoreGPUError as error:
                answers.append((type(error), error.detail))
        assert answers[0] == answers[1]
        return answers[0]

    # ---- steps

    @rule(grains=st.integers(1, 4), who=st.sampled_from(["alice", "bob"]), key=st.integers(0, 3), after=numbers,
          priority=st.integers(-1, 1), told=st.booleans())  # fmt: skip
    def submit(self, grains: int, who: str, key: int, after: int, priority: int, told: bool) -> None:
        dependency = (self.jobs[after],) if after < len(self.jobs) else ()
        row = rows.job(
            grains=grains, submitter=who, key=str(key) if key else "", after=dependency, priority=priority, retries=2,
            inputs=(rows.blob(key),),
        )  # fmt: skip
        added = self.both(lambda pool: pool.store.add_job(row, told=told))
        if not isinstance(added, tuple) and added.id not in self.jobs:
            self.jobs.append(added.id)

    @rule(worker=workers, slots=st.integers(0, 5))
    def lease(self, worker: str, slots: int) -> None:
        leases = self.both(lambda pool: pool.lease(worker, slots))
        assert len(leases) <= slots
        assert not leases or worker not in self.revoked
        self.leases += leases

    @rule(worker=workers, pick=numbers)
    def lease_again(self, worker: str, pick: int) -> None:
        if pick < len(self.leases):
            task = self.leases[pick].task.id
            lease = self.both(lambda pool: pool.lease_again(worker, task))
            assert lease is None or worker not in self.revoked
            self.leases += [lease] if lease is not None else []

    @rule(worker=workers, picks=st.lists(numbers, min_size=1, max_size=2), last=st.booleans())
    def vote(self, worker: str, picks: list[int], last: bool) -> None:
        leases = [self.leases[pick] for pick in picks if pick < len(self.leases)]
        for lease, answer in zip(leases, self.both(lambda pool: pool.vote(worker, *leases, last=last)), strict=True):
            if answer.verdict == "accepted" and lease.task.id not in self.accepted:
                self.votes.setdefault(lease.ref.token, answer.ledger)
                assert self.votes[lease.ref.token] == answer.ledger, "a vote is kept once, with one receipt"

    @rule(worker=workers, picks=st.lists(numbers, min_size=1, max_size=4), whole=st.booleans())
    def accept(self, worker: str, picks: list[int], whole: bool) -> None:
        leases = [self.leases[pick] for pick in picks if pick < len(self.leases)]
        fields = {"result": rows.manifest()} if whole else {}
        for lease, answer in zip(leases, self.both(lambda pool: pool.accept(worker, *leases, **fields)), strict=True):
            if answer.verdict == "accepted" and lease.ref.token not in self.votes:
                assert lease.task.attempts[lease.attempt - 1].worker == worker
                earlier = self.accepted.setdefault(lease.task.id, (lease, answer.ledger))
                assert earlier == (lease, answer.ledger), "a task is accepted once, with one receipt"

    @rule(worker=workers, pick=numbers, final=st.booleans())
    def fail(self, worker: str, pick: int, final: bool) -> None:
        if pick < len(self.leases):
            self.both(lambda pool: pool.fail(worker, self.leases[pick], final=final))

    @rule(worker=workers, picks=st.lists(numbers, max_size=4))
    def renew(self, worker: str, picks: list[int]) -> None:
        refs = [self.leases[pick].ref for pick in picks if pick < len(self.leases)]
        self.both(lambda pool: pool.store.renew(worker, refs, pool.clock.now))

    @rule(worker=workers, picks=st.lists(numbers, max_size=3))
    def hand_back(self, worker: str, picks: list[int]) -> None:
        refs = [self.leases[pick].ref for pick in picks if pick < len(self.leases)]
        self.both(lambda pool: pool.store.hand_back(worker, refs, pool.clock.epoch, untouched=True))

    @rule(worker=workers, picks=st.lists(numbers, max_size=2))
    def release(self, worker: str, picks: list[int]) -> None:
        keep = [self.leases[pick].ref for pick in picks if pick < len(self.leases)]
        self.both(lambda pool: pool.store.release(worker, keep, pool.clock.now, pool.clock.epoch))

    @rule(seconds=st.sampled_from([1.0, 11.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        for pool in self.pools:
            pool.clock.forward(seconds)
        reaped = self.both(lambda pool: pool.store.reap(pool.clock.now, pool.clock.epoch))
        assert len({ref.task for ref in reaped}) == len(reaped)

    @rule(pick=numbers)
    def cancel(self, pick: int) -> None:
        if pick < len(self.jobs):
            self.both(lambda pool: pool.store.cancel(self.jobs[pick], pool.clock.epoch))

    @rule(good=st.booleans())
    def combine(self, good: bool) -> None:
        for job in self.both(lambda pool: pool.store.ready_jobs()):
            fields = {} if good else {"result": None, "error": PROBLEM}
            self.both(lambda pool, job=job, fields=fields: pool.finish(job, **fields))

    @rule(pick=numbers)
    def purge(self, pick: int) -> None:
        if pick < len(self.jobs):
            answer = self.both(lambda pool: pool.store.purge(self.jobs[pick]))
            assert isinstance(answer, tuple) == (self.jobs[pick] not in self.ended)
            assert not isinstance(answer, tuple) or answer[0] is Conflict

    @rule(worker=workers)
    def revoke(self, worker: str) -> None:
        if len(self.revoked) < 1:
            self.revoked.add(worker)
            self.both(lambda pool: pool.store.save_worker(rows.worker_row(worker, revoked=True)))

    @rule()
    def restart(self) -> None:
        for pool in self.pools:
            self.loop.run_until_complete(pool.restart(keep_ended=1))

    @rule(worker=workers)
    def a_full_disk_takes_back_all_that_was_not_told(self, worker: str) -> None:
        before = [self.loop.run_until_complete(all_rows(pool.store)) for pool in self.pools]
        self.both(settled)
        for pool in self.pools:
            pool.fill_disk(full=True)
        # SQLite finds room for small rows in pages that it has: so the step is one that surely has none.
        for pool in self.pools:
            connection = getattr(pool.store, "_sqlite", None)
            if connection is not None:
                connection._write.execute("PRAGMA query_only = ON")
            leases = self.loop.run_until_complete(pool.lease(worker, 3))
            try:
                self.loop.run_until_complete(pool.store.set_setting("x", "y"))
                raise AssertionError("the disk is full")
            except MoreGPUError:
                pass
            if connection is not None:
                connection._write.execute("PRAGMA query_only = OFF")
            pool.fill_disk(full=False)
            assert [answer.verdict for answer in self.loop.run_until_complete(pool.accept(worker, *leases))] == [
                "fenced"
            ] * len(leases)
        after = [self.loop.run_until_complete(all_rows(pool.store)) for pool in self.pools]
        assert after == before
        for pool in self.pools:  # whose turn it is went on; a restart makes both alike again
            self.loop.run_until_complete(pool.restart(keep_ended=1))

    # ---- what always holds

    @invariant()
    def both_know_the_same_and_the_invariants_hold(self) -> None:
        known = self.both(lambda pool: all_rows(pool.store))
        leased: dict[str, int] = {}
        for job, tasks in known.values():
            assert self.ended.setdefault(job.id, job.state) == job.state if job.state in JOB_ENDED else True
            assert job.id not in self.ended or job.state in JOB_ENDED
            done = [task for task in tasks if task.state is TaskState.DONE]
            assert {task.id for task in done} == {id for id in self.accepted if any(t.id == id for t in tasks)}
            assert job.tasks_done == len(done) == sum(job.evidence.values())
            assert job.grains_done == sum(stop - start for task in done for start, stop in [task.spec.grains])
            assert [task.number for task in tasks] == list(range(job.tasks_total))
            assert [task.spec.grains[0] for task in tasks] == starts(tasks)
            for task in tasks:
                assert job.state not in JOB_ENDED or task.state not in (TaskState.WAITING, TaskState.LEASED)
                if task.state is TaskState.LEASED:
                    assert task.worker is not None
                for lease in transitions.leases_of(task):
                    leased[lease.worker] = leased.get(lease.worker, 0) + 1
        for pool in self.pools:
            index = pool.store._book.index
            assert {who: len(tasks) for who, tasks in index.leased_by.items()} == leased
        assert self.pools[0].store.has_ready_work() == self.pools[1].store.has_ready_work()

    @invariant()
    def the_ledger_is_one_chain_of_what_was_accepted(self) -> None:
        ledger = self.both(lambda pool: pool.store.ledger())
        assert [row.row for row in ledger] == list(range(1, len(ledger) + 1))
        assert all(row.previous == before.hash for before, row in itertools.pairwise(ledger))
        receipts = {receipt for _, receipt in self.accepted.values()} | set(self.votes.values())
        assert {(row.writer, row.row, row.hash) for row in ledger} == receipts
        assert len(ledger) == len(self.accepted) + len(self.votes)

    @invariant()
    def every_event_was_told_once_in_order(self) -> None:
        self.both(settled)
        for pool in self.pools:
            assert [event.seq for event in pool.events] == list(range(1, len(pool.events) + 1))
        assert self.pools[0].events == self.pools[1].events


async def settled(pool: Pool) -> None:
    await pool.store.settle()


async def all_rows(store: BookStore) -> dict[str, tuple[Any, list[TaskRow]]]:
    return {
        job.id: (job, [without_times(task) for task in await store.tasks(job.id)])
        for job in await store.jobs(limit=10_000)
    }


def without_times(task: TaskRow) -> TaskRow:
    """As it is on the disk: when leases end is not kept there."""
    rival = task.rival if task.rival is None else replace(task.rival, expires=0.0)
    return replace(task, expires=0.0, rival=rival)


def starts(tasks: list[TaskRow]) -> list[int]:
    """Where each task begins when they follow one another without a gap."""
    ends = [0, *(task.spec.grains[1] for task in tasks)]
    return ends[: len(tasks)]


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
