"""Memory for values: what is asked for, to be written to, and used again when nobody holds it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest

from moregpu.platform import memory
from moregpu.platform.memory import LARGE_BYTES, forget_rooms, room_for

KEEPS = pytest.mark.skipif(not hasattr(mmap, "MADV_FREE"), reason="a system that takes memory at once or not at all")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes that new memory was taken of the system for."""
    sizes: list[int] = []
    real = memory._new_room

    def noted(size_bytes: int) -> mmap.mmap:
        sizes.append(size_bytes)
        return real(size_bytes)

    monkeypatch.setattr(memory, "_new_room", noted)
    forget_rooms()
    yield sizes
    forget_rooms()


@pytest.mark.parametrize("size_bytes", [0, 1, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 4097])
def test_a_value_of_any_size_finds_room_to_write_to(size_bytes: int, made: list[int]) -> None:
    room = room_for(size_bytes)
    assert len(room) == size_bytes and not room.readonly
    assert bytes(room[-1:]) == bytes(min(1, size_bytes))
    room[-1:] = b"x" * min(1, size_bytes)
    assert bytes(room[-1:]) == b"x" * min(1, size_bytes)
    assert len(made) == (size_bytes >= LARGE_BYTES)


@KEEPS
def test_a_room_is_of_use_again_when_its_last_view_is_gone(made: list[int]) -> None:
    room = room_for(3 * LARGE_BYTES)
    part = room[5:9]
    part[:] = b"mine"
    del room
    other = room_for(3 * LARGE_BYTES)
    other[:] = bytes(len(other))
    assert len(made) == 2 and bytes(part) == b"mine"
    del part, other
    for _ in range(3):
        room_for(2 * LARGE_BYTES)[:] = bytes(2 * LARGE_BYTES)
    assert len(made) == 2


@KEEPS
def test_a_small_value_takes_no_room_that_a_large_one_needs(made: list[int]) -> None:
    room_for(10 * LARGE_BYTES)
    small = room_for(4 * LARGE_BYTES)
    room_for(10 * LARGE_BYTES)
    assert made == [10 * LARGE_BYTES, 4 * LARGE_BYTES] and len(small) == 4 * LARGE_BYTES


@KEEPS
def test_rooms_are_kept_up_to_a_limit_and_until_they_are_forgotten(
    made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "KEPT_BYTES", 5 * LARGE_BYTES)
    held = [room_for(2 * LARGE_BYTES) for _ in range(3)]
    held.clear()
    held += [room_for(2 * LARGE_BYTES) for _ in range(3)]
    assert len(made) == 4
    held.clear()
    forget_rooms()
    room_for(2 * LARGE_BYTES)
    assert len(made) == 5


@KEEPS
def test_what_is_held_when_rooms_are_forgotten_is_not_kept_afterwards(made: list[int]) -> None:
    """Results outlive the pool that they came from: their memory would stay with the program."""
    held = room_for(2 * LARGE_BYTES)
    forget_rooms()
    del held
    room_for(2 * LARGE_BYTES)
    assert len(made) == 2


@KEEPS
def test_small_rooms_give_way_to_a_large_one(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEPT_BYTES", 6 * LARGE_BYTES)
    held = [room_for(LARGE_BYTES) for _ in range(6)]
    held.clear()
    for _ in range(3):
        room_for(5 * LARGE_BYTES)
    assert made == [*[LARGE_BYTES] * 6, 5 * LARGE_BYTES]
