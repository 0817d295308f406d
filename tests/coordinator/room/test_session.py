"""The session core alone: messages and clock values in, decisions out. Nothing here waits."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.conduct import FAST_FAILURES, Conduct
from moregpu.coordinator.decisions import (
    Admit,
    End,
    HandBack,
    Judge,
    Leave,
    Refill,
    Renew,
    Send,
    Take,
    Tell,
    Trial,
)
from moregpu.coordinator.limits import MAX_JUDGING, DeskConfig, RateLimit
from moregpu.coordinator.scheduler import slots_for
from moregpu.coordinator.session import Phase, WorkerSession
from moregpu.coordinator.store.protocol import Lease
from moregpu.coordinator.trials import canary, measurement
from moregpu.wire.messages import (
    Bye,
    Heartbeat,
    Hello,
    LeaseRef,
    Limits,
    Output,
    Policy,
    Progress,
    Refused,
    Reject,
    Result,
    ResultEntry,
    Started,
    Taken,
    Welcome,
)

HELLO = Hello(wi_pub=bytes(32), signature=bytes(64), ws_number=0, ws_signature=bytes(64), boot=bytes(16), name="w")
POLICY = Policy(limits=Limits(ceiling=1.0))
WELCOME = Welcome(worker="w-1", pool=bytes(16), pool_name="p", ci_pub=bytes(32), blob_token="b")


def member(**settings: Any) -> WorkerSession:
    session = WorkerSession(DeskConfig(**settings), 0.0, slots_for)
    assert session.receive(HELLO, 0.0) == [Admit(hello=HELLO)]
    assert session.welcome(WELCOME, POLICY, paused=False, draining=False)[:2] == [
        Send(message=WELCOME),
        Send(message=POLICY),
    ]
    return session


def lease() -> Lease:
    """A lease as a store gives it (a canary's rows look like any other's)."""
    return canary("w-1", os.urandom, 0.0).lease


def give(session: WorkerSession, now: float = 0.0, expected_s: float = 0.001, trial: Trial | None = None) -> LeaseRef:
    given = lease()
    session.assigned(given, expected_s, now, trial)
    return given.ref


def result(*refs: LeaseRef) -> Result:
    return Result(
        entries=[ResultEntry(task=ref.task, attempt=ref.attempt, token=ref.token) for ref in refs],
        signature=bytes(64),
    )


def prove(session: WorkerSession, times: int = 6) -> None:
    for _ in range(times):
        session.ruled(failed=False, succeeded=True)


def test_nothing_happens_before_a_hello_was_admitted() -> None:
    for message in (Heartbeat(sent=0.0), Taken(leases=[]), result(lease().ref), Bye()):
        session = WorkerSession(DeskConfig(), 0.0, slots_for)
        actions = session.receive(message, 0.0)
        assert isinstance(actions[0], Send) and isinstance(actions[0].message, Reject)
        assert isinstance(actions[1], End) and session.phase is Phase.ENDED
        assert session.receive(HELLO, 0.0) == [], "a session that ended hears nothing"


def test_a_second_hello_ends_the_session() -> None:
    session = member()
    assert isinstance(session.receive(HELLO, 1.0)[-1], End)


def test_a_stranger_has_ten_seconds() -> None:
    session = WorkerSession(DeskConfig(), 0.0, slots_for)
    assert session.tick(9.9) == []
    assert isinstance(session.tick(10.1)[0], End)


@given(
    held=st.booleans(),
    rests=st.booleans(),
    stranger=st.booleans(),
    now=st.one_of(st.floats(0.0, 200.0), st.floats(86_000.0, 87_000.0)),
    heard=st.floats(0.0, 200.0),
)
def test_of_a_quiet_session_time_makes_nothing(
    held: bool, rests: bool, stranger: bool, now: float, heard: float
) -> None:
    session = WorkerSession(DeskConfig(), 0.0, slots_for) if stranger else member()
    if held:
        session.assigned(lease(), 0.1, 0.0)
    if rests:
        session.lapsed([lease().ref], 0.0)
        session.rest_until = 1.0
    session.heard = session.due = heard
    if session.is_quiet(now):
        assert session.tick(now) == [] and session.overdue(now) == []
    elif not (held or rests or stranger):
        assert session.tick(now) != []


def test_silence_ends_the_session_and_says_that_it_was_silence() -> None:
    session = member()
    session.receive(Heartbeat(sent=0.0), 30.0)
    assert session.tick(89.0) == []
    (end,) = session.tick(91.0)
    assert isinstance(end, End) and end.silence


def calm(idle_s: float = 100.0, now: float = 0.0, **settings: Any) -> WorkerSession:
    """A member that may be silent for long."""
    session = member(**settings)
    session.receive(Heartbeat(sent=0.0, round_trip_s=0.01), now)
    assert session.calm(idle_s, now) == idle_s
    return session


def test_who_may_be_silent_for_long_is_silent_only_past_that() -> None:
    session = calm()
    assert session.tick(159.0) == [] and session.is_quiet(159.0)
    assert not session.is_quiet(161.0)
    (end,) = session.tick(161.0)
    assert isinstance(end, End) and end.silence
    session = calm()
    session.receive(Heartbeat(sent=0.0), 10.0)  # and was not told again
    assert isinstance(session.tick(71.0)[0], End)


def test_only_who_holds_nothing_and_told_its_round_trip_may_be_silent_for_long() -> None:
    session = member()
    session.receive(Heartbeat(sent=0.0), 0.0)
    assert session.calm(100.0, 0.0) == 0.0, "people have not seen its round trip yet"
    session.receive(Heartbeat(sent=0.0, round_trip_s=0.01), 0.0)
    assert session.calm(10.0, 0.0) == 0.0, "a small fleet beats as it was told at first"
    ref = give(session)
    assert session.calm(100.0, 0.0) == 0.0
    session.receive(result(ref), 0.0)
    assert session.calm(100.0, 0.0) == 0.0, "its result is being judged"
    session.judged(ref)
    assert session.calm(100.0, 0.0) == 100.0


def test_with_a_lease_silence_counts_from_then() -> None:
    session = calm()
    give(session, 90.0)
    session.receive(Taken(leases=[]), 91.0)
    assert session.tick(150.0) == []
    assert isinstance(session.tick(151.5)[0], End)
    session = calm()
    give(session, 90.0)
    assert session.tick(149.0) == []
    assert isinstance(session.tick(151.0)[0], End)


def test_who_was_silent_and_does_not_say_that_its_lease_arrived_gets_nothing_until_it_is_heard_of() -> None:
    session = calm()
    ref = give(session, 50.0)
    assert session.unanswered(53.0) == []
    assert session.unanswered(53.5) == [ref]
    session.lapsed([ref], 53.5)
    assert session.unanswered(54.0) == []
    assert session.slots(60.0) == 0
    actions = session.receive(Taken(leases=[ref]), 61.0)
    assert session.slots(61.0) == 1
    assert Refill() in actions, "what became ready meanwhile wakes nobody a second time"
    assert Refill() not in session.receive(Taken(leases=[ref]), 62.0)


def test_who_answers_in_time_or_was_heard_of_lately_keeps_its_lease() -> None:
    session = calm()
    ref = give(session, 50.0)
    session.receive(Taken(leases=[ref]), 52.0)
    assert session.unanswered(60.0) == []
    session = calm()
    give(session, 10.0)
    assert session.unanswered(20.0) == [], "the lease's own ten seconds are for that"
    session = calm()
    give(session, 50.0)
    session.lagged(55.0)
    assert session.unanswered(57.0) == [], "its answer may lie unread"


def test_a_session_lives_a_day() -> None:
    session = member()
    session.receive(Heartbeat(sent=0.0), 86_400.5)
    (end,) = session.tick(86_401.0)
    assert isinstance(end, End) and not end.silence


def test_trust_begins_with_one_task_and_doubles_with_each_accepted_one() -> None:
    session = member()
    seen = [session.slots(0.0)]
    for _ in range(7):
        prove(session, 1)
        seen.append(session.slots(0.0))
    assert seen == [1, 2, 4, 8, 16, 32, 64, 64]


def test_a_worker_that_fails_everything_gets_eight_tasks() -> None:
    session = member()
    given, conduct = 0, Conduct()
    while session.slots(float(given)) and not conduct.hopeless("w"):
        ref = give(session, float(given))
        given += 1
        session.receive(result(ref), float(given))
        session.judged(ref)
        session.ruled(failed=True, succeeded=False)
        conduct.failed("w", "no")
    assert given == FAST_FAILURES == 8


def test_an_unproven_worker_gets_nothing_more_while_its_first_result_is_judged() -> None:
    session = member()
    ref = give(session)
    session.receive(result(ref), 0.1)
    assert session.slots(0.1) == 0
    session.judged(ref)
    assert session.slots(0.1) == 1


def test_slots_follow_measured_time_and_never_exceed_what_is_outstanding() -> None:
    session = member()
    prove(session)
    assert session.slots(0.0) == 64
    ref = give(session, 0.0)
    session.receive(Started(leases=[ref]), 0.0)
    session.receive(result(ref), 0.01)  # 10 ms a task
    session.judged(ref)
    assert session.slots(0.02) == slots_for(0.01, 0.0) == 5
    give(session, 0.02, expected_s=3.0)  # a long one: enough in hand
    assert session.slots(0.02) == 0


def test_too_many_results_in_judgement_stop_the_flow() -> None:
    session = member()
    prove(session)
    refs = [give(session) for _ in range(MAX_JUDGING)]
    for ref in refs:
        session.receive(result(ref), 0.1)
    assert session.slots(0.2) == 0
    session.judged(refs[0])
    assert session.slots(0.2) > 0


def test_nothing_goes_to_who_is_paused_pending_draining_on_trial_or_in_use() -> None:
    for field, value in (("paused", True), ("approved", False), ("draining", True), ("on_trial", True)):
        session = member()
        setattr(session, field, value)
        assert session.slots(0.0) == 0
    session = member()
    session.receive(Heartbeat(sent=0.0, duty={"cpu": 0.0}), 0.0)
    assert session.slots(0.0) == 0
    session.receive(Heartbeat(sent=0.0, duty={"cpu": 0.2}), 0.0)
    assert session.slots(0.0) == 1


def test_a_result_is_judged_once_however_often_it_is_said() -> None:
    session = member()
    ref = give(session)
    first = session.receive(result(ref, ref), 0.1)
    assert [type(action) for action in first] == [Refill, Judge]
    assert isinstance(first[1], Judge) and len(first[1].returned) == 1
    assert session.receive(result(ref), 0.2) == []
    session.judged(ref)
    (again,) = [action for action in session.receive(result(ref), 0.3) if isinstance(action, Judge)]
    assert again.returned[0].held is None, "known to the store alone"


def test_time_is_counted_from_when_the_device_was_free() -> None:
    session = member()
    prove(session)
    first, second = give(session, 0.0), give(session, 0.0)
    session.receive(Started(leases=[first, second]), 1.0)
    (judge,) = [a for a in session.receive(result(first), 3.0) if isinstance(a, Judge)]
    assert judge.returned[0].seconds == 2.0
    (judge,) = [a for a in session.receive(result(second), 4.0) if isinstance(a, Judge)]
    assert judge.returned[0].seconds == 1.0


def test_the_first_heartbeat_sweeps_and_later_ones_renew() -> None:
    session = member()
    ref = give(session)
    first = session.receive(Heartbeat(sent=5.0, held=[ref]), 0.0)[0]
    assert isinstance(first, Renew) and first.sweep and first.refs == (ref,) and first.echo == 5.0
    second = session.receive(Heartbeat(sent=6.0), 1.0)[0]
    assert isinstance(second, Renew) and not second.sweep


def test_trials_never_reach_the_store() -> None:
    session = member()
    ref = give(session, trial=Trial())
    renew = session.receive(Heartbeat(sent=0.0, held=[ref]), 0.0)[0]
    assert isinstance(renew, Renew) and renew.refs == ()
    assert session.receive(Taken(leases=[ref]), 0.0) == [Take(refs=())]
    assert session.receive(Started(leases=[ref]), 0.0) == []
    assert session.held_refs() == []
    back = session.receive(Refused(leases=[ref]), 0.0)[0]
    assert isinstance(back, HandBack) and back.refs == () and back.trials == (ref,)


def test_who_hands_back_rests_for_a_second() -> None:
    session = member()
    ref = give(session)
    assert session.receive(Refused(leases=[ref], reason="paused"), 1.0) == [
        HandBack(refs=(ref,), begun=(), trials=(), reason="paused")
    ]
    assert session.slots(1.5) == 0 and session.tick(1.5) == []
    assert session.tick(2.0) == [Refill()] and session.slots(2.0) == 1


def test_bye_gives_back_and_ends() -> None:
    session = member()
    assert [type(action) for action in session.receive(Bye(reason="off"), 1.0)] == [Leave, End]
    assert session.slots(1.0) == 0


def test_progress_and_log_lines_become_live_events() -> None:
    session = member()
    ref = give(session)
    assert session.receive(Progress(lease=ref, share=0.5), 0.0) == [
        Tell(type="task.progress", task=ref.task, share=0.5)
    ]
    assert session.receive(Output(lease=ref, lines=["hi"]), 0.0) == [Tell(type="log", task=ref.task, lines=("hi",))]


def test_the_same_process_inherits_leases_another_only_what_is_being_judged() -> None:
    for same in (True, False):
        earlier, later = member(), member()
        held, judged, trial = give(earlier), give(earlier), give(earlier, trial=Trial())
        earlier.receive(result(judged), 0.1)
        later.inherit(earlier, leases=same)
        refs = later.held_refs()
        assert (held in refs) is same and judged in refs and trial not in refs
        assert held not in earlier.held_refs()
        earlier.judged(judged)  # the check began in the earlier session, and may end there
        assert judged not in later.held_refs()


def test_what_was_sent_on_an_earlier_connection_and_never_came_is_held_no_longer() -> None:
    earlier, later = member(), member()
    came, lost = give(earlier), give(earlier)
    later.inherit(earlier, leases=True)
    newer = give(later)
    assert later.never_came([came]) == [lost], "the newer one may be on its way"
    assert later.held_refs() == [came, newer]
    assert later.never_came([]) == [came] and later.held_refs() == [newer]


@given(
    st.lists(
        st.sampled_from(["give", "result", "judge", "accept", "fail", "refuse", "beat", "tick", "hello", "foreign"]),
        max_size=60,
    )
)
def test_no_order_of_messages_gives_more_than_the_queue_holds_or_raises(steps: list[str]) -> None:
    session = member()
    now = 0.0
    refs: list[LeaseRef] = []
    for step in steps:
        now += 0.01
        if step == "give" and session.slots(now) > 0:
            refs.append(give(session, now))
        elif step == "result" and refs:
            session.receive(result(refs[-1]), now)
        elif step == "judge" and refs:
            session.judged(refs[-1])
        elif step in ("accept", "fail"):
            session.ruled(failed=step == "fail", succeeded=step == "accept")
        elif step == "refuse" and refs:
            session.receive(Refused(leases=[refs[-1]]), now)
        elif step == "beat":
            session.receive(Heartbeat(sent=now, held=refs[-3:]), now)
        elif step == "tick":
            session.tick(now)
        elif step == "foreign":
            session.receive(result(lease().ref), now)
        elif step == "hello":
            session.receive(HELLO, now)
        assert 0 <= session.slots(now) <= 64
        assert len(session.held) <= 64


def test_a_rate_limit_forgets_with_time_and_remembers_a_bounded_number_of_keys() -> None:
    limit = RateLimit(3, keys=10)
    for _ in range(3):
        assert not limit.blocked("a", 0.0)
        limit.count("a", 0.0)
    assert limit.blocked("a", 1.0) and not limit.blocked("b", 1.0)
    assert not limit.blocked("a", 21.0)
    for number in range(100):
        limit.count(str(number), 22.0)
    assert len(limit._spent) == 10


def test_a_canary_is_exact_in_any_order_of_summation() -> None:
    for _ in range(5):
        made = canary("w-1", os.urandom, 0.0)
        assert set(made.trial.exact) == set(made.lease.task.spec.outputs)
    measured = measurement("w-1", "matmul", 256, os.urandom, 0.0)
    assert measured.trial.speed_key == "matmul.float32" and measured.lease.task.spec.cost.flops == 2 * 256**3
