"""A function's job among workers that say that it is to blame: one of them alone is never believed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moregpu.coordinator.quotas import Quotas
from moregpu.encoding.records import Status, record
from moregpu.errors import OverQuota
from moregpu.jobs import JobState, Tensor
from moregpu.wire.messages import Assignment, Hello, ResultEntry, TaskError
from moregpu.wire.statement import Ran, content_digest, described, statement_of
from moregpu.workloads.function.spec import FunctionSpec
from tests.coordinator.room.pool import ADMIN, ANN, BOB, room
from tests.coordinator.room.test_agreement import of_owner
from tests.rogue.workers import HonestWorker

REFUSED = TaskError(code="environment-refused", message="no set of wheels satisfies nothing-of-the-kind", fault="task")


class Calls(HonestWorker):
    """Takes functions of one call each, and gives a record of nothing for it."""

    status = Status.VALUE

    def hello(self, h: bytes) -> Hello:
        return msgspec.structs.replace(super().hello(h), kinds=["kernel", "function"])

    def compute(self, assignment: Assignment) -> ResultEntry:
        results = b"".join(record(self.status, [b"\x00"]))
        tensor = Tensor(dtype="uint8", shape=(len(results),), data=results)
        key = assignment.digest_key
        statement = statement_of(
            assignment,
            pool=self.pool.pool_id,
            worker=self.id,
            inputs={
                name: described(given, content_digest(key, given.dtype, given.part_shape, self.open(given)))
                for name, given in assignment.inputs.items()
            },
            outputs={"results": described(tensor, content_digest(key, "uint8", tensor.shape, results))},
            ran=Ran(device="cpu", driver="1", duty=1.0, seconds=0.0),
        )
        return self.entry(assignment, statement, {"results": tensor})


class Raises(Calls):
    """What it calls raises."""

    status = Status.FAILURE


class Exchanges(Calls):
    """Says one thing and signs another."""

    def compute(self, assignment: Assignment) -> ResultEntry:
        honest = super().compute(assignment)
        results = b"".join(record(Status.VALUE, [b"\x01"]))
        tensor = Tensor(dtype="uint8", shape=(len(results),), data=results)
        return msgspec.structs.replace(honest, outputs={"results": tensor})


class Numbers(Calls):
    """Its records are numbers, as it says and signs."""

    def compute(self, assignment: Assignment) -> ResultEntry:
        tensor = Tensor(dtype="int8", shape=(24,), data=bytes(24))
        outputs = {"results": described(tensor, content_digest(assignment.digest_key, "int8", (24,), bytes(24)))}
        inputs = {
            name: described(given, content_digest(assignment.digest_key, "uint8", given.part_shape, self.open(given)))
            for name, given in assignment.inputs.items()
        }
        statement = statement_of(
            assignment,
            pool=self.pool.pool_id,
            worker=self.id,
            inputs=inputs,
            outputs=outputs,
            ran=Ran(device="cpu", driver="1", duty=1.0, seconds=0.0),
        )
        return self.entry(assignment, statement, {"results": tensor})


class Blames(Calls):
    """Says of every task that it is to blame itself."""

    error = REFUSED

    def compute(self, assignment: Assignment) -> ResultEntry:
        return ResultEntry(task=assignment.task, attempt=assignment.attempt, token=assignment.token, error=self.error)


class BlamesOtherwise(Blames):
    """The same, with another story."""

    error = TaskError(code="input-lost", message="there is nothing", fault="task")


def job(**fields: Any) -> FunctionSpec:
    def line(data: bytes) -> Tensor:
        return Tensor(dtype="uint8", shape=(len(data),), data=data)

    return FunctionSpec(calls=(1,), inputs={"program": line(b"a program"), "arguments": line(b"a")}, **fields)


def test_calls_beyond_the_quota_are_refused_until_some_have_ended(tmp_path: Path) -> None:
    """The sizes of their arguments lie in memory: a submitter's jobs of ten thousand calls each were gigabytes."""

    async def run() -> None:
        async with room(tmp_path) as here:
            here.desk.quotas = Quotas(calls=2)
            first = await here.desk.submit(ANN, job(), "", 0.0)
            await here.desk.submit(ANN, job(), "", 0.0)
            with pytest.raises(OverQuota, match="1 calls beside the 2 of your jobs"):
                await here.desk.submit(ANN, job(), "", 0.0)
            await here.desk.submit(BOB, job(), "", 0.0)
            await here.desk.submit(ADMIN, job(), "", 0.0)
            await here.desk.cancel(ANN, first.id)
            assert (await here.desk.submit(ANN, job(), "", 0.0)).state is JobState.QUEUED

    asyncio.run(run())


