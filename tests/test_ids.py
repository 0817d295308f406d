"""Names of jobs and tasks: UUIDv7 in Crockford base32, to the bit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moregpu.ids import LENGTH, decode, job_id, task_id

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
