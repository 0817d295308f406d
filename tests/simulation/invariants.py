"""What must hold, whatever goes wrong: the invariants of `docs/durability.md`, as small predicates over rows.

Each returns what is broken in words, or "". `Watch` applies them: to every step of the store as it happens, to every
commit as it reaches the disk, to everything that is told to somebody, and to the pool as a whole at every look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from moregpu.coordinator import ledger
from moregpu.coordinator.limits import MAX_JUDGING
from moregpu.coordinator.scheduler import MAX_SLOTS, fits, may_take
from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.protocol import Completed, FleetWorker, JobRow, Lease, LedgerRow, TaskRow, WorkerRow
from moregpu.coordinator.store.table import Change, Transaction
from moregpu.jobs import JOB_ENDED, AttemptState, JobState, TaskState
from moregpu.wire.messages import Assignment
from moregpu.workloads.arrays import as_bytes
from tests.simulation.calls import Runs

if TYPE_CHECKING:
    from tests.simulation.history import History

STARVED_S = 5.0
"""A waiting task with a fitting free worker starts within this (5)."""

MAX_SEEN = 4096


# ---- predicates over one change --------------------------------------------------------------------------------------


def ends_once(old: JobRow | None, new: JobRow | None) -> str:
    """1. An ended job never leaves its end state, and is not forgotten."""
    if old is None or old.state not in JOB_ENDED:
        return ""
    if new is None or new.state is not old.state:
        return f"1: {old.id} was {old.state} and is now {'gone' if new is None else new.state}"
    return ""


def counts_grains(new: JobRow | None) -> str:
    """2. No grain counts twice, and a job is done only when all of them are."""
    if new is None:
        return ""
    if new.grains_done > new.plan.grains or new.tasks_done > new.tasks_total:
        return f"2: {new.id} counts {new.grains_done} of {new.plan.grains} grains, {new.tasks_done} tasks done"
    if new.state is JobState.DONE and new.grains_done != new.plan.grains:
        return f"2: {new.id} is done with {new.grains_done} of {new.plan.grains} grains"
    return ""


def accepted_once(old: TaskRow | None, new: TaskRow | None) -> str:
    """2. A task is done by one attempt, which was out when its result came; its output stays what it was.

    Where two owners had to agree, the votes that did are accepted with it.
    """
    if new is None:
        return ""
    accepted = [attempt.number for attempt in new.attempts if attempt.state is AttemptState.ACCEPTED]
    voted = {vote.attempt for vote in new.votes}
    results = [number for number in accepted if number not in voted]
    if len(results) > 1 or (voted and results and not set(accepted) <= voted | set(results)):
        return f"2: attempts {accepted} of {new.id} were all accepted"
    if bool(results) != (new.state is TaskState.DONE):
        return f"2: {new.id} is {new.state} with accepted attempts {accepted}"
    if old is not None and old.state is TaskState.DONE and old.outputs != new.outputs and new.outputs:
        return f"2: the accepted output of {new.id} was replaced"
    if old is not None and results and old.state is not TaskState.DONE:
        tokens = {old.token, *((old.rival.token,) if old.rival is not None else ())}
        if new.attempts[results[0] - 1].token not in tokens:
            return f"3: attempt {results[0]} of {new.id} was accepted after it was over"
    return ""


def follows(head: tuple[int, bytes], row: LedgerRow) -> str:
    """7. A ledger row follows the head of its chain."""
    if (row.row - 1, row.previous) != head:
        return f"7: ledger row {row.row} does not follow row {head[0]}"
    if row.hash != ledger._hash_of(row):
        return f"7: ledger row {row.row} is not what its hash says"
    return ""


def is_of_its_holder(row: LedgerRow, task: TaskRow | None) -> str:
    """3. What is in the ledger is an attempt of the worker that held it, and did not fail or end before."""
    if task is None:
        return f"3: ledger row {row.row} is about {row.task}, which is not on the disk"
    attempt = task.attempts[row.attempt - 1]
    voted = row.attempt in {vote.attempt for vote in task.votes}
    good = voted or (attempt.state is AttemptState.ACCEPTED and attempt.token == task.token)
    if attempt.worker != row.worker or not good:
        return f"3: ledger row {row.row} is of {row.worker}'s attempt {row.attempt}; {row.task} says {attempt}"
    return ""


def written_once(rows: Mapping[int, int], task: TaskRow) -> str:
    """2. A task's results are in the ledger once: its votes, and the one that ended it. `rows`: attempt → row."""
    if len(rows) > len(task.votes) + (task.state is TaskState.DONE):
        return f"2: {task.id} is {task.state} with {len(task.votes)} votes, and is in the ledger at rows {sorted(rows)}"
    return ""


