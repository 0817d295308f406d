"""Memory for values: what is asked for, to be written to."""

from __future__ import annotations

import pytest

from moregpu.platform.memory import LARGE_BYTES, room_for


@pytest.mark.parametrize("size_bytes", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 4097])
def test_a_value_of_any_size_finds_zeros_to_write_to(size_bytes: int) -> None:
    room = room_for(size_bytes)
    assert len(room) == size_bytes and not room.readonly
    assert bytes(room[-1:]) == bytes(min(1, size_bytes))
    room[-1:] = b"x" * min(1, size_bytes)
    assert bytes(room[-1:]) == b"x" * min(1, size_bytes)
