"""Is a result signed, about the right task, and right? Only what passes all three may be accepted.

In this order: the lease is this worker's (else fenced, without a look at the data); the signature covers the list of
statements; each statement is byte for byte what this coordinator writes from its own store and the bytes it received;
the workload finds the outputs right. Nothing that a worker claims loosens any of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator import together
from moregpu.coordinator.assigning import assignment_of
from moregpu.coordinator.blame import blames_task, fault_of, wrong_result
from moregpu.coordinator.cases import Case, InputLost, Ruling, Sound, Wrong, claims, refuse_unplanned
from moregpu.coordinator.decisions import Returned
from moregpu.coordinator.limits import OFFLOAD_BYTES, OFFLOAD_FLOPS
from moregpu.coordinator.opening import Plain, array_of, open_arrays, plain_part, shaped, windows
from moregpu.coordinator.protocol import Clock, Offload
from moregpu.coordinator.store.protocol import (
    Accepted,
    Completed,
    Failed,
    JobRow,
    SignedBatch,
    Store,
    TaskRow,
    Vote,
    Voted,
    WorkerRow,
)
from moregpu.coordinator.trust import is_on_probation
from moregpu.coordinator.uploads import Uploads
from moregpu.coordinator.wholes import Wholes
from moregpu.errors import DigestMismatch, HandshakeFailed
from moregpu.jobs import AttemptState, Blob, Check, Evidence, TaskState, Tensor
from moregpu.wire.api import ResultManifest
from moregpu.wire.identity import verify
from moregpu.wire.messages import Assignment, LeaseRef, Result, TaskError
from moregpu.wire.statement import (
    OutputsDigest,
    batch_message,
    content_digest,
    described,
    digest,
    scattered_digest,
    statement_of,
)
from moregpu.workloads import workload
from moregpu.workloads.protocol import Rejected, Tally

log = logging.getLogger(__name__)

MAX_VOTES = 3
"""Results of one task, each of another owner, after which it is given up that two agree."""

OUR_OWN = ("recomputed", "freivalds", "sampled", "audited")
"""Evidence that compares a result with what we know to be right."""


class Judge:
    """Judges results against the store's rows."""

    def __init__(
        self,
        store: Store,
        blobs: BlobFiles,
        uploads: Uploads,
        pool_id: bytes,
        clock: Clock,
        offload: Offload,
        entropy: Callable[[int], bytes],
        hopeless: Callable[[JobRow, TaskRow, str], bool],
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._uploads = uploads
        self._wholes = Wholes(blobs)
        self._hopeless = hopeless
        self._pool_id = pool_id
        self._clock = clock
        self._offload = offload
        self._entropy = entropy

    async def judge(self, worker: WorkerRow, result: Result, returned: Sequence[Returned]) -> list[Ruling]:
        """Check entries of a Result (trials left out) and commit what they came to.

        Raises `OutOfSpace` when nothing could be committed: the worker keeps its results and sends them again.
        """
        worker = await self._store.worker(worker.id) or worker
        batch = self.signed(worker, result)
        cases, rulings = await self._cases(worker, returned)
        with self._uploads.judging(case.entry for case in cases):
            ended, sound = await self._examine(worker, cases, batch)
            if not ended:
                return rulings
            completed = await self._store.complete(worker.id, ended, batch, self._clock.wall())
        verdicts = {(done.ref.task, done.ref.attempt, done.ref.token): done for done in completed}
        for case, outcome in zip(cases, ended, strict=True):
            done = verdicts.get((case.entry.task, case.entry.attempt, case.entry.token))
            if done is None:
                done = Completed(ref=case.ref, verdict="fenced", detail="the store did not answer for it")
            rulings.append(self._ruling(case, outcome, done, sound.get(case.index)))
        await self._forget_dropped(worker, cases, ended)
        return rulings

    def signed(self, worker: WorkerRow, result: Result) -> SignedBatch | None:
        """The signed list of statements' digests; None when the signature is not the worker's over exactly these."""
        digests = tuple(digest(entry.statement) for entry in result.entries)
        try:
            verify(worker.wi_pub, batch_message(self._pool_id, worker.id, digests), result.signature)
        except HandshakeFailed:
            log.warning("unsigned result refused", extra={"worker": worker.id})
            return None
        return SignedBatch(worker=worker.id, digests=digests, signature=result.signature)

    async def examine_trial(self, worker: WorkerRow, case: Case, signed: bool) -> Sound | Wrong:
        """Judge a trial exactly as a task; its outcome goes nowhere but back."""
        if case.entry.error is not None:
            return Wrong(case.entry.error.code, case.entry.error.message)
        if not signed:
            return Wrong("unsigned", "the result is not signed by its worker")
        try:
            return await self._offload(lambda: self._examine_one(worker, case))
        except Wrong as wrong:
            return wrong
        except InputLost as lost:
            return Wrong("input-lost", str(lost))

    # -- the rows behind an entry

    async def _cases(self, worker: WorkerRow, returned: Sequence[Returned]) -> tuple[list[Case], list[Ruling]]:
        cases: list[Case] = []
        rulings: list[Ruling] = []
        for item in returned:
            entry = item.entry
            ref = LeaseRef(task=entry.task, attempt=entry.attempt, token=entry.token)
            task = await self._store.task(entry.task)
            job = await self._store.job(task.job) if task is not None else None
            if task is None or job is None or not _was_leased(task, worker.id, ref):
                rulings.append(_fenced(ref, "no such lease of this worker"))
                continue
            assignment = assignment_of(job, task, ref.attempt, ref.token)
            cases.append(
                Case(
                    entry=entry,
                    index=item.index,
                    seconds=item.seconds,
                    job=job,
                    task=task,
                    assignment=assignment,
                    held=item.held,
                    is_blamed=await self._is_blamed(worker, job, task, entry.error),
                )
            )
        return cases, rulings

    async def _is_blamed(self, worker: WorkerRow, job: JobRow, task: TaskRow, error: TaskError | None) -> bool:
        """Whether a worker of another owner failed the task by the same error as this one, which blames the task."""
        if error is None or error.fault != "task" or not job.plan.needs.own_code:
            return False
        for attempt in task.attempts:
            if attempt.state is AttemptState.REJECTED and attempt.error.startswith(f"{error.code}: "):
                other = await self._store.worker(attempt.worker)
                if other is not None and other.owner != worker.owner:
                    return True
        return False

    # -- the checks

    async def _examine(
        self, worker: WorkerRow, cases: Sequence[Case], batch: SignedBatch | None
    ) -> tuple[list[Accepted | Voted | Failed], dict[int, Sound]]:
        if batch is None:
            unsigned = Wrong("unsigned", "the result is not signed by its worker")
            return [self._failed(worker, case, unsigned) for case in cases], {}

        began = self._clock.monotonic()
        there = [case for case in cases if not case.job.purged]
        found: dict[int, Sound | Wrong | InputLost] = {**together.look(self._pool_id, worker.id, there)}
        rest = [case for case in cases if case.index not in found]

        def work() -> None:
            found.update({case.index: self._look(worker, case) for case in rest})

        if rest:
            await self._offload(work) if _is_heavy(rest) else work()
            self._wholes.rest_soon()
        checking_s = (self._clock.monotonic() - began) / max(1, len(cases))
        ended: list[Accepted | Voted | Failed] = []
        sound: dict[int, Sound] = {}
        for case in cases:
            finding = found[case.index]
            if isinstance(finding, Sound):
                sound[case.index] = finding
                ended.append(self._accepted(case, finding, checking_s))
            else:
                ended.append(self._failed(worker, case, finding))
        return ended, sound

    def _look(self, worker: WorkerRow, case: Case) -> Sound | Wrong | InputLost:
        if case.entry.error is not None:
            return Wrong(case.entry.error.code, case.entry.error.message)
        try:
            if (answered := self._answered_before(worker, case)) is not None:
                return answered
            if case.job.purged:  # its keys are gone, so nothing is left to compare with; its leases were over before
                return Wrong("over", "the job ended, and was forgotten since")
            return self._examine_one(worker, case)
        except (Wrong, InputLost) as finding:
            return finding

    def _answered_before(self, worker: WorkerRow, case: Case) -> Sound | None:
        """A resend of what was accepted: the store answers it again, with the same receipt."""
        task = case.task
        if not task.votes and task.state is not TaskState.DONE:
            return None
        if any(vote.attempt == case.ref.attempt for vote in task.votes):
            _, ran = claims(case.entry)
            unchecked = Evidence(kind="unchecked")
            return Sound(evidence=task.evidence or unchecked, ran=ran, content="", plain={}, voters=())
        if task.state is not TaskState.DONE or task.evidence is None:
            return None
        _, ran = claims(case.entry)
        return Sound(evidence=task.evidence, ran=ran, content="", plain={})

    def _examine_one(self, worker: WorkerRow, case: Case) -> Sound:
        entry, assignment = case.entry, case.assignment
        outputs, ran = claims(entry)
        if len(outputs) != len(assignment.outputs):
            raise Wrong("wrong-statement", "the statement does not describe the planned outputs")
        for name, planned in assignment.outputs.items():
            refuse_unplanned(name, planned, entry.outputs.get(name))
        if len(entry.outputs) != len(assignment.outputs):
            raise Wrong("wrong-outputs", "an output that was not planned")
        kind = workload(assignment.kind)
        inputs = self._open_inputs(assignment, kind.by_digest)
        outputs_made = shaped(entry.outputs, case.job.plan)
        whole = OutputsDigest() if kind.by_digest and case.is_whole else None
        tally = kind.tally()
        try:
            given = {
                name: self._streamed(assignment, tensor, _beginning(whole, name, outputs_made[name]), tally)
                if kind.by_digest
                else plain_part(tensor, self._blobs)
                for name, tensor in sorted(entry.outputs.items())
            }
        except DigestMismatch as error:
            raise Wrong("wrong-outputs", f"an output cannot be opened: {error.detail}") from error
        written = statement_of(
            assignment,
            pool=self._pool_id,
            worker=worker.id,
            inputs={
                name: self._describe(assignment, tensor, inputs[name], kind.by_digest)
                for name, tensor in assignment.inputs.items()
            },
            outputs={
                name: self._describe(assignment, tensor, given[name], kind.by_digest)
                for name, tensor in entry.outputs.items()
            },
            ran=ran,
        )
        if written != entry.statement:
            raise Wrong("wrong-statement", "the statement is not about this task, these inputs and these outputs")
        arrays, made = inputs, given
        if not kind.by_digest:
            arrays = {name: array_of(tensor, inputs[name]) for name, tensor in assignment.inputs.items()}
            made = {name: array_of(tensor, given[name]) for name, tensor in entry.outputs.items()}
        level = level_for(case.job.spec.check, worker)
        evidence = kind.check(case.task.spec, arrays, made, level, self._entropy)
        if isinstance(evidence, Rejected):
            raise wrong_result(worker, case, evidence.reason, ran.device)
        voters = self._voters(worker, case, arrays, made) if case.job.spec.check == "agree" else None
        if voters and evidence.kind not in OUR_OWN:
            evidence = Evidence(kind="agreed", workers=(*voters, worker.id))
        elif voters:
            evidence = msgspec.structs.replace(evidence, workers=(*voters, worker.id))
        if kind.by_digest:
            content = whole.hex() if whole is not None else ""
        else:
            content = _content(outputs_made, given)
        failed = 0 if tally is None else tally.failed
        return Sound(evidence=evidence, ran=ran, content=content, plain=given, voters=voters, failed_calls=failed)

    def _voters(
        self, worker: WorkerRow, case: Case, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """Workers of other owners whose results of this task say the same."""
        kind, spec = workload(case.assignment.kind), case.task.spec

        def says_the_same(vote: Vote) -> bool:
            if kind.by_digest:
                theirs = {name: self._streamed(case.assignment, tensor) for name, tensor in vote.outputs.items()}
            else:
                theirs = open_arrays(vote.outputs, self._blobs)
            return kind.agree(spec, inputs, theirs, outputs)

        try:
            others = [vote for vote in case.task.votes if vote.owner != worker.owner and vote.worker != worker.id]
            return tuple(vote.worker for vote in others if says_the_same(vote))
        except DigestMismatch as error:
            raise InputLost(f"an earlier result of the task cannot be opened: {error.detail}") from error

    def _open_inputs(self, assignment: Assignment, by_digest: bool) -> dict[str, Any]:
        try:
            return {
                name: self._streamed(assignment, tensor) if by_digest else self._wholes.part(tensor)
                for name, tensor in assignment.inputs.items()
            }
        except DigestMismatch as error:
            raise InputLost(f"an input cannot be opened: {error.detail}") from error

    def _streamed(
        self, assignment: Assignment, tensor: Tensor, also: OutputsDigest | None = None, tally: Tally | None = None
    ) -> bytes:
        """The content digest of what nobody looks into, of any length: a record of it is held at a time.

        `also` and `tally` take the same bytes, so that they are read and opened once.
        """
        plain = windows(tensor, self._blobs)
        if also is not None:
            plain = _passed_on(plain, also.update)
        if tally is not None:
            plain = _passed_on(plain, tally.add)
        return scattered_digest(assignment.digest_key, tensor.dtype, tensor.part_shape, plain)

    def _describe(self, assignment: Assignment, tensor: Tensor, opened: Any, by_digest: bool) -> Any:
        if by_digest:
            return described(tensor, opened)
        return described(tensor, content_digest(assignment.digest_key, tensor.dtype, tensor.part_shape, opened))

    # -- what is committed

    def _accepted(self, case: Case, sound: Sound, checking_s: float) -> Accepted | Voted:
        if sound.voters == () and case.task.state is not TaskState.DONE:
            return Voted(
                ref=case.ref,
                outputs=case.entry.outputs,
                statement=case.entry.statement,
                index=case.index,
                seconds=case.seconds,
                checking_s=checking_s,
                last=len(case.task.votes) + 1 >= MAX_VOTES,
            )
        kept = workload(case.assignment.kind).keeps_outputs(case.job.spec)
        outputs = case.entry.outputs if kept else {}
        if case.task.state is TaskState.DONE:
            outputs = case.task.outputs
        manifest = None
        if case.is_whole and case.task.state is not TaskState.DONE:
            manifest = ResultManifest(outputs=shaped(outputs, case.job.plan), dropped=not kept, digest=sound.content)
        return Accepted(
            ref=case.ref,
            outputs=outputs,
            evidence=sound.evidence,
            statement=case.entry.statement,
            index=case.index,
            seconds=case.seconds,
            checking_s=checking_s,
            failed_calls=sound.failed_calls,
            checked_by_us=sound.evidence.kind in OUR_OWN,
            result=manifest,
        )

    def _failed(self, worker: WorkerRow, case: Case, finding: Wrong | InputLost) -> Failed:
        if isinstance(finding, InputLost):
            error = TaskError(code="input-lost", message=str(finding), fault="task")
            return Failed(ref=case.ref, error=error, seconds=case.seconds, final=True)
        return Failed(
            ref=case.ref,
            error=TaskError(code=finding.code, message=finding.message, fault=fault_of(worker, case, finding)),
            proven_wrong=finding.proven,
            seconds=case.seconds,
            final=(blames_task(case) and case.is_blamed) or self._hopeless(case.job, case.task, worker.id),
        )

    def _ruling(self, case: Case, outcome: Accepted | Voted | Failed, done: Completed, sound: Sound | None) -> Ruling:
        cost = case.task.spec.cost
        accepted = not isinstance(outcome, Failed) and done.verdict == "accepted"
        return Ruling(
            ref=case.ref,
            completed=done,
            failed=isinstance(outcome, Failed) and done.verdict != "fenced" and outcome.error.fault != "task",
            amount=cost.amount if accepted and case.held is not None else 0.0,
            speed_key=cost.speed_key,
            seconds=case.seconds,
            worked_s=sound.ran.seconds if sound is not None else 0.0,
            duty=sound.ran.duty if sound is not None else 1.0,
            fresh=accepted and case.task.state is not TaskState.DONE,
            units=sum(prod(planned.shape) for planned in case.task.spec.outputs.values()),
            made_bytes=_open_bytes(case),
            flops=cost.flops,
            device=sound.ran.device if sound is not None else "",
        )

    async def _forget_dropped(
        self, worker: WorkerRow, cases: Sequence[Case], ended: Sequence[Accepted | Voted | Failed]
    ) -> None:
        """Delete uploads that nothing refers to: outputs of a benchmark, and of refused results."""
        gone: list[str] = []
        for case, outcome in zip(cases, ended, strict=True):
            if case.task.state is TaskState.DONE:
                continue
            kept = {} if isinstance(outcome, Failed) else outcome.outputs
            gone += [
                tensor.data.digest
                for name, tensor in case.entry.outputs.items()
                if isinstance(tensor.data, Blob) and name in case.assignment.outputs and name not in kept
            ]
        await self._uploads.forget(worker.id, gone)


def level_for(wanted: Check, worker: WorkerRow) -> Check:
    """How a result of `worker` is checked: as its job wants, but in full while the worker is on probation.

    Where two owners must agree, they are asked, and nothing is known better.
    """
    if is_on_probation(worker.trust):
        return "full"
    return "none" if wanted == "agree" else wanted


def _was_leased(task: TaskRow, worker: str, ref: LeaseRef) -> bool:
    """Whether this worker ever had exactly this lease; whether it still counts is the store's to say."""
    return any(
        attempt.number == ref.attempt and attempt.worker == worker and attempt.token == ref.token
        for attempt in task.attempts
    )


def _beginning(whole: OutputsDigest | None, name: str, tensor: Tensor) -> OutputsDigest | None:
    """The digest of a job's outputs, at the next of them."""
    if whole is not None:
        whole.begin(name, tensor.dtype, tensor.shape)
    return whole


def _passed_on(pieces: Iterable[Plain], to: Callable[[Plain], None]) -> Iterator[Plain]:
    for piece in pieces:
        to(piece)
        yield piece


def _is_heavy(cases: Sequence[Case]) -> bool:
    amount = 0
    flops = 0.0
    for case in cases:
        amount += sum(tensor.part_bytes for tensor in case.assignment.inputs.values())
        amount += sum(tensor.whole_bytes for tensor in case.entry.outputs.values())
        flops += case.task.spec.cost.flops
        if amount > OFFLOAD_BYTES or flops > OFFLOAD_FLOPS:
            return True
    return False


def _open_bytes(case: Case) -> int:
    """Bytes of outputs whose size was left open."""
    planned = case.task.spec.outputs
    return sum(
        tensor.whole_bytes
        for name, tensor in case.entry.outputs.items()
        if name in planned and planned[name].most_bytes is not None
    )


def _content(outputs: Mapping[str, Tensor], plain: Mapping[str, Any]) -> str:
    whole = OutputsDigest()
    for name in sorted(outputs) if len(outputs) > 1 else outputs:
        whole.begin(name, outputs[name].dtype, outputs[name].shape)
        whole.update(plain[name])
    return whole.hex()


def _fenced(ref: LeaseRef, detail: str) -> Ruling:
    return Ruling(ref=ref, completed=Completed(ref=ref, verdict="fenced", detail=detail))
