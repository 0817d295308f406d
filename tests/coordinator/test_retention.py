"""Which outputs go, and when. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moregpu.coordinator.retention import Kept, kept, kept_bytes, kept_until, room_wanted, to_forget
from moregpu.jobs import JobState
from moregpu.workloads.kernel.spec import KernelSpec
from tests.coordinator.store import rows

WALL = 1000.0
jobs = st.lists(
    st.builds(
        Kept,
        ended_at=st.floats(0, WALL),
        id=st.uuids().map(str),
        size_bytes=st.integers(0, 1000),
        until=st.floats(0, 2 * WALL),
    ),
    max_size=20,
)


@given(jobs)
def test_what_was_kept_as_long_as_asked_goes_and_nothing_else(all_jobs: list[Kept]) -> None:
    assert set(to_forget(all_jobs, WALL)) == {job.id for job in all_jobs if job.until <= WALL}


@given(jobs, st.integers(0, 3000), st.integers(0, 3000))
def test_the_oldest_go_first_until_there_is_room_and_no_more_than_that(
    all_jobs: list[Kept], keep_bytes: int, free_bytes: int
) -> None:
    gone = to_forget(all_jobs, WALL, keep_bytes=keep_bytes, free_bytes=free_bytes)
    sizes = {job.id: job.size_bytes for job in all_jobs}
    total, freed = sum(sizes.values()), sum(sizes[id] for id in gone)
    wanted = max(total - keep_bytes, free_bytes)
    assert freed >= min(wanted, total)
    early = [id for id in gone if next(job for job in all_jobs if job.id == id).until > WALL]
    if early:
        assert freed - sizes[early[-1]] < wanted, "the last one was needed"
        assert all(sizes[id] > 0 for id in early)
        latest = max(job.ended_at for job in all_jobs if job.id in early)
        assert all(
            job.id in gone or job.size_bytes == 0 for job in all_jobs if job.ended_at < latest
        )  # fmt: skip


def test_a_job_keeps_its_result_and_its_inputs_each_blob_once_until_its_time_is_up() -> None:
    blob, other = rows.blob(1, 300), rows.blob(2, 200)
    spec = KernelSpec(operation="relu", keep_s=50.0)
    job = replace(rows.job(inputs=(blob,)), state=JobState.DONE, ended_at=100.0, result=rows.manifest(blob, other))
    assert kept_bytes(job) == 500
    assert kept_until(replace(job, spec=replace(job.spec, keep_s=spec.keep_s))) == 150.0
    assert kept(replace(job, purged=True)) is None and kept_until(replace(job, purged=True)) is None
    assert kept(replace(job, state=JobState.RUNNING)) is None


def test_nothing_is_freed_while_there_is_room_and_a_good_part_when_there_is_none() -> None:
    assert room_wanted(1, 1 << 40) == 0
    assert room_wanted(0, 1 << 40) == int(0.05 * (1 << 40))
    assert room_wanted(0, 0) == 256 << 20
