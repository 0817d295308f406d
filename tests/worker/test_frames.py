"""Frames survive any cutting of the stream, and nonsense ends in an error, not in memory."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.worker.frames import Done, Forget, FrameReader, Place, SetDuty, StopTask, frame
from moregpu.worker.memory import ALIGNMENT, RegionPool, offsets

headers = st.one_of(
    st.builds(StopTask, number=st.integers(0, 1 << 40)),
    st.builds(SetDuty, duty=st.floats(0, 1)),
    st.builds(Forget, regions=st.lists(st.integers(0, 1000), max_size=5)),
)


@given(st.lists(st.tuples(headers, st.binary(max_size=300)), max_size=8), st.data())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    frames: list[tuple[StopTask | SetDuty | Forget, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(frame(header, raw) for header, raw in frames)
    reader, found = FrameReader(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:cut])
        stream = stream[cut:]
        found += reader.to_child()
    assert found == frames


def test_a_frame_that_claims_too_much_is_refused_before_it_is_read() -> None:
    reader = FrameReader()
    reader.feed(b"\xff" * 8)
    with pytest.raises(ValueError, match="bytes"):
        list(reader.to_child())


@given(st.binary(min_size=9, max_size=200))
def test_nonsense_raises_nothing_but_what_the_reader_promises(data: bytes) -> None:
    reader = FrameReader()
    reader.feed(len(data).to_bytes(4, "little") + bytes(4) + data)
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        list(reader.from_child())


def test_the_wrong_direction_is_nonsense() -> None:
    reader = FrameReader()
    reader.feed(
        frame(Done(number=1, seconds=0.0, outputs={"out": Place(dtype="int8", shape=(), start=0, size_bytes=1)}))
    )
    with pytest.raises(msgspec.ValidationError):
        list(reader.to_child())


@given(st.lists(st.integers(0, 10_000), max_size=10))
def test_values_in_a_region_are_aligned_and_do_not_overlap(sizes: list[int]) -> None:
    starts, size = offsets(sizes)
    stop = 0
    for start, length in zip(starts, sizes, strict=True):
        assert start % ALIGNMENT == 0
        assert start >= stop
        stop = start + length
    assert stop <= size


def test_a_region_is_given_again_to_whoever_needs_as_much() -> None:
    regions = RegionPool()
    first = regions.take(100_000)
    first.view(0, 4)[:] = b"abcd"
    assert regions.give(first) == []
    assert regions.take(90_000) is first
    other = regions.take(90_000)
    assert other is not first
    regions.give(first)
    regions.give(other)
    regions.clear()
