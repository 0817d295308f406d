"""What a worker's timings teach: large tasks tell how fast it is, small ones only that it is no slower."""

from __future__ import annotations

import pytest

from moregpu.coordinator.cases import Ruling
from moregpu.coordinator.fleet import Fleet, Member
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.scheduler import slots_for
from moregpu.coordinator.session import WorkerSession
from moregpu.coordinator.store.protocol import Completed, WorkerRow
from moregpu.wire.messages import Hello, LeaseRef

KEY = "relu.float32"
HELLO = Hello(wi_pub=bytes(32), signature=bytes(64), ws_number=0, ws_signature=bytes(64), boot=bytes(16), name="w")
REF = LeaseRef(task="t-1", attempt=1, token=bytes(16))


def member_of(id: str, speed: float) -> Member:
    row = WorkerRow(
        id=id, wi_pub=bytes(32), ws_pub=bytes(32), ws_number=0, name=id, owner="o", speeds={KEY: speed}
    )  # fmt: skip
    session = WorkerSession(DeskConfig(), 0.0, slots_for)
    session.approved = True
    return Member(row, HELLO, session, lambda message, *, may_wait=False: None, lambda code, reason: None, 0.0)


def taught(speed: float | None, *timings: tuple[float, float]) -> float | None:
    """The speed after accepted tasks of (amount, seconds)."""
    row = WorkerRow(
        id="w-1", wi_pub=bytes(32), ws_pub=bytes(32), ws_number=0, name="w", owner="o",
        speeds={} if speed is None else {KEY: speed},
    )  # fmt: skip
    session = WorkerSession(DeskConfig(), 0.0, slots_for)
    member = Member(row, HELLO, session, lambda message, *, may_wait=False: None, lambda code, reason: None, 0.0)
    fleet = Fleet()
    fleet.put(member)
    for amount, seconds in timings:
        done = Completed(ref=REF, verdict="accepted")
        fleet.learn(member, Ruling(ref=REF, completed=done, amount=amount, speed_key=KEY, seconds=seconds))
    return member.speeds.get(KEY)


def test_a_large_task_that_took_long_lowers_the_speed() -> None:
    slower = taught(4e9, (4e8, 0.2))
    assert slower is not None
    assert 2e9 < slower < 4e9


def test_a_tiny_task_that_took_long_says_nothing_about_speed() -> None:
    assert taught(4e9, *[(32.0, 0.3)] * 50) == 4e9
    assert taught(None, (32.0, 0.3)) is None


def test_whatever_is_done_sooner_than_expected_raises_the_speed() -> None:
    faster = taught(1e9, (4e7, 0.02))
    assert faster is not None
    assert faster > 1e9


@pytest.mark.parametrize(("workers", "askings"), [(1, 1), (16, 1), (160, 10)])
def test_sums_of_a_fleet_follow_its_speeds_at_a_price_that_does_not_grow_with_it(workers: int, askings: int) -> None:
    fleet = Fleet()
    members = [member_of(f"w-{number}", 1e9) for number in range(workers)]
    for member in members:
        fleet.put(member)
    before = fleet.total_speed()[KEY]
    members[0].speeds[KEY] = 3e9
    fleet.changed()
    seen = [fleet.total_speed()[KEY] for _ in range(askings)]
    assert seen[:-1] == [before] * (askings - 1) and seen[-1] > before
    assert fleet.summary().total_speed[KEY] == seen[-1]


def test_sums_of_a_fleet_know_at_once_who_came() -> None:
    fleet = Fleet()
    for number in range(100):
        fleet.put(member_of(f"w-{number}", 1e9))
        assert fleet.summary().workers == number + 1


def test_who_was_not_timed_yet_counts_as_much_as_those_who_were_do_on_average() -> None:
    fleet = Fleet()
    for number, speed in enumerate((1e9, 3e9)):
        fleet.put(member_of(f"w-{number}", speed))
    timed = fleet.total_speed()[KEY]
    newcomer = member_of("w-2", 0.0)
    newcomer.speeds.clear()
    fleet.put(newcomer)
    assert fleet.total_speed()[KEY] == pytest.approx(1.5 * timed)
