"""Takes a worker through its trials: canary first, then a measurement per family of operations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from moregpu.coordinator import trust
from moregpu.coordinator.assigning import assignment_of
from moregpu.coordinator.cases import Case, Sound, Wrong
from moregpu.coordinator.decisions import Returned
from moregpu.coordinator.fleet import Fleet, Member, with_speeds
from moregpu.coordinator.judge import Judge
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.protocol import ASSIGN_LEASE_S, Store
from moregpu.coordinator.trials import ENOUGH, LADDER, LEAST_S, TRIAL_S, Given, canary, measurement, speed_keys
from moregpu.coordinator.uploads import Uploads
from moregpu.jobs import Blob
from moregpu.wire.messages import Cancel, Result, Verdict
from moregpu.wire.session import pack_acknowledged, pack_assign

log = logging.getLogger(__name__)

Outcome = tuple[Sound | Wrong, float]


class Proving:
    """Trials that are out, and what they came to."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        judge: Judge,
        uploads: Uploads,
        clock: Clock,
        entropy: Callable[[int], bytes],
        config: DeskConfig,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._judge = judge
        self._uploads = uploads
        self._clock = clock
        self._entropy = entropy
        self._config = config
        self._out: dict[str, tuple[Member, asyncio.Future[Outcome]]] = {}

    async def prove(self, member: Member) -> None:
        """Run the trials of a worker that just came in; it gets no work before they end."""
        member.session.on_trial = True
        try:
            outcome = await self._give(member, canary(member.row.id, self._entropy, self._clock.wall()))
            if outcome is None:
                return
            if isinstance(outcome[0], Wrong):
                await self._failed(member, outcome[0])
                return
            # The first task of a compute child waits for its start; the second shows what a task costs besides work.
            again = await self._give(member, canary(member.row.id, self._entropy, self._clock.wall()))
            if again is None:
                return
            if isinstance(again[0], Wrong):
                await self._failed(member, again[0])
                return
            baseline_s = min(outcome[1], again[1])
            answered = True
            for operation, sizes, family in LADDER:
                answered &= await self._measure(member, operation, sizes, family, baseline_s)
            await self._save(member, tried=answered)
        finally:
            member.session.on_trial = False

    async def canary(self, member: Member) -> None:
        """One canary beside the worker's work. What is not right about its answer counts; no answer does not."""
        outcome = await self._give(member, canary(member.row.id, self._entropy, self._clock.wall()))
        if outcome is not None and isinstance(outcome[0], Wrong) and outcome[0].proven:
            await self._failed(member, outcome[0])

    async def returned(self, member: Member, result: Result, returned: list[Returned]) -> None:
        """Results of trials came back."""
        signed = self._judge.signed(member.row, result) is not None
        for item in returned:
            if item.held is None or item.held.trial is None:
                continue
            lease, trial = item.held.lease, item.held.trial
            case = Case(
                entry=item.entry,
                index=item.index,
                seconds=item.seconds,
                job=lease.job,
                task=lease.task,
                assignment=assignment_of(lease.job, lease.task, lease.attempt, lease.token),
                held=item.held,
            )
            with self._uploads.judging([item.entry]):
                finding = await self._judge.examine_trial(member.row, case, signed)
            if isinstance(finding, Sound):
                for name, exact in trial.exact.items():
                    if bytes(finding.plain[name]) != exact:
                        finding = Wrong("canary", "a product of small integers is not exact", proven=True)
                        break
            member.session.judged(lease.ref)
            verdict = "accepted" if isinstance(finding, Sound) else "rejected"
            for message in pack_acknowledged(
                [Verdict(task=lease.task.id, attempt=lease.attempt, token=lease.token, verdict=verdict)]
            ):
                member.send(message)
            _, future = self._out.get(lease.task.id, (member, None))
            if future is not None and not future.done():
                future.set_result((finding, item.seconds))
            await self._forget_upload(member, item)

    def refused(self, tasks: list[str]) -> None:
        """The worker handed trials back: it is measured another time."""
        for task in tasks:
            if task in self._out:
                self._out[task][1].cancel()

    def left(self, member: Member) -> None:
        """Its connection ended: nothing more comes."""
        for whose, future in list(self._out.values()):
            if whose is member:
                future.cancel()

    async def _measure(
        self, member: Member, operation: str, sizes: tuple[int, ...], family: tuple[str, ...], baseline_s: float
    ) -> bool:
        """Measure one family of operations; whether the worker answered, if only that it cannot.

        What took long is done once more, and the better time counts: the first of its kind waited for libraries to be
        loaded, and a worker that was thought forty times slower than it is got its first jobs in crumbs.
        """
        for size in sizes:
            best = 0.0
            for _ in range(2):
                given = measurement(member.row.id, operation, size, self._entropy, self._clock.wall())
                outcome = await self._give(member, given)
                if outcome is None or isinstance(outcome[0], Wrong):
                    return outcome is not None
                sound, seconds = outcome
                seconds = max(LEAST_S, seconds - baseline_s)
                duty = max(0.05, min(1.0, sound.ran.duty)) if isinstance(sound, Sound) else 1.0
                best = max(best, given.lease.task.spec.cost.amount / (seconds * duty))
                for key in speed_keys(given.trial.speed_key, family):
                    member.speeds[key] = best
                self._fleet.changed()
                if seconds < ENOUGH * self._config.measure_s:
                    break
            else:
                return True
        return True

    async def _give(self, member: Member, given: Given) -> Outcome | None:
        lease = given.lease
        if self._fleet.get(member.row.id) is not member:
            return None  # it left; its next session is measured
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._out[lease.task.id] = (member, future)
        member.session.assigned(lease, 0.0, self._clock.monotonic(), given.trial)
        for message in pack_assign(
            [assignment_of(lease.job, lease.task, lease.attempt, lease.token, lease_s=ASSIGN_LEASE_S)]
        ):
            member.send(message)
        try:
            async with asyncio.timeout(TRIAL_S):
                await asyncio.wait({future})
            return None if future.cancelled() else future.result()
        except TimeoutError:
            member.session.drop([lease.ref])
            member.send(Cancel(leases=[lease.ref], reason="a trial took too long"))
            return None
        finally:
            del self._out[lease.task.id]

    async def _failed(self, member: Member, finding: Wrong) -> None:
        """A machine that cannot multiply small integers gets no work until its admin looked at it."""
        log.warning("canary failed", extra={"worker": member.row.id, "reason": finding.message})
        member.session.paused = True
        self._fleet.changed(fit=True)
        row = await self._store.worker(member.row.id)
        if row is not None:
            trusted = trust.after(row.trust, wrong=finding.proven, wall=self._clock.wall())
            why = f"its canary was wrong: {finding.message}"
            paused = msgspec.structs.replace(row, speeds={}, tried=False, paused=True, paused_for=why, trust=trusted)
            member.session.quarantined = trusted.quarantined
            member.row = await self._store.save_worker(paused, "worker.canary_failed")

    async def _save(self, member: Member, *, tried: bool) -> None:
        row = await self._store.worker(member.row.id)
        if row is not None:
            member.row = await self._store.save_worker(with_speeds(row, member.speeds, tried=tried), "worker.measured")
            member.learnt = False

    async def _forget_upload(self, member: Member, item: Returned) -> None:
        """A trial's outputs are never kept."""
        planned = item.held.lease.task.spec.outputs if item.held is not None else {}
        named = [
            t.data.digest for name, t in item.entry.outputs.items() if isinstance(t.data, Blob) and name in planned
        ]
        await self._uploads.forget(member.row.id, named)
