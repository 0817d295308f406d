"""A program that goes takes its calls with it, unless they were told to go on, or it comes back in time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from moregpu.wire.link import Accepted, Cancel, Follow, Refused, Shown

from .conftest import Pool
from .test_link import link

GRACE_S = 0.2


@pytest.fixture
def quick(pool: Pool) -> Pool:
    pool.services.desk.attendance.grace_s = GRACE_S
    return pool


def spec(**more: Any) -> dict[str, Any]:
    line = {"dtype": "uint8", "shape": [1], "data": b"x"}
    return {
        "kind": "function",
        "calls": [1],
        "inputs": {"program": line, "arguments": line},
        "detach": False,
        **more,
    }


def state_after(pool: Pool, token: str, job: str, wanted: str) -> str:
    until = time.monotonic() + 10
    while True:
        state = pool.ask("GET", f"/v1/jobs/{job}", token).json()["state"]
        if state == wanted or time.monotonic() > until:
            return state
        time.sleep(0.02)


def submitted(line: Any, **more: Any) -> str:
    line.submit(1, spec(**more), early=True, idempotency_key=str(time.monotonic_ns()))
    return line.until(Accepted, 1).job.id


def test_calls_end_when_their_program_is_gone(quick: Pool) -> None:
    token = quick.token("submitter")
    with link(quick, token) as line:
        job = submitted(line)
    assert state_after(quick, token, job, "cancelled") == "cancelled"


def test_who_drops_while_submitting_is_missed_too(quick: Pool) -> None:
    token = quick.token("submitter")
    with link(quick, token) as line:
        line.submit(1, spec(name="quick to go"), idempotency_key="gone at once")
        until = time.monotonic() + 10
        while not (jobs := quick.ask("GET", "/v1/jobs", token).json()["items"]) and time.monotonic() < until:
            time.sleep(0.01)
    assert state_after(quick, token, jobs[0]["id"], "cancelled") == "cancelled"


def test_detached_calls_go_on(quick: Pool) -> None:
    token = quick.token("submitter")
    with link(quick, token) as line:
        alone = submitted(line, detach=True)
    with link(quick, token) as line:
        missed = submitted(line)
    assert state_after(quick, token, missed, "cancelled") == "cancelled"  # the other had the longer time
    assert state_after(quick, token, alone, "queued") == "queued"


def test_who_comes_back_in_time_finds_the_calls_running(quick: Pool) -> None:
    quick.services.desk.attendance.grace_s = 1.0
    token = quick.token("submitter")
    with link(quick, token) as line:
        job = submitted(line)
    with link(quick, token) as back:
        back.send(Follow(id=2, job=job))
        back.until(Accepted, 2)
        with link(quick, token) as line:
            other = submitted(line)
        assert state_after(quick, token, other, "cancelled") == "cancelled"  # it had less time than the first
        assert state_after(quick, token, job, "queued") == "queued"
    assert state_after(quick, token, job, "cancelled") == "cancelled"


def test_a_job_is_cancelled_by_its_key_before_its_id_is_known(quick: Pool) -> None:
    token = quick.token("submitter")
    with link(quick, token) as line:
        line.submit(1, spec(), idempotency_key="mine")
        until = time.monotonic() + 10
        while not quick.ask("GET", "/v1/jobs", token).json()["items"] and time.monotonic() < until:
            time.sleep(0.01)
        line.send(Cancel(id=2, idempotency_key="mine"))
        assert line.until(Shown, 2).job.state == "cancelled"
        line.send(Cancel(id=3, idempotency_key="nobody's"))
        assert line.until(Refused, 3).problem.type.endswith("not-found")
    with link(quick, quick.token("submitter")) as other:
        other.send(Cancel(id=4, idempotency_key="mine"))
        assert other.until(Refused, 4).problem.type.endswith("not-found")
