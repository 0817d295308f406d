"""What the graphs are made of: a figure a second, of what was heard."""

from __future__ import annotations

import msgspec

from moregpu_tui.state.events import Linked
from moregpu_tui.state.model import Link
from moregpu_tui.state.store import Store
from tests.tui.stage import Stage


def heard(store: Store, at: float, state: str = "live") -> None:
    store.offer(Linked(link=Link(state=state, heard_at=at)))  # type: ignore[arg-type]
    store.take(at)


def test_graphs_stand_still_while_nothing_is_heard_and_show_no_peak_when_the_coordinator_is_back() -> None:
    stage = Stage(seconds=20)
    store, at = stage.store, stage.at
    finished = store.state.grains_total
    for _ in range(10):
        at += 1.0
        finished += 30
        store.state = msgspec.structs.replace(store.state, grains_total=finished)
        heard(store, at)
        assert store.sample(at)
    before = store.state.history
    usual = before["throughput"][-1]
    heard(store, at, "offline")
    for second in range(1, 600):
        assert not store.sample(at + second)
    assert store.state.history is before
    at += 600.0
    store.state = msgspec.structs.replace(store.state, grains_total=finished + 600 * 30)
    heard(store, at)
    assert store.sample(at)
    assert store.state.history["throughput"][-1] == usual
    assert not store.sample(at + 60)  # it is said to be live, and nothing was heard for a minute


def test_a_pool_that_a_backup_brought_back_has_finished_less_and_is_not_slower_than_nothing() -> None:
    stage = Stage(seconds=20)
    heard(stage.store, stage.at + 1.0)
    stage.store.sample(stage.at + 1.0)
    stage.store.state = msgspec.structs.replace(stage.store.state, grains_total=0)
    heard(stage.store, stage.at + 2.0)
    assert stage.store.sample(stage.at + 2.0)
    assert stage.store.state.history["throughput"][-1] == 0.0