def revoked_for_good(old: WorkerRow | None, new: WorkerRow | None) -> str:
    """3. A revocation is never taken back."""
    if old is not None and old.revoked and (new is None or not new.revoked):
        return f"3: {old.id} was revoked and is let in again"
    return ""


# ---- the watch -------------------------------------------------------------------------------------------------------


class Watch:
    """Knows what was promised to whom, across all lives of the coordinator."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.problems: list[str] = []
        self.seen: list[Assignment] = []
        """Every assignment that any worker got."""
        self.steps = 0
        self.commits = 0
        self.accepted_tasks = 0
        self.told_jobs: dict[str, tuple[JobState | None, float]] = {}
        """Jobs that somebody was told of, and their end state where that was told too, and when."""
        self.ended: dict[str, JobState] = {}
        """As committed."""
        self.ledger_of: dict[str, dict[int, int]] = {}
        """Task → attempt → row in the ledger, as committed."""
        self.head: tuple[int, bytes] = (0, ledger.GENESIS)
        self.revoked: set[str] = set()
        """As committed."""
        self.given: dict[tuple[str, int], tuple[str, bytes]] = {}
        """(task, attempt) → (worker, token) of every lease."""
        self.lies: set[bytes] = set()
        """Digests of wrong outputs that somebody handed in."""
        self.starving_since: dict[str, float] = {}
        self.runs = Runs(history)
        """9. Calls that were begun."""

    def broken(self, problem: str) -> None:
        """Something must not be so. The history ends at its next look."""
        if problem and problem not in self.problems:
            self.problems.append(problem)

    # -- every step

    def stepped(self, book: Book, changes: Sequence[Change]) -> None:
        """The store took a step in memory."""
        self.steps += 1
        for table, _, old, new in changes:
            match table.name:
                case "job":
                    self.broken(ends_once(old, new))
                    self.broken(counts_grains(new))
                case "task":
                    self.broken(accepted_once(old, new))
                    self._note_leases(old, new)
                    if new is not None and new.state is TaskState.DONE and (old is None or old.state is not new.state):
                        self._accepted(book, new)
                case "worker":
                    self.broken(revoked_for_good(old, new))

    def _note_leases(self, old: TaskRow | None, new: TaskRow | None) -> None:
        known = 0 if old is None else len(old.attempts)
        for attempt in () if new is None else new.attempts[known:]:
            self.given[new.id, attempt.number] = (attempt.worker, attempt.token)  # type: ignore[union-attr]

    def _accepted(self, book: Book, task: TaskRow) -> None:
        """3. What was accepted was leased to that worker, under that token, and the worker is not revoked."""
        self.accepted_tasks += 1
        attempt = next(each for each in task.attempts if each.token == task.token)
        row = book.registry.workers.get(attempt.worker)
        if row is None or row.revoked:
            self.broken(f"3: a result of the revoked worker {attempt.worker} was accepted for {task.id}")
        if self.given.get((task.id, attempt.number)) != (attempt.worker, attempt.token):
            self.broken(f"3: attempt {attempt.number} of {task.id} was accepted from {attempt.worker}, not its holder")
        believed = task.evidence is not None and task.evidence.kind == "agreed" and self.history.may_collude
        if task.evidence is not None and task.evidence.checked and self.lies and not believed:
            for name, tensor in task.outputs.items():
                if _lie(task.id, name, self.history.coordinator.plain(tensor)) in self.lies:
                    self.broken(f"a wrong output of {attempt.worker} was accepted for {task.id} as checked")

    def leased(self, book: Book, worker: FleetWorker, slots: int, leases: Sequence[Lease]) -> None:
        """4. Nobody is given more than there was room for."""
        held = len(book.index.leased_by.get(worker.id, ()))
        if len(leases) > slots or held > MAX_SLOTS + MAX_JUDGING:
            self.broken(f"4: {worker.id} got {len(leases)} leases for {slots} slots and holds {held}")

    def completed(self, worker: str, answers: Sequence[Completed]) -> None:
        """3. Only exactly the lease that was given is ever accepted: this task, attempt, token and worker."""
        for answer in answers:
            ref = answer.ref
            if answer.verdict == "accepted" and self.given.get((ref.task, ref.attempt)) != (worker, ref.token):
                self.broken(
                    f"3: a result of {worker} for attempt {ref.attempt} of {ref.task} was accepted, not its own"
                )

    # -- every commit

    def committed(self, transaction: Transaction) -> None:
        """A transaction reached the disk."""
        self.commits += 1
        drive = self.history.coordinator.drive
        revoked: list[str] = []
        for change in transaction.coalesced():
            old, new = change.old, change.new
            match change.table.name:
                case "job":
                    self._job_committed(new)
                case "ledger":
                    self._ledger_committed(new)
                case "worker" if new is not None and new.revoked:
                    revoked.append(new.id)
                case "reference" if new is not None and change.key[0] not in drive.blobs:
                    self.broken(f"6: {change.key[1]} names the blob {change.key[0][:8]}, which is not there")
                case "task" if new is not None and old is not None and old.state is TaskState.DONE:
                    self.broken(accepted_once(old, new))
                case _:
                    pass
        self.revoked.update(revoked)  # what was accepted in the same transaction came before: see `_accepted`
        self.history.trace(f"commit of {len(transaction.changes)}")

    def _job_committed(self, job: JobRow | None) -> None:
        if job is None:
            return
        before = self.ended.get(job.id)
        if before is not None and job.state is not before:
            self.broken(f"1: {job.id} was {before} on the disk and is now {job.state}")
        if job.state in JOB_ENDED:
            self.ended[job.id] = job.state

    def _ledger_committed(self, row: LedgerRow) -> None:
        self.broken(follows(self.head, row))
        self.head = (row.row, row.hash)
        rows = self.ledger_of.setdefault(row.task, {})
        if row.attempt in rows:
            self.broken(f"2: {row.task} was accepted in ledger rows {rows[row.attempt]} and {row.row}")
        rows[row.attempt] = row.row
        if row.worker in self.revoked:
            self.broken(f"3: ledger row {row.row} is of {row.worker}, revoked before")
        task = self.history.coordinator.drive.rows._table("task").get(row.task)
        self.broken(is_of_its_holder(row, task))
        if task is not None:
            self.broken(written_once(rows, task))

    # -- everything that is told

    def told(self, job: JobRow, began: float) -> None:
        """1. A job leaves as the answer to a request that began then: what it says is on the disk, and stays so."""
        kept = self.history.coordinator.drive.rows.job(job.id)
        if kept is None:
            self.broken(f"1: the submitter was told of {job.id}, which is not on the disk")
            return
        before, since = self.told_jobs.get(job.id, (None, 0.0))
        if job.state in JOB_ENDED:
            if kept.state is not job.state:
                self.broken(f"1: the submitter was told that {job.id} is {job.state}; on the disk it is {kept.state}")
            if before not in (None, job.state):
                self.broken(f"1: {job.id} was told as {before} and as {job.state}")
            if before is None:
                self.told_jobs[job.id] = (job.state, self.history.loop.now)
        elif before is None:
            self.told_jobs[job.id] = (None, 0.0)
        elif began > since:
            self.broken(f"1: {job.id} was told as {before} and then as {job.state}")

    def acknowledged(self, task: str, verdict: str, receipt: tuple[str, int, bytes] | None) -> None:
        """2. A worker was told that its result is accepted: it is on the disk, where the receipt says."""
        if verdict == "accepted" and receipt is not None and receipt[1] not in self.ledger_of.get(task, {}).values():
            self.broken(f"2: the acceptance of {task} was acknowledged and is not on the disk")

    def assigned(self, worker: str, assignment: Assignment) -> None:
        """A worker got an assignment."""
        if len(self.seen) < MAX_SEEN:
            self.seen.append(assignment)

    def computed(self, assignment: Assignment, honest: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """A worker computed; what differs from the truth is a lie."""
        for name, array in given.items():
            if array is not honest[name]:
                plain = bytes(as_bytes(array))
                if plain != bytes(as_bytes(honest[name])):
                    self.lies.add(_lie(assignment.task, name, plain))

    def blob_deleted(self, digest: str) -> None:
        """6. A blob that is named is never deleted."""
        for table in (self.history.coordinator.drive.rows._table("reference"), self._references()):
            if any(key[0] == digest for key in table):
                self.broken(f"6: the blob {digest[:8]} was deleted while a job names it")

    def _references(self) -> Iterable[tuple[str, str]]:
        return self.history.coordinator.store._book.registry.references.rows

    # -- the pool as a whole

    def look(self) -> None:
        """At every look: starvation, bounds, and what the disk says of what was told."""
        history = self.history
        rows = history.coordinator.drive.rows
        for id, (state, _) in self.told_jobs.items():
            kept = rows.job(id)
            if kept is None or (state is not None and kept.state is not state):
                self.broken(f"1: {id} was told as {state or 'accepted'}; the disk has {kept and kept.state}")
        if history.coordinator.up:
            self._starving()
            self._bounded()

    def _starving(self) -> None:
        """5. A waiting task with a fitting free worker starts within a bounded time."""
        desk, store = self.history.coordinator.desk, self.history.coordinator.store
        now = self.history.loop.now
        starving: set[str] = set()
        able = self.history.coordinator.process.frozen_until <= now and not self.history.coordinator.drive.full
        if able and store.has_ready_work():
            fleet = desk._fleet.workers()
            for member in desk._fleet:
                session = member.session
                if session.held or session.judging or session.slots(now) <= 0 or now - session.heard > STARVED_S:
                    continue
                if _could_start(store._book, desk._fleet.worker(member), fleet):
                    starving.add(member.row.id)
        self.starving_since = {id: self.starving_since.get(id, now) for id in sorted(starving)}
        for id, since in self.starving_since.items():
            if now - since > STARVED_S:
                self.broken(f"5: {id} is free and fits, and got no task for {now - since:.1f} s")

    def _bounded(self) -> None:
        """8. Memory is bounded by configuration. 4. Nobody holds more than 64 leases."""
        history, desk = self.history, self.history.coordinator.desk
        book = history.coordinator.store._book
        machines = len(history.workers)
        limits: list[tuple[str, int, int]] = [
            ("links", len(desk._hub._links), 4 * machines + 64),
            ("members", len(desk._fleet), machines),
            ("parted sessions", len(desk._presence._parted), machines),
            ("waiting submitters", len(desk._intake._waiting), 2 * len(history.script.works)),
            ("jobs in memory", len(book.jobs.rows), len(history.script.works) + history.script.keep_ended),
            ("trials", len(desk._proving._out), 2 * machines),  # of an earlier session, until its link is seen to end
        ]
        for worker in history.workers.values():
            if worker.agent is not None and worker.agent.process.alive:
                session = worker.agent.session
                limits.append((f"leases of {worker.name}", len(session.held), MAX_SLOTS + MAX_JUDGING))
        for member in desk._fleet:
            limits.append((f"held by {member.row.id}", len(member.session.held), MAX_SLOTS))
            limits.append((f"judging of {member.row.id}", len(member.session.judging), 2 * MAX_JUDGING + 64))
        for what, amount, most in limits:
            if amount > most:
                self.broken(f"8: {amount} {what}, more than {most}")


def _could_start(book: Book, worker: FleetWorker, fleet: Sequence[FleetWorker]) -> bool:
    for submitter in book.index.submitters():
        for candidate in book.index.of(submitter):
            if not fits(candidate.job, worker):
                continue
            if candidate.uncut or any(may_take(candidate.job, task, worker, fleet) for task in candidate.waiting):
                return True
    return False


def _lie(task: str, name: str, plain: bytes) -> bytes:
    return blake3(task.encode() + name.encode() + plain).digest()
