"""What follows from results: verdicts to the worker, better speeds, jobs to combine, leases to cancel elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from moregpu.coordinator.cases import Ruling
from moregpu.coordinator.chores import Chores
from moregpu.coordinator.decisions import Judge as JudgeThis
from moregpu.coordinator.finish import Finisher
from moregpu.coordinator.fleet import Fleet, Member
from moregpu.coordinator.judge import Judge
from moregpu.coordinator.presence import set_aside
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.proving import Proving
from moregpu.coordinator.store.protocol import Store
from moregpu.errors import MoreGPUError
from moregpu.wire.messages import Cancel, LeaseRef, Verdict
from moregpu.wire.session import pack_acknowledged

log = logging.getLogger(__name__)


class Results:
    """Carries results from their arrival to their last consequence."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        judge: Judge,
        proving: Proving,
        finisher: Finisher,
        chores: Chores,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._judge = judge
        self._proving = proving
        self._finisher = finisher
        self._chores = chores
        self._clock = clock
        self._wake = wake
        self.observe: Callable[[Member, Ruling], None] = _unobserved
        """Told of every ruling: for what is counted."""

    async def arrived(self, member: Member, action: JudgeThis) -> None:
        """Judge a Result, tell the worker, and go on."""
        trials = [item for item in action.returned if item.held is not None and item.held.trial is not None]
        if trials:
            await self._proving.returned(member, action.result, trials)
        work = [item for item in action.returned if item.held is None or item.held.trial is None]
        if not work:
            return
        refs = [LeaseRef(task=i.entry.task, attempt=i.entry.attempt, token=i.entry.token) for i in work]
        rulings: list[Ruling] = []
        try:
            rulings = await self._judge.judge(member.row, action.result, work)
        except MoreGPUError as error:
            # Nothing was committed, so nothing is acknowledged: the worker keeps its results and sends them again.
            log.warning("results could not be kept", extra={"worker": member.row.id, "reason": error.detail})
        finally:
            current = self._fleet.get(member.row.id) or member
            for ref in refs:
                current.session.judged(ref)
        self._acknowledge(current, rulings)
        await self._conclude(current, rulings)

    def cancel(self, leases: Iterable[tuple[str, LeaseRef]], reason: str) -> None:
        """Tell workers to stop."""
        by_worker: dict[str, list[LeaseRef]] = {}
        for worker, ref in leases:
            by_worker.setdefault(worker, []).append(ref)
        for worker, refs in by_worker.items():
            member = self._fleet.get(worker)
            if member is not None:
                member.session.drop(refs)
                member.send(Cancel(leases=refs, reason=reason))
        if by_worker:
            self._wake()

    def withdraw(self, job: str) -> None:
        """A job ended without being done: whoever still works on it may stop."""
        out = [
            (member.row.id, held.lease.ref)
            for member in self._fleet
            for held in list(member.session.held.values())
            if held.lease.job.id == job
        ]
        self.cancel(out, "the job ended")

    def _acknowledge(self, member: Member, rulings: Sequence[Ruling]) -> None:
        verdicts: list[Verdict] = []
        for ruling in rulings:
            done, ref = ruling.completed, ruling.ref
            verdicts.append(
                Verdict(
                    task=ref.task,
                    attempt=ref.attempt,
                    token=ref.token,
                    verdict=done.verdict,  # pyright: ignore[reportArgumentType]
                    detail=done.detail[:1000],
                    ledger=done.ledger,
                )
            )
        for message in pack_acknowledged(verdicts):
            member.send(message, may_wait=True)

    async def _conclude(self, member: Member, rulings: Sequence[Ruling]) -> None:
        conduct = self._fleet.conduct
        for ruling in rulings:
            done = ruling.completed
            member.session.ruled(failed=ruling.failed, succeeded=done.verdict == "accepted")
            if done.verdict == "accepted":
                conduct.clear(member.row.id)
            elif ruling.failed:
                conduct.failed(member.row.id, done.detail)
            self._fleet.learn(member, ruling)
            self.observe(member, ruling)
            if done.ready:
                self._chores.spawn(self._finisher.finish(done.job))
            if done.out:
                self.cancel(done.out, "the job ended" if done.ended else "another worker was first")
        if any(ruling.failed for ruling in rulings):
            await self._keep_trust(member)
        if conduct.hopeless(member.row.id):
            await set_aside(self._store, self._fleet, member)
        self._wake()

    async def _keep_trust(self, member: Member) -> None:
        """Something was wrong: see what the store makes of the worker now. From quarantine nothing is taken."""
        row = await self._store.worker(member.row.id)
        if row is None or row.trust == member.row.trust:
            return
        member.row = msgspec.structs.replace(member.row, trust=row.trust)
        if not row.trust.quarantined or member.session.quarantined:
            return
        member.session.quarantined = True
        log.warning("worker quarantined: its results are wrong", extra={"worker": row.id, "wrong": row.trust.wrong})
        self._fleet.changed(fit=True)
        gone = await self._store.release(row.id, (), self._clock.monotonic(), self._clock.wall())
        self.cancel([(row.id, ref) for ref in gone], "the worker is quarantined")


def _unobserved(member: Member, ruling: Ruling) -> None:
    """Nobody counts."""
