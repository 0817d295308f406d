"""Names of jobs and tasks: UUIDv7 in Crockford base32, to the bit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moregpu.ids import LENGTH, decode, job_id, name_order, task_id

RANDOM_BITS = 74


@given(wall_s=st.floats(0, 2**47 / 1000), entropy=st.binary(min_size=10, max_size=16))
def test_an_id_is_a_uuid_of_version_7_with_its_milliseconds_and_all_its_randomness(
    wall_s: float, entropy: bytes
) -> None:
    prefix, dash, name = task_id(wall_s, entropy).partition("-")
    bits = decode(name)
    assert (prefix, dash, len(name)) == ("t", "-", LENGTH)
    assert bits >> 80 == int(wall_s * 1000)
    assert (bits >> 76 & 0xF, bits >> 62 & 0b11) == (7, 0b10)
    random = (bits >> 64 & 0xFFF) << 62 | bits & (1 << 62) - 1
    assert random == int.from_bytes(entropy[:10], "big") & (1 << RANDOM_BITS) - 1


@given(earlier_ms=st.integers(0, 2**46), later_ms=st.integers(1, 2**46), entropy=st.binary(min_size=20, max_size=20))
def test_ids_sort_by_the_time_of_birth(earlier_ms: int, later_ms: int, entropy: bytes) -> None:
    earlier = job_id(earlier_ms / 1000, entropy[:10])
    assert earlier < job_id((earlier_ms + later_ms + 1) / 1000, entropy[10:])


def test_numbers_in_names_count_as_numbers() -> None:
    names = [
        "box10",
        "box2",
        "light-0-10",
        "light-0-2",
        "Light-0-3",
        "light-0-02",
        "9",
        "10",
        "box",
        "",
        "a1b10",
        "a1b9",
        "7" * 5000,
    ]
    assert sorted(names, key=name_order) == [
        "", "9", "10", "7" * 5000, "a1b9", "a1b10", "box", "box2", "box10",
        "light-0-02", "light-0-2", "Light-0-3", "light-0-10",
    ]  # fmt: skip


@given(st.lists(st.text(st.sampled_from("ab0123-²٣"), max_size=12), unique=True))
def test_any_two_names_have_one_order(names: list[str]) -> None:
    assert len({name_order(name) for name in names}) == len(names)
    sorted(names, key=name_order)  # all of them can be compared
