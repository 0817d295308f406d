"""Doors to jobs: submit, look, wait, cancel, again."""

from __future__ import annotations

from typing import cast

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.scopes import admit_spec
from moregpu.coordinator.store.protocol import JobRow
from moregpu.errors import Conflict, InvalidRequest
from moregpu.ids import normalise
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.wire.api import JobChange, JobPage
from moregpu.workloads import KINDS, JobSpec

_SPEC = cast("type[JobSpec]", JobSpec)
MAX_WAIT_S = 60.0
MAX_PAGE = 500
MAX_KEY_CHARACTERS = 200


async def submit(ask: Ask) -> Answer:
    """Submit a JobSpec: 201 with the job, or 200 when it ended within `?wait=` seconds (at most 60)."""
    spec = await ask.decoded(_SPEC)
    admit_spec(ask.who, spec)
    key = _key(ask)
    wait_s = ask.number("wait", 0.0, 0.0, MAX_WAIT_S)
    row = await ask.services.desk.submit(ask.who, spec, key, wait_s)
    return await _shown(ask, row, status=200 if row.state in JOB_ENDED else 201)


async def plan(ask: Ask) -> Answer:
    """The same without running: grains, fitting workers, estimate, memory."""
    spec = await ask.decoded(_SPEC)
    admit_spec(ask.who, spec)
    return ask.answer(await ask.services.desk.plan(ask.who, spec))


async def list_jobs(ask: Ask) -> Answer:
    """Jobs, newest first; a submitter's own. `after` is the last id of the page before."""
    query = ask.query
    states = _states(query.get("state", ""))
    kind = query.get("kind")
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(f"there is no kind of job called {kind[:40]!r}", f"kinds: {', '.join(KINDS)}")
    limit = int(ask.number("limit", 50, 1, MAX_PAGE))
    desk = ask.services.desk
    submitter = query.get("submitter")
    if ask.who.role == "submitter":
        if submitter not in (None, ask.who.id):
            return ask.answer(JobPage(items=[]))
        submitter = ask.who.id
    rows = await desk.store.jobs(
        submitter=submitter, states=states, kind=kind, before=_after(query.get("after", "")), limit=limit + 1
    )
    views = [await desk.view(ask.who, row) for row in rows[:limit]]
    return ask.answer(JobPage(items=views, next=rows[limit - 1].id if len(rows) > limit else None))


async def show(ask: Ask) -> Answer:
    """One job with its tasks and attempts; with `?wait=` seconds, when it ended or the time is up."""
    wait_s = ask.number("wait", 0.0, 0.0, MAX_WAIT_S)
    row = ask.job
    if wait_s > 0 and row.state not in JOB_ENDED:
        row = await ask.services.desk.wait(row.id, wait_s)
    return ask.answer(await ask.services.desk.view(ask.who, row, detail=True))


async def cancel(ask: Ask) -> Answer:
    """End a job; with `?purge=1`, forget an ended job's outputs and keys."""
    desk = ask.services.desk
    if ask.flag("purge"):
        if ask.job.state not in JOB_ENDED:
            raise Conflict(f"{ask.job.id} has not ended", "cancel it first: DELETE without purge")
        return ask.answer(await desk.view(ask.who, await desk.store.purge(ask.job.id)))
    return ask.answer(await desk.view(ask.who, await desk.cancel(ask.who, ask.job.id)))


async def change(ask: Ask) -> Answer:
    """Change a job's name, priority, or how long its outputs are kept: only what is named."""
    wanted = await ask.decoded(JobChange)
    return ask.answer(
        await ask.services.desk.view(ask.who, await ask.services.desk.change_job(ask.who, ask.job.id, wanted))
    )


async def retry(ask: Ask) -> Answer:
    """Submit the same spec again, as a new job; a repeated call under one `Idempotency-Key` finds that job."""
    admit_spec(ask.who, ask.job.spec)
    return await _shown(ask, await ask.services.desk.retry(ask.who, ask.job.id, _key(ask)), status=201)


def _key(ask: Ask) -> str:
    key = ask.headers.get("idempotency-key", "")
    if len(key) > MAX_KEY_CHARACTERS:
        raise InvalidRequest(f"an Idempotency-Key has at most {MAX_KEY_CHARACTERS} characters")
    return key


async def _shown(ask: Ask, row: JobRow, status: int) -> Answer:
    view = await ask.services.desk.view(ask.who, row)
    return ask.answer(view, status, ((b"location", f"/v1/jobs/{row.id}".encode()),))


def _after(text: str) -> str | None:
    """The last id of the page before, as it is kept: what was typed in lower case would stand before every job."""
    if not text:
        return None
    id = normalise(text)
    if not id.startswith("j-"):
        raise InvalidRequest(f"after={text[:40]!r} is no job's id", "give the `next` of the page before")
    return id


def _states(text: str) -> list[JobState] | None:
    if not text:
        return None
    try:
        return [JobState(name.strip()) for name in text.split(",")]
    except ValueError:
        raise InvalidRequest(
            f"state={text[:60]!r} names no state", f"states: {', '.join(state.value for state in JobState)}"
        ) from None
