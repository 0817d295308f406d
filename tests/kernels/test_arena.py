"""Buffers are shared by tensors that are never alive together, and by no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moregpu_kernels.arena import Lifetime, assign
from moregpu_kernels.errors import KernelError

lives = st.lists(st.tuples(st.integers(1, 1000), st.integers(-1, 20), st.integers(0, 6)), max_size=30).map(
    lambda rows: [Lifetime(f"t{i}", size, first, first + length) for i, (size, first, length) in enumerate(rows)]
)


@given(lives)
def test_tensors_alive_together_never_share(lifetimes: list[Lifetime]):
    arena = assign(lifetimes)
    for one in lifetimes:
        assert arena.sizes[arena.slots[one.name]] >= one.size_bytes
        for other in lifetimes:
            if one.name != other.name and one.first <= other.last and other.first <= one.last:
                assert arena.slots[one.name] != arena.slots[other.name]


@given(lives)
def test_no_more_is_taken_than_without_sharing(lifetimes: list[Lifetime]):
    assert assign(lifetimes).size_bytes <= sum(life.size_bytes for life in lifetimes)


def test_a_chain_lives_in_two_buffers():
    chain = [Lifetime(f"t{i}", 100, i, i + 1) for i in range(50)]
    assert assign(chain).size_bytes == 200


def test_a_tensor_written_twice_is_refused():
    with pytest.raises(KernelError, match="twice"):
        assign([Lifetime("t", 1, 0, 1), Lifetime("t", 1, 2, 3)])
