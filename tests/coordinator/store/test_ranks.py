"""The order of ready jobs: kept as they come and go, wherever they stand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.store.index import Ranks


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=300))
def test_ranks_are_what_a_sorted_list_is(moves: list[tuple[int, bool]]) -> None:
    ranks, wanted = Ranks(), list[tuple[float, str]]()
    for birth, leaves in moves:
        rank = (float(birth), f"j-{birth}")
        if leaves and rank in wanted:
            ranks.remove(rank)
            wanted.remove(rank)
        elif leaves and wanted:
            ranks.remove(wanted.pop(0))
        elif rank not in wanted:
            ranks.add(rank)
            wanted = sorted([*wanted, rank])
        assert list(ranks) == wanted and bool(ranks) == bool(wanted)
        assert not wanted or ranks.first == wanted[0]


def test_a_long_queue_that_is_served_from_the_front_keeps_no_room_for_those_that_left() -> None:
    ranks = Ranks()
    for birth in range(1000):
        ranks.add((float(birth), f"j-{birth}"))
    for birth in range(990):
        ranks.remove((float(birth), f"j-{birth}"))
    assert list(ranks) == [(float(birth), f"j-{birth}") for birth in range(990, 1000)]
    assert len(ranks._ranks) < 100
