"""Inputs that are kept open: which are, for how long, and what is said about their parts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.blobs.regions import read_part
from moregpu.jobs import Blob, Tensor
from moregpu.wire.statement import content_digest
from moregpu.worker.memory import Region, RegionPool
from moregpu.worker.residents import LEAST_BYTES, Resident, Residents

MIB = 1 << 20


def tensor(name: str, size: int = MIB, region: tuple[tuple[int, int], ...] | None = None, key: int = 1) -> Tensor:
    blob = Blob(digest=name * 64, key=bytes([key]) * 32, size_bytes=size)
    return Tensor(dtype="float32", shape=(size // 4096, 1024), data=blob, region=region)


@pytest.fixture
def residents() -> Iterator[Residents]:
    made = Residents(4 * MIB, RegionPool())
    yield made
    made.clear()


def kept(residents: Residents, wanted: Tensor, closed: list[Region] | None = None) -> Resident | None:
    """What a task of this tensor finds; the task ends at once."""
    found = residents.take(wanted, [] if closed is None else closed)
    if found is not None:
        found.opened = True
        residents.give_back(found)
    return found


def test_what_is_needed_once_is_not_kept(residents: Residents) -> None:
    assert kept(residents, tensor("a")) is None
    assert residents.used_bytes == 0


def test_what_comes_again_is_kept_and_found_by_every_later_task(residents: Residents) -> None:
    kept(residents, tensor("a"))
    first = kept(residents, tensor("a"))
    assert first is not None and residents.used_bytes == MIB
    assert kept(residents, tensor("a")) is first
    assert kept(residents, tensor("a", region=((0, 10), (0, 7)))) is first


def test_the_parts_of_one_job_are_not_a_second_use(residents: Residents) -> None:
    quarters = [tensor("a", region=((at, at + 64), (0, 1024))) for at in range(0, 256, 64)]
    assert [kept(residents, quarter) for quarter in quarters] == [None] * 4
    assert kept(residents, quarters[0]) is not None


def test_columns_have_every_record_opened_so_the_second_task_of_a_job_finds_it_kept(residents: Residents) -> None:
    assert kept(residents, tensor("a", region=((0, 256), (0, 256)))) is None
    assert kept(residents, tensor("a", region=((0, 256), (256, 512)))) is not None


def test_a_blob_under_another_key_is_another(residents: Residents) -> None:
    kept(residents, tensor("a"))
    assert kept(residents, tensor("a")) is not None
    assert kept(residents, tensor("a", key=2)) is None


@pytest.mark.parametrize("size", [LEAST_BYTES - 4096, 4 * MIB])
def test_small_ones_and_those_that_would_push_out_all_others_are_opened_each_time(
    residents: Residents, size: int
) -> None:
    assert [kept(residents, tensor("a", size)) for _ in range(3)] == [None] * 3


def test_inline_values_are_not_kept(residents: Residents) -> None:
    inline = Tensor(dtype="float32", shape=(MIB // 4,), data=bytes(MIB))
    assert [kept(residents, inline) for _ in range(3)] == [None] * 3


def test_the_least_recently_used_makes_room_and_its_region_is_named(residents: Residents) -> None:
    closed: list[Region] = []
    for name in "abcd":
        kept(residents, tensor(name))
        assert kept(residents, tensor(name)) is not None
    oldest = kept(residents, tensor("a"))
    assert residents.used_bytes == 4 * MIB and oldest is not None
    kept(residents, tensor("e"), closed)
    assert kept(residents, tensor("e"), closed) is not None
    assert [region.number for region in closed] == [2]  # b: a was used after it
    assert closed[0].fd == -1
    assert kept(residents, tensor("a")) is oldest


def test_what_a_task_needs_now_never_makes_room() -> None:
    residents = Residents(2 * MIB, RegionPool())
    for name in "ab":
        residents.take(tensor(name), [])
        in_use = residents.take(tensor(name), [])
        assert in_use is not None
        in_use.opened = True
    closed: list[Region] = []
    assert [residents.take(tensor("c"), closed) for _ in range(3)] == [None] * 3
    assert closed == [] and residents.clear() == []


def test_while_one_task_opens_it_others_open_their_own(residents: Residents) -> None:
    residents.take(tensor("a"), [])
    opening = residents.take(tensor("a"), [])
    assert opening is not None and not opening.opened
    assert residents.take(tensor("a"), []) is None


def test_what_could_not_be_opened_is_not_kept(residents: Residents) -> None:
    residents.take(tensor("a"), [])
    opening = residents.take(tensor("a"), [])
    assert opening is not None
    assert residents.drop(opening).fd == -1
    assert residents.used_bytes == 0
    assert residents.take(tensor("a"), []) is None


def test_a_tensor_that_is_not_its_whole_blob_is_left_to_whoever_says_so(residents: Residents) -> None:
    wrong = Tensor(dtype="float32", shape=(7, 7), data=Blob(digest="a" * 64, key=bytes(32), size_bytes=MIB))
    assert [kept(residents, wrong) for _ in range(30_000)][-1] is None


@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 3000),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
    window=st.integers(8, 20_000),
)
def test_the_digest_of_a_part_is_that_of_its_bytes_joined(
    rows: int, columns: int, cut: tuple[float, float, float, float], window: int
) -> None:
    low, high = sorted(int(share * rows) for share in cut[:2])
    left, right = sorted(int(share * columns) for share in cut[2:])
    plain = os.urandom(rows * columns * 4)
    blob = Blob(digest="a" * 64, key=bytes(32), size_bytes=len(plain))
    part = Tensor(dtype="float32", shape=(rows, columns), data=blob, region=((low, high), (left, right)))

    def read(start: int, stop: int, out: memoryview) -> None:
        out[:] = plain[start:stop]

    resident = Resident(blob, Region(1, len(plain)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moregpu.worker.residents.WINDOW_BYTES", window)
        resident.region.view(0, len(plain))[:] = plain
        expected = content_digest(bytes(32), "float32", part.part_shape, bytes(read_part(part, read)))
        assert resident.content(bytes(32), part) == expected
        assert resident.content(bytes(32), part) == expected
        assert resident.content(bytes([1] * 32), part) != expected
    resident.region.close()
