"""When a history may end, and what must be so then: nothing unfinished, nothing left behind, a ledger that verifies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from moregpu.coordinator import ledger, trials
from moregpu.coordinator.store.index import WorkIndex
from moregpu.coordinator.store.protocol import LedgerBatch
from moregpu.jobs import JOB_ENDED
from tests.simulation.script import HONEST

if TYPE_CHECKING:
    from tests.simulation.history import History

DAY_S = 86_400.0


def unfinished(history: History) -> list[str]:
    """What is still going on, in words."""
    found: list[str] = []
    coordinator = history.coordinator
    for submitter in history.submitters:
        if not submitter.over:
            found.append(f"{submitter.process.name} waits for {submitter.job or 'its submit'}")
    for id, row in coordinator.drive.rows._table("job").items():
        if row.state not in JOB_ENDED:
            found.append(f"{id} is {row.state} with {row.grains_done} of {row.plan.grains} grains")
    if found:
        return found
    if not coordinator.up or coordinator.store.uncommitted or coordinator.store._inflight is not None:
        return ["the coordinator is not at rest"]
    for worker in history.workers.values():
        if worker.machine.kind not in HONEST or not worker.able or worker.agent is None:
            continue
        session = worker.agent.session
        if not (worker.agent.process.alive and session.member):
            found.append(f"{worker.name} is not connected")
        elif session.held or session.kept:
            found.append(f"{worker.name} holds {len(session.held)} leases and {len(session.kept)} results")
    for member in coordinator.desk._fleet:
        if member.session.on_trial or member.session.judging:
            found.append(
                f"{member.row.name}: on trial {member.session.on_trial}, judging {sorted(member.session.judging)}"
            )
    return found


async def at_rest(history: History) -> None:
    """The last look."""
    watch, coordinator = history.watch, history.coordinator
    await asyncio.sleep(2.0)
    await _trials_end(history)
    desk, book = coordinator.desk, coordinator.store._book
    for what, left in (
        ("submitters waited for", desk._intake._waiting),
        ("jobs being combined", desk._finisher._at_work),
        ("complete jobs", book.index.complete),
        ("leases", {id for id, leases in book.index.leased_by.items() if leases}),
    ):
        if left:
            watch.broken(f"8: at rest there are {what}: {sorted(left)}")
    anew = WorkIndex(book.jobs.rows, book.tasks.rows)
    for job in book.jobs.rows.values():
        anew.watch_job(None, job)
    for task in book.tasks.rows.values():
        anew.watch_task(None, task)
    if anew.facts() != book.index.facts():
        watch.broken("the indices are not what the rows say")
    _ledger(history)
    await _retention(history)


async def _trials_end(history: History) -> None:
    """8. Whoever joined meanwhile may still be on trial; each trial that is out ends in its time."""
    proving = history.coordinator.desk._proving
    out = set(proving._out)
    until = history.loop.now + trials.TRIAL_S + 1.0
    while (left := out & set(proving._out)) and history.loop.now < until:  # noqa: ASYNC110 - virtual
        await asyncio.sleep(0.5)
    if left:
        history.watch.broken(f"8: trials are out for ever: {sorted(left)}")


def _ledger(history: History) -> None:
    """7. The chain verifies, with its signatures, and holds every receipt that an honest worker has."""
    rows = history.coordinator.drive.rows
    batches: dict[int, LedgerBatch] = {number: batch for (_, number), batch in rows._table("batch").items()}
    keys = {worker.id: worker.keys.wi_pub for worker in history.workers.values()}
    receipts = [receipt for worker in history.workers.values() for _, receipt in sorted(worker.receipts.items())]
    problems = ledger.verify(
        rows.ledger(rows._writer, 0, 1 << 30),
        batches,
        [],
        pool=history.pool_keys.pool_id,
        ci_pub=history.pool_keys.ci_pub,
        keys=keys,
        receipts=receipts,
    )
    for problem in problems:
        history.watch.broken(f"7: {problem}")


async def _retention(history: History) -> None:
    """6. What a job names is there; after its time, everything goes."""
    coordinator, watch = history.coordinator, history.watch
    named = {digest for digest, _ in coordinator.drive.rows._table("reference")}
    if named - set(coordinator.drive.blobs):
        watch.broken(f"6: blobs that jobs name are gone: {sorted(named - set(coordinator.drive.blobs))}")
    coordinator.clock.ahead_s += 8 * DAY_S
    for _ in range(2):
        await history.loop.spawn(coordinator.process, coordinator.housekeeping())
    left = set(coordinator.drive.blobs)
    if left:
        known = set(coordinator.drive.rows._table("blob"))
        watch.broken(f"6: {len(left)} blobs are kept for ever, {len(left - known)} of them without a row")
