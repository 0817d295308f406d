"""Transitions: every history of one task keeps to the tables, and at most one attempt is ever accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moregpu.coordinator import transitions
from moregpu.coordinator.store.protocol import MAX_LOSSES, Accepted, Failed, TaskRow, Vote, Voted
from moregpu.coordinator.transitions import Standing, standing
from moregpu.jobs import AttemptState, IllegalMove, JobState, TaskState
from moregpu.wire.messages import LeaseRef, TaskError
from tests.coordinator.store import rows

JOB = rows.job(grains=1, retries=3)


def fresh() -> TaskRow:
    return transitions.cut_task("t-1", JOB, rows.task_spec(JOB, 0, 1))[1]


def ref_of(task: TaskRow, attempt: int) -> LeaseRef:
    return LeaseRef(task=task.id, attempt=attempt, token=task.attempts[attempt - 1].token)


def accepted_by(ref: LeaseRef) -> Accepted:
    return replace(rows.accepted(rows.lease_of(JOB, transitions.leased(fresh(), "w", b"x" * 16, 0, 0))), ref=ref)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["lease", "again", "renew", "lose", "hand back", "accept", "fail", "fail finally", "worker's trouble"]
        ),
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
        if step == "again":
            worker = f"w-{number % 3}"
            if len(transitions.leases_of(task)) == 1 and task.worker != worker:
                task = transitions.leased_again(task, worker, number.to_bytes(16, "big"), 0.0, 0.0)
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
        assert attempt >= len(task.attempts) - 1 or task.rival is not None or claim is Standing.HELD
        if step == "accept":
            task = transitions.accepted(task, accepted_by(ref), 1.0)
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
        assert len(transitions.leases_of(task)) <= 2
        assert len({lease.worker for lease in transitions.leases_of(task)}) == len(transitions.leases_of(task))
        assert task.rival is None or task.state is TaskState.LEASED
        out = {lease.attempt for lease in transitions.leases_of(task)}
        open_ = {each.number for each in task.attempts if each.state in (AttemptState.ASSIGNED, AttemptState.STARTED)}
        assert out == open_, "exactly the attempts whose leases are out go on"
        assert (task.state is TaskState.LEASED) == (task.worker is not None and not transitions.is_over(task))
        assert task.failures <= JOB.spec.retries + 1, "one more where two tried at once"
        assert task.losses <= MAX_LOSSES
    assert len(accepted_tokens) <= 1
    assert (task.state is TaskState.DONE) == bool(accepted_tokens)
    if transitions.is_over(task):
        for attempt in range(1, len(task.attempts) + 1):
            claim = standing(task, ref_of(task, attempt), task.attempts[attempt - 1].worker)
            assert claim not in (Standing.HELD, Standing.BACK)


def twice() -> TaskRow:
    """A task that is out to w-1 and, since it was late, to w-2."""
    task = transitions.leased(fresh(), "w-1", b"1" * 16, 0.0, 0.0)
    return transitions.leased_again(task, "w-2", b"2" * 16, 0.0, 0.0)


@pytest.mark.parametrize("winner", [1, 2])
def test_of_two_that_try_the_first_wins_and_the_other_is_lost_without_counting(winner: int) -> None:
    task = transitions.accepted(twice(), accepted_by(ref_of(twice(), winner)), 1.0)
    loser = 3 - winner
    assert (task.state, task.worker, task.losses) == (TaskState.DONE, f"w-{winner}", 0)
    assert task.attempts[loser - 1].state is AttemptState.LOST
    assert standing(task, ref_of(task, loser), f"w-{loser}") is Standing.FENCED
    assert standing(task, ref_of(task, winner), f"w-{winner}") is Standing.ACCEPTED


@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("how", ["lost", "failed"])
def test_where_one_of_two_is_gone_the_task_stays_with_the_other(gone: int, how: str) -> None:
    ref = ref_of(twice(), gone)
    if how == "lost":
        task = transitions.lost(twice(), ref.token, 1.0, "the connection ended")
    else:
        task = transitions.failed(twice(), rows.failed(ref), 1, 1.0)
    other = 3 - gone
    assert (task.state, task.worker, task.losses) == (TaskState.LEASED, f"w-{other}", 0)
    assert standing(task, ref_of(task, other), f"w-{other}") is Standing.HELD
    assert standing(task, ref, f"w-{gone}") in (Standing.FENCED, Standing.REJECTED)
    done = transitions.accepted(task, accepted_by(ref_of(task, other)), 1.0)
    assert done.state is TaskState.DONE and done.worker == f"w-{other}"


def test_what_is_nobodys_fault_but_the_tasks_ends_both() -> None:
    task = transitions.failed(twice(), rows.failed(ref_of(twice(), 1), final=True), 4, 1.0)
    assert task.state is TaskState.FAILED and transitions.leases_of(task) == ()
    assert [attempt.state for attempt in task.attempts] == [AttemptState.REJECTED, AttemptState.LOST]


def test_a_third_lease_at_once_and_a_second_of_the_same_worker_are_refused() -> None:
    with pytest.raises(ValueError, match="one other worker"):
        transitions.leased_again(twice(), "w-3", b"3" * 16, 0.0, 0.0)
    with pytest.raises(ValueError, match="one other worker"):
        transitions.leased_again(transitions.leased(fresh(), "w-1", b"1" * 16, 0.0, 0.0), "w-1", b"2" * 16, 0.0, 0.0)


def test_a_vote_waits_for_another_and_the_last_one_without_a_match_ends_the_task() -> None:
    task = fresh()
    for number in (1, 2, 3):
        task = transitions.leased(task, f"w-{number}", bytes([number]) * 16, 0.0, 0.0)
        vote = Vote(attempt=number, worker=f"w-{number}", owner=f"o-{number}")
        entry = Voted(
            ref=ref_of(task, number), outputs={}, statement=b"", index=0, seconds=1.0, last=number == 3
        )  # fmt: skip
        task = transitions.voted(task, entry, vote, 1.0)
        assert standing(task, ref_of(task, number), f"w-{number}") is Standing.VOTED
    assert task.state is TaskState.FAILED and len(task.votes) == 3 and task.failures == 0
    assert transitions.failure_of(task).type == "about:moregpu/not-reproducible"


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


def once() -> TaskRow:
    task = fresh()
    return replace(task, spec=replace(task.spec, once=True))


def test_what_may_run_only_once_is_never_waiting_again_after_it_may_have_run() -> None:
    held = transitions.leased(once(), "w-1", b"x" * 16, 0.0, 0.0)
    gone = transitions.lost(held, b"x" * 16, 1.0, "its worker is gone")
    assert gone.state is TaskState.FAILED
    assert standing(gone, ref_of(gone, 1), "w-1") not in (Standing.HELD, Standing.BACK)
    said = transitions.failure_of(gone)
    assert said.type.endswith("task-lost")
    assert "may have run" in said.hint


def test_what_was_handed_back_untouched_may_go_to_somebody_else_even_then() -> None:
    held = transitions.leased(once(), "w-1", b"x" * 16, 0.0, 0.0)
    back = transitions.lost(held, b"x" * 16, 1.0, "paused", keep_token=False, untouched=True)
    assert back.state is TaskState.WAITING


def test_what_was_taken_from_a_worker_that_may_have_begun_it_is_not_untouched() -> None:
    held = transitions.leased(once(), "w-1", b"x" * 16, 0.0, 0.0)
    assert transitions.lost(held, b"x" * 16, 1.0, "too late", keep_token=False).state is TaskState.FAILED


def test_a_failure_of_what_may_run_only_once_is_its_end() -> None:
    held = transitions.leased(once(), "w-1", b"x" * 16, 0.0, 0.0)
    error = TaskError(code="engine-error", message="its sandbox is gone", fault="engine")
    assert transitions.failed(held, Failed(ref=ref_of(held, 1), error=error), 4, 1.0).state is TaskState.FAILED
