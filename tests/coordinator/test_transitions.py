"""Transitions: every history of one task keeps to the tables, and at most one attempt is ever accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator import transitions
from moregpu.coordinator.store.protocol import MAX_LOSSES, TaskRow
from moregpu.coordinator.transitions import Standing, standing
from moregpu.jobs import AttemptState, IllegalMove, JobState, TaskState
from moregpu.wire.messages import LeaseRef, TaskError
from tests.coordinator.store import rows

JOB = rows.job(grains=1, retries=3)


def fresh() -> TaskRow:
    return transitions.cut_task("t-1", JOB, rows.task_spec(JOB, 0, 1))[1]


def ref_of(task: TaskRow, attempt: int) -> LeaseRef:
    return LeaseRef(task=task.id, attempt=attempt, token=task.attempts[attempt - 1].token)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "renew", "lose", "hand back", "accept", "fail", "fail finally", "worker's trouble"]),
        st.integers(1, 6),  # which attempt speaks
    ),
    max_size=60,
)


@given(STEPS)
def test_a_task_is_accepted_at_most_once_whatever_comes_in_whatever_order(steps: list[tuple[str, int]]) -> None:
    task = fresh()
    accepted_tokens: list[bytes] = []
    for number, (step, attempt) in enumerate(steps):
        if step == "lease":
            if task.state is TaskState.WAITING:
                token = number.to_bytes(16, "big")
                task = transitions.leased(task, f"w-{number % 3}", token, 0.0, 0.0)
            continue
        if attempt > len(task.attempts):
            continue
        before = task
        ref, worker = ref_of(task, attempt), task.attempts[attempt - 1].worker
        claim = standing(task, ref, worker)
        if claim is Standing.ACCEPTED:
            assert ref.token in accepted_tokens
        if claim not in (Standing.HELD, Standing.BACK):
            continue
        assert attempt == len(task.attempts), "only the newest attempt ever holds anything"
        lease = rows.lease_of(JOB, task)
        if step == "accept":
            task = transitions.accepted(task, rows.accepted(lease), 1.0)
            accepted_tokens.append(ref.token)
        elif step.startswith("fail"):
            task = transitions.failed(task, rows.failed(ref, final=step == "fail finally"), JOB.spec.retries, 1.0)
        elif step == "worker's trouble":
            error = TaskError(code="unavailable", message="", fault="worker")
            task = transitions.failed(task, rows.failed(ref, error=error), JOB.spec.retries, 1.0)
        elif claim is Standing.BACK:
            task = transitions.held_again(task, 1.0) if step == "renew" else task
        elif step == "renew":
            task = transitions.renewed(task, ref.token, 1.0)
        else:
            task = transitions.lost(task, ref.token, 1.0, "x", keep_token=step == "lose")
        assert len(task.attempts) == len(before.attempts)
        assert (task.state is TaskState.LEASED) == (task.worker is not None and not transitions.is_over(task))
        assert task.failures <= JOB.spec.retries
        assert task.losses <= MAX_LOSSES
    assert len(accepted_tokens) <= 1
    assert (task.state is TaskState.DONE) == bool(accepted_tokens)
    if transitions.is_over(task):
        for attempt in range(1, len(task.attempts) + 1):
            claim = standing(task, ref_of(task, attempt), task.attempts[attempt - 1].worker)
            assert claim not in (Standing.HELD, Standing.BACK)


def test_an_ended_task_moves_no_more() -> None:
    task = transitions.leased(fresh(), "w-1", b"1" * 16, 0.0, 0.0)
    done = transitions.accepted(task, rows.accepted(rows.lease_of(JOB, task)), 1.0)
    for move in (
        lambda: transitions.leased(done, "w-2", b"2" * 16, 0.0, 0.0),
        lambda: transitions.withdrawn(done, 0.0),
        lambda: transitions.lost(done, done.token, 0.0, ""),
        lambda: transitions.accepted(done, rows.accepted(rows.lease_of(JOB, done)), 0.0),
    ):
        with pytest.raises(IllegalMove):
            move()


def test_a_withdrawn_task_ends_its_attempt_and_forgets_its_token() -> None:
    task = transitions.withdrawn(transitions.leased(fresh(), "w-1", b"1" * 16, 0.0, 0.0), 2.0)
    assert (task.state, task.token, task.attempts[0].state) == (TaskState.CANCELLED, b"", AttemptState.LOST)


@pytest.mark.parametrize("grains", [(1, 2), (0, 0), (0, 2), (-1, 1)])
def test_a_cut_begins_at_the_cursor_and_stays_inside(grains: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="cursor"):
        transitions.cut_task("t-1", JOB, rows.task_spec(JOB, *grains))


def test_a_job_ends_once() -> None:
    ended = transitions.ended(JOB, JobState.CANCELLED, 1.0)
    for state in JobState:
        with pytest.raises(IllegalMove):
            transitions.ended(ended, state, 2.0)


def test_retries_of_zero_still_allow_one_attempt() -> None:
    task = transitions.leased(fresh(), "w-1", b"1" * 16, 0.0, 0.0)
    assert transitions.failed(task, rows.failed(ref_of(task, 1)), 0, 0.0).state is TaskState.FAILED
