"""Doors to what came out: the result as a file or sealed, and the signed statements."""

from __future__ import annotations

from moregpu.coordinator.api.ask import Answer, Ask, Stream
from moregpu.coordinator.api.problems import PROBLEM_JSON, encoded, problem
from moregpu.coordinator.api.render import MEDIA_TYPES, form_for, rendered
from moregpu.errors import JobCancelled, JobFailed, MoreGPUError, ResultGone, StillRunning
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.wire.api import ResultManifest, Signed

MAX_WAIT_S = 60.0


async def result(ask: Ask) -> Answer | Stream:
    """The outputs to their owner: `.npy` or `.safetensors` by Accept or `?format=`; `?sealed=1`: names and keys.

    202 while the job runs (`?wait=` seconds for it first); 409 when it failed or was cancelled; 410 when they are gone.
    """
    desk, row = ask.services.desk, ask.job
    wait_s = ask.number("wait", 0.0, 0.0, MAX_WAIT_S)
    if wait_s > 0 and row.state not in JOB_ENDED:
        row = await desk.wait(row.id, wait_s)
    if row.state not in JOB_ENDED:
        return _refused(StillRunning(f"{row.id} is {row.state.value}", "ask again, with ?wait= seconds"), 202)
    if row.state is JobState.FAILED:
        error = row.error
        detail = f"{row.id} failed: {error.detail or error.title}" if error else f"{row.id} failed"
        return _refused(JobFailed(detail, error.hint if error else ""), 409)
    if row.state is JobState.CANCELLED:
        return _refused(JobCancelled(f"{row.id} was cancelled", "submit it again: POST …/retry"), 409)
    manifest = row.result
    if row.purged or manifest is None or not (manifest.outputs or manifest.dropped):
        raise ResultGone(f"the outputs of {row.id} are no longer kept", "submit it again, with a longer keep_s")
    if ask.flag("sealed"):
        return ask.answer(manifest)
    if manifest.dropped:
        raise ResultGone(f"{row.id} was a benchmark: its output was checked and dropped", "submit it with inputs")
    return _file(ask, row.id, manifest)


async def statements(ask: Ask) -> Answer:
    """Who signed what: the accepted statements with the signatures over them."""
    store = ask.services.desk.store
    workers = {worker.id: worker for worker in await store.workers()}
    signed: list[Signed] = []
    for row, batch in await store.statements(ask.job.id):
        worker = workers.get(row.worker)
        signed.append(
            Signed(
                task=row.task,
                attempt=row.attempt,
                worker=row.worker,
                worker_name=worker.name if worker else "",
                wi_pub=worker.wi_pub if worker else b"",
                statement=row.statement,
                batch=list(batch.digests),
                index=row.index,
                signature=batch.signature,
                ledger=(row.writer, row.row, row.hash),
            )
        )
    return ask.answer(signed)


def _file(ask: Ask, job: str, manifest: ResultManifest) -> Stream:
    desk = ask.services.desk
    form, names = form_for(
        ask.headers.get("accept", ""), ask.query.get("format", ""), list(manifest.outputs), ask.query.get("output")
    )
    tensors = {name: desk.open_tensor(manifest.outputs[name]) for name in names}
    length, pieces = rendered(form, tensors, ask.services.offload)
    return Stream(
        parts=pieces,
        length=length,
        media_type=MEDIA_TYPES[form],
        headers=(
            (b"content-disposition", f'attachment; filename="{job}.{form}"'.encode()),
            (b"x-moregpu-digest", manifest.digest.encode()),
        ),
    )


def _refused(error: MoreGPUError, status: int) -> Answer:
    """These classes carry the status of a wait that came back; a fetch of what is not there says so."""
    headers = ((b"retry-after", b"1"),) if status == 202 else ()
    return Answer(status=status, body=encoded(problem(error, status)), media_type=PROBLEM_JSON, headers=headers)
