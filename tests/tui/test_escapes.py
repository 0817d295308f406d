"""Whatever a worker, a job or a log says, no control byte of it reaches a terminal: every screen, every list."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot

from moregpu.errors import InvalidRequest
from moregpu.wire.api import Event, InviteView, JobView, LimitsView, TokenView, WorkerView
from moregpu_tui.actions import SCREENS
from moregpu_tui.state.events import JobRow, Live, WorkerRow, about, happened, heard, job_of, tasks_of, worker_of
from tests.tui.stage import Stage, played, press, settled, text_of, until

EVIL = "\x1b]52;c;aGFja2Vk\x07\x1b[2J\x1b[31mred\x9b1m\u202egpj.exe\u2066[/bold][link=x]" + "A" * 10_000
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def strings(value: object) -> list[str]:
    """Every text inside."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, msgspec.Struct):
        return [text for name in value.__struct_fields__ for text in strings(getattr(value, name))]
    if isinstance(value, dict):
        return [text for key, each in value.items() for text in (*strings(key), *strings(each))]
    if isinstance(value, list | tuple):
        return [text for each in value for text in strings(each)]
    return []


def clean(value: object) -> bool:
    return not any(CONTROL.search(text) or len(text) > 2_100 for text in strings(value))


def evil_worker(id: str) -> WorkerView:
    base = next(iter(Stage(seconds=0).pool.workers.values()))
    device = msgspec.structs.replace(base.devices[0], name=EVIL, driver=EVIL, engine=EVIL)
    return msgspec.structs.replace(
        base, id=id, name=EVIL, owner=EVIL, groups=[EVIL], reason=EVIL, devices=[device], kinds=[EVIL], system=EVIL,
        version=EVIL, isolation=EVIL, limits=LimitsView(schedule=EVIL), owner_limits=LimitsView(schedule=EVIL),
        speeds={EVIL: 1e9},
    )  # fmt: skip


def evil_job(stage: Stage) -> JobView:
    base = next(job for job in stage.pool.jobs.values() if job.tasks)
    tasks = [
        msgspec.structs.replace(
            task,
            attempts=[msgspec.structs.replace(attempt, worker_name=EVIL, error=EVIL) for attempt in task.attempts],
        )
        for task in base.tasks or []
    ]
    return msgspec.structs.replace(
        base, name=EVIL, summary=EVIL, kind=EVIL, submitter=EVIL, waiting_reason=EVIL, tasks=tasks
    )


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_events_are_clean_once_they_are_decoded(text: str) -> None:
    for kind in ("worker.online", "worker.live", "job.failed", "log", "pool.odd", text):
        event = Event(type=kind, id=text, data={"reason": text, text: text, "lines": [text], "name": {"a": text}})
        one = happened(event)
        assert clean(one.data if isinstance(one, Live) else one.event)  # the id of figures is only looked up
        assert heard(msgspec.json.encode(event)) == one


def test_rows_are_clean_once_they_are_decoded() -> None:
    stage = Stage(seconds=8)
    assert clean(worker_of(evil_worker("w-A")))
    assert clean(job_of(evil_job(stage)))
    assert clean(tasks_of(evil_job(stage).tasks))
    invite = InviteView(id="i-A", owner=EVIL, groups=[EVIL], kinds=[EVIL], uses_left=1, expires_at=0, created_at=0)
    token = TokenView(
        id="k", label=EVIL, role="viewer", created_at=0, kinds=[EVIL], groups=[EVIL], line="MGPUC1-SECRET"
    )
    found = about(invites=[invite], tokens=[token])
    assert clean(found)
    assert not any("SECRET" in text for text in strings(found))


@pytest.mark.parametrize("screen", SCREENS)
def test_no_screen_sends_a_control_byte_of_a_strangers_text(screen: str) -> None:
    stage = Stage(seconds=8)
    worker = worker_of(evil_worker("w-" + "0" * 26))
    job = evil_job(stage)
    stage.store.offer(
        WorkerRow(seq=1, worker=worker),
        JobRow(seq=999, job=job_of(job), tasks=tasks_of(job.tasks)),
        happened(Event(type="log", id=job.id, at=stage.at, data={"lines": [EVIL] * 5, "worker": worker.id})),
        happened(Event(type="worker.offline", id=worker.id, seq=10_000, at=stage.at, data={"name": EVIL})),
        happened(Event(type="job.failed", id=job.id, seq=10_001, at=stage.at, data={"name": EVIL, "detail": EVIL})),
        about(invites=[InviteView(id="i-A", owner=EVIL, groups=[EVIL], kinds=[EVIL], uses_left=1,
                                  expires_at=stage.at + 9, created_at=0)],
              tokens=[TokenView(id="k-1", label=EVIL, role="viewer", created_at=1.0, groups=[EVIL])]),
    )  # fmt: skip
    stage.store.take(stage.at)
    app = stage.console()
    sent: list[str] = []

    async def play(pilot: Pilot[int]) -> None:
        app.open_job(job.id)
        await settled(app)
        app.switch_mode(screen)
        await settled(app)
        app.open_worker(worker.id) if screen == "workers" else None
        await press(app, "G")
        app.warn(f"sesame {EVIL[:80]}")
        app.fail(InvalidRequest(f"mustard {EVIL[:80]}", EVIL[:80]))
        await until(pilot, lambda: "sesame" in text_of(app) and "mustard" in text_of(app), "both toasts")
        sent.append(text_of(app))

    played(app, play, size=(200, 50), toasts=True)
    shown = sent[0]
    assert not CONTROL.search(shown.replace("\n", ""))
    assert len(shown.splitlines()) <= 50