@pytest.mark.parametrize("check", ["auto", "agree"])
def test_a_call_that_raised_is_done_and_told_as_one_that_failed(tmp_path: Path, check: Any) -> None:
    """Its exception is a result like any; who looks at the list of jobs sees that there is one."""

    async def run() -> None:
        async with room(tmp_path) as here:
            await of_owner(here, "ann", Raises)
            await of_owner(here, "bob", Raises)
            row = await here.ended(await here.desk.submit(ANN, job(check=check), "", 0.0))
            assert (row.state, row.failed_calls) == (JobState.DONE, 1)

    asyncio.run(run())


def test_what_a_programs_call_gave_is_known_when_the_next_task_of_it_is_cut(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await of_owner(here, "ann", Calls)
            row = await here.ended(await here.desk.submit(ANN, job(), "", 0.0))
            (member,) = [each for each in here.desk._fleet if each.row.id == worker.id]
            await here.until(lambda: bool(member.call_bytes))
            given = float(len(b"".join(record(Status.VALUE, [b"\x00"]))))
            assert member.profile.result_bytes == {row.plan.cost.speed_key: pytest.approx(given)}

    asyncio.run(run())


def test_a_result_of_calls_that_were_forgotten_meanwhile_is_over_and_takes_nobody_with_it(tmp_path: Path) -> None:
    """With its keys gone no statement about it can be written; whatever came in the same message was lost with it."""

    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await of_owner(here, "ann", Calls)
            worker.computes = False
            gone = await here.desk.submit(ANN, job(), "", 0.0)
            await worker.until(lambda: bool(worker.assigned))
            late = worker.compute(worker.assigned[0])
            await here.desk.cancel(ANN, gone.id)
            await here.store.purge(gone.id)
            other = await here.desk.submit(ANN, job(), "", 0.0)
            await worker.heartbeat([])
            await worker.until(lambda: len(worker.assigned) == 2)
            await worker.report([late, worker.compute(worker.assigned[1])])
            await worker.until(lambda: len(worker.verdicts) == 2)
            said = {verdict.task: verdict.verdict for verdict in worker.verdicts}
            assert said == {late.task: "fenced", worker.assigned[1].task: "accepted"}
            assert (await here.ended(other)).state is JobState.DONE

    asyncio.run(run())


@pytest.mark.parametrize(("liar", "words"), [(Exchanges, "wrong-statement"), (Numbers, "wrong-outputs")])
def test_what_calls_gave_is_accepted_only_as_it_was_signed_for_and_planned(
    tmp_path: Path, liar: type[Calls], words: str
) -> None:
    """Nobody looks into it; whose it is, and about what, is checked as of every result."""

    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await of_owner(here, "mallory", liar)
            row = await here.desk.submit(ANN, job(), "", 0.0)
            await worker.until(lambda: bool(worker.verdicts))
            assert worker.verdicts[0].verdict == "rejected"
            assert words in worker.verdicts[0].detail
            await of_owner(here, "ann", Calls)
            assert (await here.ended(row)).evidence == {"unchecked": 1}

    asyncio.run(run())


def test_one_worker_that_blames_a_function_ends_no_job_of_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liar = await of_owner(here, "mallory", Blames)
            row = await here.desk.submit(ANN, job(), "", 0.0)
            await liar.until(lambda: bool(liar.verdicts))
            await of_owner(here, "ann", Calls)
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_workers_of_one_owner_are_one_voice(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liars = [await of_owner(here, "mallory", Blames, name) for name in ("one", "two")]
            honest = await of_owner(here, "ann", Calls)
            honest.computes = False
            row = await here.desk.submit(ANN, job(), "", 0.0)
            await here.until(lambda: all(liar.verdicts for liar in liars) or honest.assigned)
            honest.computes = True
            if honest.assigned:
                await honest.work(honest.assigned)
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_two_owners_workers_that_say_the_same_are_believed_and_nobody_else_is_asked(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            workers = [await of_owner(here, owner, Blames) for owner in ("ann", "bob", "eve")]
            row = await here.ended(await here.desk.submit(ANN, job(retries=9), "", 0.0))
            assert row.state is JobState.FAILED and row.error is not None
            assert "environment-refused: no set of wheels" in (row.error.detail or "")
            assert sum(len(worker.assigned) for worker in workers) == 2

    asyncio.run(run())


def test_two_owners_workers_with_different_stories_are_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liars = [await of_owner(here, "ann", Blames), await of_owner(here, "bob", BlamesOtherwise)]
            honest = await of_owner(here, "eve", Calls)
            honest.computes = False
            row = await here.desk.submit(ANN, job(retries=9), "", 0.0)
            await here.until(lambda: all(liar.verdicts for liar in liars) or honest.assigned)
            honest.computes = True
            if honest.assigned:
                await honest.work(honest.assigned)
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_where_nobody_else_is_there_the_job_ends_with_its_last_try(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            alone = await of_owner(here, "ann", Blames)
            row = await here.ended(await here.desk.submit(ANN, job(retries=3), "", 0.0))
            assert row.state is JobState.FAILED and len(alone.assigned) == 3

    asyncio.run(run())


def _gated(store: Any, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Nobody is told that anything is on the disk until this is set."""
    gate, settle = asyncio.Event(), store.settle

    async def later() -> None:
        await gate.wait()
        await settle()

    monkeypatch.setattr(store, "settle", later)
    return gate


def test_what_is_cancelled_while_its_lease_is_written_is_not_sent_to_the_worker_nor_counted_as_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await of_owner(here, "ann", Calls)
            session = here.desk._fleet.get(worker.id).session  # type: ignore[union-attr]
            gate = _gated(here.store, monkeypatch)
            submitting = asyncio.create_task(here.desk.submit(ANN, job(idempotent=False), "", 0.0))
            await here.until(lambda: bool(session.held))
            (id,) = here.store._book.jobs.rows
            cancelling = asyncio.create_task(here.desk.cancel(ANN, id))
            await here.until(lambda: here.store._book.jobs.rows[id].state is JobState.CANCELLED)
            gate.set()
            await asyncio.gather(submitting, cancelling)
            await here.until(lambda: not session.held)
            assert (await here.ended(await here.desk.submit(ANN, job(), "", 0.0))).state is JobState.DONE
            assert len(worker.assigned) == 1, "the cancelled one never came"

    asyncio.run(run())


def test_what_is_leased_to_a_worker_whose_connection_ends_while_it_is_written_goes_back_unharmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=60.0) as here:
            gone = await of_owner(here, "ann", Calls)
            session = here.desk._fleet.get(gone.id).session  # type: ignore[union-attr]
            gate = _gated(here.store, monkeypatch)
            submitting = asyncio.create_task(here.desk.submit(ANN, job(idempotent=False), "", 0.0))
            await here.until(lambda: bool(session.held))
            await here.hang_up(gone)
            await here.until(lambda: here.desk._fleet.get(gone.id) is None)
            gate.set()
            row = await submitting
            await here.until(lambda: not session.held)
            await of_owner(here, "eve", Calls)
            assert (await here.ended(row)).state is JobState.DONE, "it ran nowhere, so it may run there"
            assert not gone.assigned

    asyncio.run(run())
