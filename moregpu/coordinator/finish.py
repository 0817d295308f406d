"""A job's outputs from its tasks' outputs: off the loop, streaming, into fresh sealed blobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.opening import SealedWriter, open_arrays, open_windows, shaped, windows
from moregpu.coordinator.protocol import Clock, Offload
from moregpu.coordinator.store.protocol import BlobRow, JobRow, Store, TaskRow
from moregpu.errors import MoreGPUError, OutOfSpace
from moregpu.jobs import JOB_ENDED, Blob, TaskState
from moregpu.wire.api import Problem, ResultManifest
from moregpu.wire.statement import OutputsDigest
from moregpu.workloads import workload
from moregpu.workloads.protocol import Part, in_order

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""A full disk: the job stays as it is, ready, and is combined again after so long."""


class Finisher:
    """Combines jobs whose grains are all accepted."""

    def __init__(
        self, store: Store, blobs: BlobFiles, clock: Clock, offload: Offload, entropy: Callable[[int], bytes]
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self._offload = offload
        self._entropy = entropy
        self._at_work: set[str] = set()
        self._full = asyncio.Event()

    async def finish(self, job_id: str) -> None:
        """Combine a job and end it. Called twice for one job, the second call does nothing."""
        if job_id in self._at_work:
            return
        self._at_work.add(job_id)
        try:
            await self._finish(job_id)
        except OutOfSpace:
            self._full.set()
            log.error("no room to combine a job; trying again", extra={"job": job_id})
        finally:
            self._at_work.discard(job_id)

    async def retry(self, again: Callable[[str], None]) -> None:
        """Try jobs again that found the disk full. Runs until cancelled."""
        while True:
            await self._full.wait()
            await asyncio.sleep(RETRY_S)
            self._full.clear()
            for job in await self._store.ready_jobs():
                again(job)

    async def _finish(self, job_id: str) -> None:
        job = await self._store.job(job_id)
        if job is None or job.state in JOB_ENDED:
            return
        tasks = await self._store.tasks(job_id)
        began = self._clock.monotonic()
        writer = SealedWriter(self._blobs, job.submitter, self._entropy)
        problem: Problem | None = None
        result: ResultManifest | None = None
        try:
            result = await self._offload(lambda: combine(job, tasks, self._blobs, writer))
        except OutOfSpace:
            raise
        except MoreGPUError as error:
            problem = problem_of(error)
        for digest, sealed_bytes in writer.written:
            await self._store.add_blob(
                BlobRow(
                    digest=digest, sealed_bytes=sealed_bytes, principal=job.submitter, created_at=self._clock.wall()
                )
            )
        combining_s = self._clock.monotonic() - began
        await self._store.finish(job_id, result=result, error=problem, combining_s=combining_s, wall=self._clock.wall())


def combine(job: JobRow, tasks: list[TaskRow], blobs: BlobFiles, writer: SealedWriter) -> ResultManifest:
    """A job's result (blocking). Leaves nothing half-written behind when it raises."""
    kind = workload(job.kind)
    if not kind.keeps_outputs(job.spec):
        return ResultManifest(dropped=True)
    done = [task for task in tasks if task.state is TaskState.DONE]
    if len(done) == 1 and done[0].spec.grains == (0, job.plan.grains):
        return _handed_through(job, done[0], blobs)
    if kind.hands_through(done_bytes(done), len(done)):
        return _parts_handed_through(done)
    opened = open_windows if kind.by_digest else open_arrays
    parts = in_order(
        Part(
            task=task.spec,
            open=lambda task=task: opened(task.outputs, blobs),
            shapes={name: tensor.shape for name, tensor in task.outputs.items()},
        )
        for task in done
    )
    try:
        kind.combine(job.plan, parts, writer)
        outputs, digest = writer.finish()
    except BaseException:
        writer.abort()
        raise
    return ResultManifest(outputs=outputs, digest=digest)


def _handed_through(job: JobRow, task: TaskRow, blobs: BlobFiles) -> ResultManifest:
    """One task made the whole output: its tensors are the job's, under the key that their worker chose."""
    digest = OutputsDigest()
    outputs = shaped(task.outputs, job.plan)
    for name in sorted(outputs):
        tensor = outputs[name]
        digest.begin(name, tensor.dtype, tensor.shape)
        for window in windows(tensor, blobs):
            digest.update(window)
    return ResultManifest(outputs=outputs, digest=digest.hex())


def done_bytes(tasks: list[TaskRow]) -> int:
    """Bytes of all tasks' outputs."""
    return sum(tensor.whole_bytes for task in tasks for tensor in task.outputs.values())


def _parts_handed_through(tasks: list[TaskRow]) -> ResultManifest:
    """Every task's outputs as outputs of the job, under name and first grain: nothing is read or sealed anew."""
    outputs = {
        f"{name}/{task.spec.grains[0]:08}": tensor
        for task in sorted(tasks, key=lambda task: task.spec.grains)
        for name, tensor in task.outputs.items()
    }
    digest = OutputsDigest()
    for name, tensor in outputs.items():
        digest.begin(name, tensor.dtype, tensor.shape)
        # Of sealed bytes their own name stands for them: who opens them verifies it.
        digest.update(tensor.data.digest.encode() if isinstance(tensor.data, Blob) else tensor.data)
    return ResultManifest(outputs=outputs, digest=digest.hex())


def problem_of(error: MoreGPUError) -> Problem:
    """An error as its problem document."""
    return Problem(
        type=f"about:moregpu/{error.code}",
        title=error.title,
        status=error.status,
        detail=error.detail,
        hint=error.hint,
    )
