"""The journal: what the child appended is what the agent takes, and nonsense is nothing."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.encoding.records import Status, read_records, record
from moregpu.worker.functions.journal import FIRST_BYTES, KEPT_BYTES, Journal, JournalReader


def pair() -> tuple[JournalReader, Journal]:
    reader = JournalReader()
    return reader, Journal(reader.fd)


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_records_come_out_as_they_went_in(contents: list[bytes]) -> None:
    reader, journal = pair()
    journal.begin()
    for content in contents:
        journal.add(record(Status.VALUE, [content]))
    assert reader.calls == len(contents)
    calls, taken = reader.take(len(contents))
    assert calls == len(contents)
    assert [bytes(content) for _, content in read_records(taken)] == contents
    reader.close()


def test_a_record_larger_than_the_journal_makes_it_grow_and_its_memory_goes_back() -> None:
    reader, journal = pair()
    for fill in (b"a", b"b"):
        journal.begin()
        journal.add(record(Status.VALUE, [b"first"]))
        journal.add(record(Status.VALUE, [fill * (KEPT_BYTES + FIRST_BYTES)]))
        calls, taken = reader.take(2)
        assert calls == 2
        first, second = (bytes(content) for _, content in read_records(taken))
        assert (first, second[:1], len(second)) == (b"first", fill, KEPT_BYTES + FIRST_BYTES)
        assert os.fstat(reader.fd).st_blocks * 512 <= KEPT_BYTES + FIRST_BYTES
    reader.close()


def test_what_was_taken_does_not_change_any_more() -> None:
    reader, journal = pair()
    journal.add(record(Status.VALUE, [b"one"]))
    _, taken = reader.take(1)
    journal.begin()
    journal.add(record(Status.VALUE, [b"two"]))
    assert [bytes(content) for _, content in read_records(taken)] == [b"one"]
    reader.close()


def test_it_cannot_be_pulled_away_under_the_reader() -> None:
    reader, _ = pair()
    with pytest.raises(PermissionError):
        os.ftruncate(reader.fd, 0)
    reader.close()


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_nonsense_of_a_hostile_child_is_no_record(content: bytes, calls: int, used: int) -> None:
    reader = JournalReader()
    os.pwrite(reader.fd, struct.pack("<QQ", calls, used) + content, 0)
    got, taken = reader.take(3)
    assert got <= 3
    assert sum(1 for _ in read_records(taken)) == got
    reader.close()


def test_more_calls_than_were_asked_for_are_none() -> None:
    reader, journal = pair()
    for _ in range(4):
        journal.add(record(Status.VALUE, [b"x"]))
    assert reader.take(3) == (0, b"")
    reader.close()
