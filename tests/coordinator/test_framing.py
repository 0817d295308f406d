"""Whole messages are read as the library reads them, however they are cut; whatever else comes is left to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from moregpu.coordinator.framing import TEXT, head, whole_messages

MESSAGES = st.lists(st.binary(max_size=300) | st.sampled_from([125, 126, 65_535]).map(bytes), max_size=5)


def sent(*frames: Frame) -> bytes:
    return b"".join(frame.serialize(mask=True) for frame in frames)


def binary(data: bytes) -> Frame:
    return Frame(Opcode.BINARY, data)


@given(MESSAGES, st.lists(st.integers(1, 150), max_size=30))
def test_messages_that_come_in_any_pieces_come_whole_and_in_order(messages: list[bytes], sizes: list[int]) -> None:
    data, heard, begun = sent(*map(binary, messages)), [], b""
    for size in [*sizes, len(data)]:
        found, begun, is_other = whole_messages(begun + data[:size])
        heard += found
        data = data[size:]
        assert not is_other
    assert heard == messages and begun == b""


@pytest.mark.parametrize(
    "other",
    [
        sent(Frame(Opcode.TEXT, b"text")),
        sent(Frame(Opcode.BINARY, b"begun", fin=False)),
        sent(Frame(Opcode.PING, b"")),
        sent(Frame(Opcode.CLOSE, b"\x03\xe8")),
        sent(binary(bytes(65_536))),
        binary(b"not masked").serialize(mask=False),
        b"\xc2\x80",
    ],
    ids=["a text", "a beginning", "a ping", "a goodbye", "too long", "not masked", "compressed"],
)
def test_what_is_no_whole_message_is_left_as_it_came(other: bytes) -> None:
    assert whole_messages(sent(binary(b"one")) + other) == ([b"one"], other, True)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
@pytest.mark.parametrize(("first", "opcode"), [(None, Opcode.BINARY), (TEXT, Opcode.TEXT)])
def test_what_is_said_is_read_by_the_library(size: int, first: int | None, opcode: Opcode) -> None:
    before = head(size) if first is None else head(size, first)
    other_end = Protocol(Side.CLIENT)
    other_end.receive_data(before + bytes(size))
    assert other_end.events_received() == [Frame(opcode, bytes(size))]
