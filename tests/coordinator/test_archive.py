"""The file that holds others: whole or refused, whatever was done to it."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.archive import MAGIC, RECORD_BYTES, ArchiveWriter, entries
from moregpu.errors import MoreGPUError, StateRefused, VersionMismatch, WrongPassphrase

QUICK = (4, 8, 1)
"""Work for a test's passphrase: the file says how much, so reading takes no more."""

PASSPHRASE = "correct horse battery"


def sealed(files: dict[str, bytes], passphrase: str = PASSPHRASE) -> bytes:
    out = io.BytesIO()
    archive = ArchiveWriter(out, passphrase, QUICK)
    for name, content in files.items():
        archive.add(name, len(content), iter([content]))
    archive.finish()
    return out.getvalue()


def opened(data: bytes, passphrase: str = PASSPHRASE) -> dict[str, bytes]:
    return {entry.name: b"".join(entry.content) for entry in entries(io.BytesIO(data), passphrase)}


@given(
    st.dictionaries(
        st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20), st.binary(max_size=300)
    )
)
def test_what_goes_in_comes_out(files: dict[str, bytes]) -> None:
    assert opened(sealed(files)) == files


@pytest.mark.parametrize("length", [RECORD_BYTES - 40, RECORD_BYTES, 2 * RECORD_BYTES + 7, 3 * RECORD_BYTES])
def test_files_of_any_length_cross_records(length: int) -> None:
    files = {"one": os.urandom(length), "none": b"", "two": b"x" * 5}
    assert opened(sealed(files)) == files


def test_what_is_not_read_is_passed_over() -> None:
    assert [entry.name for entry in entries(io.BytesIO(sealed({"a": bytes(100), "b": b"b"})), PASSPHRASE)] == ["a", "b"]


def test_a_content_of_another_size_than_was_said_is_an_error() -> None:
    archive = ArchiveWriter(io.BytesIO(), PASSPHRASE, QUICK)
    with pytest.raises(ValueError, match="not 5"):
        archive.add("a", 5, iter([b"1234"]))


def test_another_passphrase_opens_nothing() -> None:
    with pytest.raises(WrongPassphrase):
        opened(sealed({"a": b"a"}), "another one")


def test_a_passphrase_is_the_same_however_its_letters_were_typed() -> None:
    assert opened(sealed({"a": b"a"}, "schlüssel"), "schlu\u0308ssel") == {"a": b"a"}


def test_nothing_of_it_can_be_read() -> None:
    assert b"secret" not in sealed({"secret-name": b"secret content" * 50})


def test_every_flipped_byte_is_noticed() -> None:
    data = sealed({"a": b"content"})
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1
        if at == len(MAGIC) + 1:
            continue  # scrypt's n: twice the work, and another key; refused below
        with pytest.raises(MoreGPUError):
            opened(bytes(broken))


def test_every_cut_is_noticed() -> None:
    data = sealed({"a": b"content"})
    for length in range(len(data)):
        with pytest.raises(StateRefused):
            opened(data[:length])


def test_a_cut_between_two_records_is_noticed() -> None:
    data = sealed({"a": bytes(2 * RECORD_BYTES)})
    first = 28 + 4 + RECORD_BYTES + 16
    with pytest.raises(StateRefused, match="middle"):
        opened(data[:first])


def test_records_that_were_exchanged_are_noticed() -> None:
    data = sealed({"a": bytes(3 * RECORD_BYTES)})
    record = 4 + RECORD_BYTES + 16
    head, one, two, rest = (
        data[:28],
        data[28 : 28 + record],
        data[28 + record : 28 + 2 * record],
        data[28 + 2 * record :],
    )
    with pytest.raises(MoreGPUError):
        opened(head + two + one + rest)


def test_what_stands_behind_the_end_is_noticed() -> None:
    data = sealed({"a": b"a"})
    for more in (b"x", data[28:]):
        with pytest.raises(StateRefused, match="behind"):
            opened(data + more)


@pytest.mark.parametrize("work", [(21, 8, 1), (17, 9, 1), (17, 8, 5), (0, 8, 1), (17, 0, 1)])
def test_a_file_that_asks_for_too_much_work_is_refused_before_any(work: tuple[int, int, int]) -> None:
    data = bytearray(sealed({"a": b"a"}))
    data[9:12] = bytes(work)
    with pytest.raises(StateRefused, match="asks for"):
        opened(bytes(data))


def test_a_newer_version_is_said_to_be_newer() -> None:
    data = bytearray(sealed({"a": b"a"}))
    data[8] += 1
    with pytest.raises(VersionMismatch, match="newer"):
        opened(bytes(data))


@given(st.binary(max_size=200))
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(StateRefused):
        opened(data)
