"""CPU and GPUs apart: a busy processor is no reason for a GPU to rest, an owner's hand is one for both."""

from __future__ import annotations

from datetime import datetime

import pytest

from moregpu.wire.messages import Limits
from moregpu.worker.duties import Duties
from moregpu.worker.throttle.controller import ACTIVE_DUTY, Load, Reason, Signals
from moregpu.worker.throttle.devices import Throttle
from moregpu.worker.throttle.duty import Decision

NOON = datetime(2026, 11, 30, 12, 0)


def settled(signals: Signals) -> Throttle:
    throttle = Throttle()
    for quarter in range(80):
        throttle.decide(Limits(), Limits(ceiling=1.0), NOON, signals, quarter / 4)
    return throttle


def test_a_busy_processor_leaves_the_gpu_to_the_pool() -> None:
    throttle = settled(Signals(idle_s=600.0, load=Load(total=1.0, own=0.0)))
    assert throttle.decisions["cpu"].value == 0.0
    assert throttle.decisions["gpu"].value > 0.8


def test_what_others_use_of_the_gpu_is_left_to_them_and_costs_the_processor_nothing() -> None:
    busy = Signals(idle_s=600.0, load=Load(total=0.8, own=0.8), gpu=Load(total=0.9, own=0.3))
    throttle = settled(busy)
    assert throttle.decisions["gpu"].value < 0.3
    assert throttle.decisions["cpu"].value > 0.8


def test_input_cuts_both() -> None:
    throttle = settled(Signals(idle_s=600.0, load=Load(total=0.1, own=0.1)))
    throttle.decide(Limits(), Limits(ceiling=1.0), NOON, Signals(idle_s=0.01), 20.1)
    assert all(decision.value <= ACTIVE_DUTY for decision in throttle.decisions.values())


def test_what_was_told_is_told_until_it_says_something_new() -> None:
    throttle = settled(Signals(idle_s=600.0, load=Load(total=0.1, own=0.1)))
    first = throttle.tell("gpu", 20.0)
    throttle.decide(Limits(), Limits(ceiling=1.0), NOON, Signals(idle_s=0.01), 20.1)
    throttle.tell("gpu", 21.1)
    throttle.decide(Limits(), Limits(ceiling=1.0), NOON, Signals(idle_s=0.11), 20.2)
    assert throttle.tell("gpu", 21.2).reason != first.reason


@pytest.mark.parametrize("reason", list(Reason))
def test_the_pool_is_told_why_in_words_that_mean_the_owner_whoever_reads_them(reason: Reason) -> None:
    duties = Duties(Limits(), lambda: None, yields=False)
    duties._kinds = {"cpu": "cpu"}
    duties.limits.decision = Decision(value=0.5, reason=f"{reason}; the pool's admin asks for no more than 50%")
    shares, told = duties.told(0.0)
    assert shares == {"cpu": 0.5}
    assert not {"you", "your"} & set(told.split()) and "this machine" not in told
    assert told.endswith("; the pool's admin asks for no more than 50%")
