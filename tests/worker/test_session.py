"""The worker's session core: what it makes of every message, whatever the order, across connections."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moregpu.errors import HandshakeFailed, InviteRefused
from moregpu.jobs import Blob, Planned, Tensor
from moregpu.wire.identity import PoolKeys, WorkerKeys, check_hello, verify
from moregpu.wire.messages import (
    Acknowledged,
    Assign,
    Assignment,
    Bye,
    Cancel,
    FromWorker,
    Heartbeat,
    Hello,
    LeaseRef,
    Limits,
    Policy,
    Progress,
    Pulse,
    Refused,
    Reject,
    Result,
    ResultEntry,
    Started,
    Taken,
    TaskError,
    Verdict,
    Welcome,
)
from moregpu.wire.statement import batch_message, digest
from moregpu.worker.decisions import Action, Admitted, Close, Obey, Refusal, Run, Settled, Stop
from moregpu.worker.leases import HAND_BACK_S, LAST_S, key_of
from moregpu.worker.session import HELLO_S, QUIET_S, RESEND_S, Identity, WorkerSession

POOL = PoolKeys.generate()
KEYS = WorkerKeys.generate()
H = bytes(range(32))
LEAF = bytes(32)


def make_session(seed: int = 0) -> WorkerSession:
    identity = Identity(pool=POOL.pool_id, name="anna", boot=bytes(16), kinds=("kernel",))
    return WorkerSession(KEYS, identity, Limits(), Random(seed))


def welcome(**changes: object) -> Welcome:
    fields: dict[str, object] = {
        "worker": KEYS.worker_id, "pool": POOL.pool_id, "pool_name": "attic", "ci_pub": POOL.ci_pub, "blob_token": "t",
    }  # fmt: skip
    return Welcome(**(fields | changes))  # type: ignore[arg-type]


def member(now: float = 0.0) -> WorkerSession:
    """A session whose worker is in, and has said so."""
    session = make_session()
    session.opened(H, LEAF, now)
    session.outgoing(now)
    session.receive(welcome(), now)
    session.set_duty({"cpu": 1.0}, "", now)
    session.outgoing(now)
    return session


def assignment(number: int = 1, *, tiny: bool = True, token: int = 0) -> Assignment:
    data: bytes | Blob = bytes(8) if tiny else Blob(digest="0" * 64, key=bytes(32), size_bytes=8)
    return Assignment(
        job="j-1", task=f"t-{number}", attempt=1, token=bytes([token]) * 16, kind="kernel", program=b"relu",
        parameters=b"\x80", precision="float32", inputs={"a": Tensor(dtype="float32", shape=(2,), data=data)},
        outputs={"out": Planned(dtype="float32", shape=(2,))}, digest_key=bytes(32), seed=0, time_limit_s=None,
        lease_s=10.0,
    )  # fmt: skip


def ref(of: Assignment) -> LeaseRef:
    return LeaseRef(task=of.task, attempt=of.attempt, token=of.token)


def verdict(of: Assignment, word: str = "accepted") -> Acknowledged:
    entry = Verdict(task=of.task, attempt=of.attempt, token=of.token, verdict=word)  # type: ignore[arg-type]
    return Acknowledged(entries=[entry])


def of_kind(messages: list[FromWorker], kind: type) -> list[FromWorker]:
    return [message for message in messages if isinstance(message, kind)]


# ---- getting in ----


def test_the_first_message_is_a_hello_that_proves_who_speaks_in_this_session() -> None:
    session = make_session()
    session.invite = ("i-1", bytes(16))
    session.opened(H, LEAF, 0.0)
    (hello,) = session.outgoing(0.0)
    assert isinstance(hello, Hello)
    assert check_hello(hello, KEYS.ws_pub, H) == KEYS.worker_id
    assert (hello.invite_id, hello.invite_secret) == ("i-1", bytes(16))
    with pytest.raises(HandshakeFailed):
        check_hello(hello, KEYS.ws_pub, bytes(32))


def test_nothing_but_the_hello_is_said_before_the_welcome() -> None:
    session = make_session()
    session.restore([ResultEntry(task="t-1", attempt=1, token=bytes(16))], 0.0)
    session.opened(H, LEAF, 0.0)
    assert [type(message) for message in session.outgoing(0.0)] == [Hello]
    assert session.outgoing(100.0) == []


def test_the_invite_is_presented_until_a_welcome_came_and_then_never_again() -> None:
    session = make_session()
    session.invite = ("i-1", bytes(16))
    for _ in range(2):  # the link is cut before the Welcome arrives
        session.opened(H, LEAF, 0.0)
        (hello,) = session.outgoing(0.0)
        assert isinstance(hello, Hello)
        assert hello.invite_id == "i-1"
        session.closed()
    session.opened(H, LEAF, 0.0)
    assert isinstance(session.receive(welcome(), 0.0)[0], Admitted)
    session.closed()
    session.opened(H, LEAF, 1.0)
    (hello,) = session.outgoing(1.0)
    assert isinstance(hello, Hello)
    assert hello.invite_id is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"pool": bytes(16)},
        {"ci_pub": PoolKeys.generate().ci_pub},
        {"worker": "w-other"},
        {"next_cs": bytes(32), "next_cs_signature": bytes(64)},
    ],
)
def test_a_welcome_of_another_pool_ends_it(wrong: dict[str, object]) -> None:
    session = make_session()
    session.opened(H, LEAF, 0.0)
    (refusal,) = session.receive(welcome(**wrong), 0.0)
    assert isinstance(refusal, Refusal)
    assert isinstance(refusal.error, HandshakeFailed)
    assert not session.member


def test_a_coordinator_that_gives_work_before_its_welcome_is_left() -> None:
    session = make_session()
    session.opened(H, LEAF, 0.0)
    assert isinstance(session.receive(Assign(entries=[assignment()]), 0.0)[0], Close)


def test_a_reject_carries_the_error_and_whether_to_come_back() -> None:
    session = make_session()
    session.opened(H, LEAF, 0.0)
    (refusal,) = session.receive(Reject(code="invite-refused", detail="no", hint="ask"), 0.0)
    assert isinstance(refusal, Refusal)
    assert isinstance(refusal.error, InviteRefused)
    assert not refusal.again


def test_no_welcome_in_time_and_silence_later_close_the_connection() -> None:
    session = make_session()
    session.opened(H, LEAF, 0.0)
    assert session.tick(HELLO_S) == []
    assert isinstance(session.tick(HELLO_S + 0.1)[0], Close)
    session = member()
    assert session.tick(44.0) == []
    assert isinstance(session.tick(45.1)[0], Close)
    session.receive(Pulse(echo=44.0, now=0.0), 45.1)
    assert session.tick(60.0) == []


# ---- silence that was agreed on ----


def calm(now: float = 0.0, idle_s: float = 120.0) -> WorkerSession:
    """A member that was told that it may be silent for long."""
    session = member(now)
    session.receive(Pulse(echo=now, now=0.0, idle_s=idle_s), now)
    return session


def beats_until(session: WorkerSession, start: float, end: float) -> list[float]:
    """When it sends heartbeats, if it is asked whenever it wants to be."""
    beats: list[float] = []
    now = start
    while (now := max(now, session.due(now))) <= end:
        beats += [now for _ in of_kind(session.outgoing(now), Heartbeat)]
    return beats


def test_an_idle_worker_is_silent_for_as_long_as_it_was_told_and_not_all_of_them_alike() -> None:
    firsts: set[float] = set()
    for seed in range(20):
        session = calm()
        session._random.seed(seed)  # pyright: ignore[reportPrivateUsage]
        session.receive(Pulse(echo=0.0, now=1000.25, idle_s=120.0), 0.0)
        first = beats_until(session, 0.0, 125.0)[0]
        assert 89.0 <= first <= 120.0
        assert (1000.25 + first) % 1.0 == pytest.approx(0.0), "on the second of the coordinator's clock, with others"
        firsts.add(first)
    assert len(firsts) > 10


def test_an_idle_worker_of_a_small_fleet_beats_on_whole_seconds_too_but_with_a_lease_as_it_is_due() -> None:
    for lease, first in ((False, 14.875), (True, 15.0)):
        session = member(0.0)
        if lease:
            session.receive(Assign(entries=[assignment()]), 0.0)
        session.receive(Pulse(echo=0.0, now=1000.25, idle_s=0.0), 0.125)
        assert beats_until(session, 0.125, 20.0)[0] == pytest.approx(first)


@pytest.mark.parametrize("there", [float("nan"), float("inf"), -1e300])
def test_a_coordinator_whose_clock_is_nonsense_hears_of_it_all_the_same(there: float) -> None:
    session = calm()
    session.receive(Pulse(echo=0.0, now=there, idle_s=120.0), 0.0)
    assert 89.0 <= beats_until(session, 0.0, 125.0)[0] <= 120.0


def test_a_heartbeat_that_is_not_answered_is_said_again_and_again_and_then_the_link_is_dead() -> None:
    session = calm()
    beats = beats_until(session, 0.0, 140.0)
    assert beats[1] - beats[0] == pytest.approx(15.0)
    assert session.tick(beats[0] + 44.9) == []
    assert isinstance(session.tick(beats[0] + 45.1)[0], Close)


def test_with_its_first_lease_a_worker_beats_as_before() -> None:
    session = calm()
    session.receive(Assign(entries=[assignment()]), 50.0)
    assert beats_until(session, 50.0, 70.0) == [pytest.approx(65.0)]
    session.receive(Pulse(echo=65.0, now=0.0, idle_s=120.0), 70.0)
    assert beats_until(session, 70.0, 81.0) == [pytest.approx(80.0)], "it holds a lease"
    session = calm()
    session.receive(Assign(entries=[assignment()]), 50.0)
    assert session.tick(94.0) == [] and isinstance(session.tick(95.1)[0], Close)


def test_what_was_agreed_on_ends_with_the_connection() -> None:
    session = calm()
    session.closed()
    session.opened(H, LEAF, 10.0)
    session.receive(welcome(), 10.0)
    assert beats_until(session, 10.0, 30.0)[:2] == pytest.approx([10.0, 25.0], abs=0.01)
    assert isinstance(session.tick(56.0)[0], Close)


# ---- coming back ----


def test_with_work_in_hand_the_first_retry_comes_within_300_ms_and_idle_ones_are_spread() -> None:
    idle = member()
    idle.closed()
    assert max(idle.retry_s() for _ in range(200)) > 1.0
    busy = member()
    busy.receive(Assign(entries=[assignment()]), 0.0)
    busy.closed()
    assert max(busy.retry_s() for _ in range(200)) <= 0.3


@given(failures=st.integers(1, 10_000), seed=st.integers(0, 1 << 30))
def test_retries_are_jittered_and_bounded_for_ever(failures: int, seed: int) -> None:
    session = make_session(seed)
    session.failures = failures
    assert 0.05 <= session.retry_s() <= 30.0


# ---- work ----


def test_a_tiny_task_that_ends_at_once_costs_one_message() -> None:
    session = member()
    task = assignment()
    assert session.receive(Assign(entries=[task]), 1.0) == [Run(assignment=task)]
    assert not session.begun(ref(task), 1.0)
    assert session.outgoing(1.0) == []
    assert session.due(1.0) == pytest.approx(1.0 + QUIET_S)
    session.finished(ref(task), b"statement", {}, 1.0 + QUIET_S / 2)
    assert session.due(1.0 + QUIET_S / 2) < 1.0 + QUIET_S  # the result is to be sent now
    (result,) = session.outgoing(1.0 + QUIET_S / 2)
    assert isinstance(result, Result)
    assert [entry.task for entry in result.entries] == [task.task]


def test_a_tiny_task_that_takes_longer_is_announced() -> None:
    session = member()
    task = assignment()
    session.receive(Assign(entries=[task]), 1.0)
    assert session.due(1.0) == pytest.approx(1.0 + QUIET_S)
    (taken,) = session.outgoing(1.0 + QUIET_S)
    assert taken == Taken(leases=[ref(task)])
    assert session.begun(ref(task), 2.0)
    assert session.due(2.0) == pytest.approx(2.0, abs=0.01)
    assert session.outgoing(2.0) == [Started(leases=[ref(task)])]


def test_a_large_task_is_confirmed_at_once_and_its_start_told_when_it_starts() -> None:
    session = member()
    task = assignment(tiny=False)
    session.receive(Assign(entries=[task]), 1.0)
    assert session.outgoing(1.0) == [Taken(leases=[ref(task)])]
    assert session.begun(ref(task), 5.0)
    assert session.outgoing(5.0) == [Started(leases=[ref(task)])]
    session.progressed(ref(task), 0.5, 6.0)
    session.progressed(ref(task), 0.6, 6.1)
    assert session.outgoing(6.1) == [Progress(lease=ref(task), share=0.5)]


def test_results_that_are_ready_together_share_one_message_and_one_good_signature() -> None:
    session = member()
    tasks = [assignment(number) for number in range(100)]
    session.receive(Assign(entries=tasks), 0.0)
    for task in tasks:
        session.finished(ref(task), task.task.encode(), {}, 0.0)
    results = session.outgoing(0.0)
    assert [len(result.entries) for result in results if isinstance(result, Result)] == [64, 36]
    for result in results:
        assert isinstance(result, Result)
        digests = [digest(entry.statement) for entry in result.entries]
        verify(KEYS.wi_pub, batch_message(POOL.pool_id, KEYS.worker_id, digests), result.signature)


def test_a_result_is_kept_until_the_last_word_and_sent_again_on_every_new_connection() -> None:
    session = member()
    task = assignment()
    session.receive(Assign(entries=[task]), 0.0)
    session.finished(ref(task), b"s", {}, 0.0)
    assert of_kind(session.outgoing(0.0), Result)
    for now in (1.0, 2.0):
        session.closed()
        session.opened(H, LEAF, now)
        session.outgoing(now)
        session.receive(welcome(), now)
        sent = session.outgoing(now)
        assert of_kind(sent, Result)
        (beat,) = of_kind(sent, Heartbeat)
        assert isinstance(beat, Heartbeat)
        assert beat.held == [ref(task)]
    assert session.receive(verdict(task), 3.0) == [Settled(ref=ref(task), verdict="accepted")]
    session.closed()
    session.opened(H, LEAF, 4.0)
    session.outgoing(4.0)
    session.receive(welcome(), 4.0)
    assert not of_kind(session.outgoing(4.0), Result)


def test_a_result_without_an_answer_is_sent_again_after_a_while() -> None:
    session = member()
    task = assignment()
    session.receive(Assign(entries=[task]), 0.0)
    session.finished(ref(task), b"s", {}, 0.0)
    session.outgoing(0.0)
    assert not of_kind(session.outgoing(RESEND_S - 1), Result)
    assert of_kind(session.outgoing(RESEND_S), Result)


def test_a_kept_result_survives_the_process() -> None:
    session = make_session()
    entry = ResultEntry(task="t-9", attempt=2, token=bytes(16), statement=b"s")
    session.restore([entry], 0.0)
    session.opened(H, LEAF, 0.0)
    session.outgoing(0.0)
    session.receive(welcome(), 0.0)
    (result,) = of_kind(session.outgoing(0.0), Result)
    assert isinstance(result, Result)
    assert result.entries == [entry]


def test_a_pulse_that_calls_a_lease_lost_stops_its_task_but_not_a_result() -> None:
    session = member()
    running, done = assignment(1), assignment(2)
    session.receive(Assign(entries=[running, done]), 0.0)
    session.finished(ref(done), b"s", {}, 0.0)
    actions = session.receive(Pulse(echo=0.0, now=0.0, lost=[ref(running), ref(done)]), 1.0)
    assert actions == [Stop(ref=ref(running))]
    assert key_of(ref(done)) in session.kept


def test_a_cancel_stops_the_task_and_drops_a_result() -> None:
    session = member()
    running, done = assignment(1), assignment(2)
    session.receive(Assign(entries=[running, done]), 0.0)
    session.finished(ref(done), b"s", {}, 0.0)
    actions = session.receive(Cancel(leases=[ref(running), ref(done)]), 1.0)
    assert Stop(ref=ref(running)) in actions
    assert Settled(ref=ref(done), verdict="cancelled") in actions
    assert not session.held
    assert not session.kept


def test_what_nobody_wants_any_more_becomes_no_result() -> None:
    session = member()
    task = assignment()
    session.receive(Assign(entries=[task]), 0.0)
    session.receive(Cancel(leases=[ref(task)]), 0.0)
    assert session.finished(ref(task), b"s", {}, 1.0) is None
    assert session.failed(ref(task), TaskError(code="x", message=""), 1.0) is None
    assert not of_kind(session.outgoing(1.0), Result)


def test_an_assignment_that_comes_twice_runs_once() -> None:
    session = member()
    task = assignment()
    assert len(session.receive(Assign(entries=[task, task]), 0.0)) == 1
    session.finished(ref(task), b"s", {}, 0.0)
    session.outgoing(0.0)
    assert session.receive(Assign(entries=[task]), 1.0) == []
    assert of_kind(session.outgoing(1.0), Result), "its result is said again"


# ---- the throttle ----


def test_a_pause_hands_back_what_has_not_begun_and_keeps_what_has() -> None:
    session = member()
    begun, queued = assignment(1), assignment(2)
    session.receive(Assign(entries=[begun, queued]), 0.0)
    session.begun(ref(begun), 0.0)
    assert session.set_duty({"cpu": 0.0}, "paused by the owner", 1.0) == [Stop(ref=ref(queued))]
    sent = session.outgoing(1.0)
    assert Refused(leases=[ref(queued)], reason="paused by the owner") in sent
    (beat,) = of_kind(sent, Heartbeat)
    assert isinstance(beat, Heartbeat)
    assert (beat.duty, beat.reason, beat.held) == ({"cpu": 0.0}, "paused by the owner", [ref(begun)])


def test_while_paused_new_work_is_refused() -> None:
    session = member()
    session.set_duty({"cpu": 0.0}, "outside the schedule", 0.0)
    session.outgoing(0.0)
    task = assignment()
    assert session.receive(Assign(entries=[task]), 1.0) == []
    assert session.outgoing(1.0) == [Refused(leases=[ref(task)], reason="outside the schedule")]


def test_a_long_pause_hands_back_what_had_begun_but_not_what_is_computed() -> None:
    session = member()
    begun, computed = assignment(1), assignment(2)
    session.receive(Assign(entries=[begun, computed]), 0.0)
    for task in (begun, computed):
        session.begun(ref(task), 0.0)
    session.computed(ref(computed))
    session.set_duty({"cpu": 0.0}, "paused", 10.0)
    session.receive(Pulse(echo=0.0, now=0.0), 10.0 + HAND_BACK_S - 1)
    assert session.tick(10.0 + HAND_BACK_S - 1) == []
    assert Stop(ref=ref(begun)) in session.tick(10.0 + HAND_BACK_S)
    assert list(session.held) == [key_of(ref(computed))]


def test_what_may_run_only_once_and_has_begun_waits_here_ten_times_as_long_and_then_is_lost() -> None:
    session = member()
    begun, queued = (msgspec.structs.replace(assignment(number), once=True) for number in (1, 2))
    session.receive(Assign(entries=[begun, queued]), 0.0)
    session.begun(ref(begun), 0.0)
    assert session.set_duty({"cpu": 0.0}, "paused", 10.0) == [Stop(ref=ref(queued))]
    assert of_kind(session.outgoing(10.0), Refused) == [Refused(leases=[ref(queued)], reason="paused")]
    for now in (10.0 + HAND_BACK_S, 9.0 + LAST_S):
        session.receive(Pulse(echo=0.0, now=0.0), now)
        assert session.tick(now) == []
        assert list(session.held) == [key_of(ref(begun))]
        session.outgoing(now)
        assert session.due(now) > now + 0.5, "and it is not asked again at every moment"
    session.receive(Pulse(echo=0.0, now=0.0), 10.0 + LAST_S)
    assert session.tick(10.0 + LAST_S) == [Stop(ref=ref(begun))]
    assert of_kind(session.outgoing(10.0 + LAST_S), Refused) == [], "nobody else may have it"


def test_a_policy_is_passed_on() -> None:
    session = member()
    limits = Limits(ceiling=0.5)
    assert session.receive(Policy(limits=limits, approved=False), 0.0) == [Obey(limits=limits, approved=False)]


def test_leaving_hands_back_and_says_bye_last() -> None:
    session = member()
    task, done = assignment(1), assignment(2)
    session.receive(Assign(entries=[task, done]), 0.0)
    session.begun(ref(task), 0.0)
    session.finished(ref(done), b"s", {}, 0.0)
    assert session.leave("quit") == [Stop(ref=ref(task))]
    assert [type(message) for message in session.outgoing(0.0)] == [Refused, Result, Bye]


def test_leaving_stops_what_has_begun_and_may_run_only_once_and_does_not_call_it_untouched() -> None:
    session = member()
    begun, queued = (msgspec.structs.replace(assignment(number), once=True) for number in (1, 2))
    session.receive(Assign(entries=[begun, queued]), 0.0)
    session.begun(ref(begun), 0.0)
    assert session.leave("quit") == [Stop(ref=ref(begun)), Stop(ref=ref(queued))]
    assert session.outgoing(0.0) == [Refused(leases=[ref(queued)], reason="quit"), Bye(reason="quit")]


# ---- any history ----


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens in whatever order: no result is lost, none invented, and every lease ends in one way."""

    def __init__(self) -> None:
        super().__init__()
        self.session = make_session()
        self.now = 0.0
        self.given: dict[str, Assignment] = {}
        self.running: set[str] = set()
        self.results: set[str] = set()  # made, and without a last word
        self.connected = False
        self.count = 0

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Run(assignment=task):
                    assert task.task not in self.running
                    self.running.add(task.task)
                case Stop(ref=stopped):
                    self.running.remove(stopped.task)
                case Settled(ref=settled):
                    self.results.remove(settled.task)
                case Close():
                    self.session.closed()
                    self.connected = False
                case _:
                    pass

    @rule(seconds=st.floats(0.0, 50.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.session.tick(self.now))
        assert self.session.due(self.now) > self.now

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.session.opened(H, LEAF, self.now)
        (hello,) = self.session.outgoing(self.now)
        assert isinstance(hello, Hello)
        self.session.receive(welcome(), self.now)
        self.connected = True
        sent = self.session.outgoing(self.now)
        again = {entry.task for result in of_kind(sent, Result) for entry in result.entries}  # type: ignore[attr-defined]
        assert again == self.results

    @precondition(lambda self: self.connected)
    @rule()
    def cut(self) -> None:
        self.session.closed()
        self.connected = False

    @precondition(lambda self: self.connected)
    @rule(tiny=st.booleans())
    def assign(self, tiny: bool) -> None:
        self.count += 1
        task = assignment(self.count, tiny=tiny)
        self.given[task.task] = task
        self.carry_out(self.session.receive(Assign(entries=[task]), self.now))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), good=st.booleans())
    def end(self, data: st.DataObject, good: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        lease = ref(self.given[name])
        self.session.begun(lease, self.now)
        self.session.computed(lease)
        if good:
            kept = self.session.finished(lease, b"s", {}, self.now)
        else:
            kept = self.session.failed(lease, TaskError(code="x", message="y"), self.now)
        self.running.remove(name)
        assert kept is not None
        self.results.add(name)

    @precondition(lambda self: self.connected and self.given)
    @rule(data=st.data(), word=st.sampled_from(["accepted", "rejected", "fenced", "cancel", "lost"]))
    def last_word(self, data: st.DataObject, word: str) -> None:
        task = self.given[data.draw(st.sampled_from(sorted(self.given)))]
        if word == "cancel":
            self.carry_out(self.session.receive(Cancel(leases=[ref(task)]), self.now))
        elif word == "lost":
            self.carry_out(self.session.receive(Pulse(echo=0.0, now=0.0, lost=[ref(task)]), self.now))
        else:
            self.carry_out(self.session.receive(verdict(task, word), self.now))

    @rule(duty=st.sampled_from([0.0, 0.5, 1.0]))
    def throttle(self, duty: float) -> None:
        self.carry_out(self.session.set_duty({"cpu": duty}, "why", self.now))

    @rule()
    def write(self) -> None:
        for message in self.session.outgoing(self.now):
            if isinstance(message, Result):
                assert {entry.task for entry in message.entries} <= self.results
            if isinstance(message, Heartbeat):
                assert {lease.task for lease in message.held} == self.running | self.results

    @invariant()
    def books_agree(self) -> None:
        assert {task for task, _, _ in self.session.held} == self.running
        assert {task for task, _, _ in self.session.kept} == self.results


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase
