"""Submitting and looking at jobs, as MoreGPU 1.x does."""

from __future__ import annotations

import asyncio

import msgspec

from moregpu.coordinator.api.ask import Answer, Ask, Stream
from moregpu.coordinator.api.compat.body import SubmitBody, read_body
from moregpu.coordinator.api.compat.record import operation_of, output_of, record_of, whole_record
from moregpu.coordinator.api.compat.sealing import kept
from moregpu.coordinator.api.compat.shown import shown
from moregpu.coordinator.api.compat.spec import spec_of
from moregpu.coordinator.api.compat.weights import weight_of
from moregpu.coordinator.api.fleetnow import backend_of, is_paused
from moregpu.coordinator.api.scopes import admit_spec
from moregpu.coordinator.store.protocol import JobRow
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.workloads import JobSpec

WAIT_S = 30.0
LISTED = 50


async def submit(ask: Ask) -> Answer | Stream:
    """Submit, and wait up to 30 s for the result: 200 with the record; 202 where it is not done by then."""
    spec, said_async = await _spec(ask)
    services = ask.services
    at_once = said_async or ask.flag("async")
    nobody = not any(worker.state == "online" and not is_paused(worker) for worker in await services.desk.workers())
    wait_s = 0.0 if at_once or nobody else WAIT_S
    row = await services.desk.submit(ask.who, spec, "", wait_s)
    if row.state in JOB_ENDED and not at_once:
        return await _whole(ask, row)
    note = None
    if nobody:
        note = "no workers take work now (none is connected, or all rest): the job runs as soon as one does"
    elif not at_once:
        note = f"still running after {WAIT_S:g} s: poll for the result"
    if note is None:
        return shown(_handle(row), 202)
    record = await record_of(services, row, {})
    return shown(msgspec.structs.replace(record, poll=f"/jobs/{row.id}", note=note), 202)


async def jobs(ask: Ask) -> Answer:
    """The newest 50, without outputs; a submitter's own."""
    services = ask.services
    submitter = ask.who.id if ask.who.role == "submitter" else None
    rows = await services.desk.store.jobs(submitter=submitter, limit=LISTED)
    backends = await _backends(ask)
    return shown([await record_of(services, row, backends, listed=True) for row in rows])


async def job(ask: Ask) -> Answer | Stream:
    """One job; its output to its owner alone."""
    return await _whole(ask, ask.job)


async def _spec(ask: Ask) -> tuple[JobSpec, bool]:
    """Read the body and let go of it: what is kept is sealed. With it, whether it says not to wait."""
    body = await read_body(ask, SubmitBody)
    at_once = body.at_once is True
    spec = spec_of(body, weight_of(ask, body.bRef))
    admit_spec(ask.who, spec)
    del body
    names = list(spec.inputs)
    sealed = await asyncio.gather(*(kept(ask, spec.inputs[name]) for name in names))
    return msgspec.structs.replace(spec, inputs=dict(zip(names, sealed, strict=True))), at_once


async def _whole(ask: Ask, row: JobRow) -> Answer | Stream:
    services = ask.services
    mine = ask.who.role == "admin" or row.submitter == ask.who.id
    record = await record_of(services, row, await _backends(ask))
    return whole_record(services, record, output_of(services, row) if mine else None)


def _handle(row: JobRow) -> dict[str, str]:
    status = "running" if row.state is JobState.RUNNING else "done" if row.state is JobState.DONE else "queued"
    return {"id": row.id, "status": status, "kernel": operation_of(row), "poll": f"/jobs/{row.id}"}


async def _backends(ask: Ask) -> dict[str, str]:
    return {worker.id: backend_of(worker) for worker in await ask.services.desk.workers()}
