"""A full disk, or more than the pool keeps: the oldest outputs go at once, with their files; the records stay."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from moregpu.blobs.format import seal
from moregpu.coordinator.housekeeping import Housekeeping
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.server import Coordinator, ServeConfig, coordinator
from moregpu.coordinator.store.protocol import BlobRow, JobRow
from moregpu.jobs import Blob, JobState, Tensor
from moregpu.wire.api import ResultManifest
from moregpu.workloads import workload
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu.workloads.protocol import FleetSummary

ANN = Principal(id="s", role="submitter")
SIZE = 4000


async def finished(made: Coordinator, name: str, ended_ago_s: float) -> Blob:
    """A job that ended a while ago, with a result of its own in a file."""
    services = made.services
    store, wall = services.desk.store, services.clock.wall()
    blob, sealed = seal(bytes(SIZE))
    upload = services.blobs.begin("s", blob.digest, len(sealed))
    upload.write(sealed)
    upload.finish()
    await store.add_blob(BlobRow(digest=blob.digest, sealed_bytes=len(sealed), principal="s", created_at=wall))
    spec = KernelSpec(operation="relu", size=4)
    plan = workload("kernel").plan(spec, FleetSummary())
    tensor = Tensor(dtype="float32", shape=(SIZE // 4,), data=blob)
    job = JobRow(
        id=name, submitter="s", kind="kernel", spec=spec, plan=plan, digest_key=bytes(32), state=JobState.RUNNING,
        created_at=wall - ended_ago_s - 1.0, grains_done=plan.grains,
    )  # fmt: skip
    await store.add_job(job)
    result = ResultManifest(outputs={"out": tensor}, digest="00")
    await store.finish(name, result=result, error=None, combining_s=0.0, wall=wall - ended_ago_s)
    return blob


def serving(tmp_path: Path) -> ServeConfig:
    return ServeConfig(port=0, state=str(tmp_path / "pool"), profile="")


def test_at_the_disks_mark_the_oldest_outputs_go_with_their_files_and_while_there_is_room_none_do(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with coordinator(serving(tmp_path)) as made:
            services = made.services
            blobs = [await finished(made, f"j-{n}", ended_ago_s=100.0 - n) for n in range(3)]
            chores = Housekeeping(services)
            await chores.make_room()
            assert all(services.blobs.size(blob.digest) is not None for blob in blobs)
            services.blobs._disk_mark = 0.0  # whatever is free is too little
            await chores.make_room()
            assert all(services.blobs.size(blob.digest) is None for blob in blobs)
            for number in range(3):
                row = await services.desk.store.job(f"j-{number}")
                assert row is not None and row.purged and row.state is JobState.DONE
                view = await services.desk.view(ANN, row)
                assert view.purged and view.kept_until is None and view.result is None

    asyncio.run(run())


def test_beyond_what_a_pool_keeps_the_oldest_go_and_the_newest_stay(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(serving(tmp_path)) as made:
            services = made.services
            blobs = [await finished(made, f"j-{n}", ended_ago_s=100.0 - n) for n in range(3)]
            await Housekeeping(services).purge_beyond(2 * SIZE)
            assert [services.blobs.size(blob.digest) is None for blob in blobs] == [True, False, False]
            row = await services.desk.store.job("j-2")
            assert row is not None
            view = await services.desk.view(ANN, row)
            assert not view.purged and view.kept_until == (row.ended_at or 0.0) + row.spec.keep_s

    asyncio.run(run())


def test_what_another_job_still_names_is_not_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(serving(tmp_path)) as made:
            services = made.services
            blob = await finished(made, "j-0", ended_ago_s=100.0)
            tensor = Tensor(dtype="float32", shape=(SIZE // 4,), data=blob)
            spec = KernelSpec(operation="relu", inputs={"a": tensor})
            plan = workload("kernel").plan(spec, FleetSummary())
            job = JobRow(
                id="j-1", submitter="s", kind="kernel", spec=spec, plan=plan, digest_key=bytes(32),
                state=JobState.QUEUED, created_at=services.clock.wall(),
            )  # fmt: skip
            await services.desk.store.add_job(replace(job))
            await Housekeeping(services).purge_beyond(0)
            row = await services.desk.store.job("j-0")
            assert row is not None and row.purged
            assert services.blobs.size(blob.digest) is not None

    asyncio.run(run())
