"""What a coordinator does now and then, on a real store and real files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec.structs import replace

from moregpu.coordinator.housekeeping import Housekeeping
from moregpu.coordinator.server import ServeConfig, coordinator
from moregpu.coordinator.store.protocol import BlobRow, JobRow
from moregpu.jobs import JobState, Tensor
from moregpu.wire.api import ResultManifest
from moregpu.workloads import workload
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu.workloads.protocol import FleetSummary


def test_outputs_go_when_they_were_kept_as_long_as_asked_and_blobs_that_nobody_names(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(ServeConfig(port=0, state=str(tmp_path / "pool"), profile="")) as made:
            services = made.services
            store, wall = services.desk.store, services.clock.wall()
            spec = KernelSpec(operation="relu", size=4, keep_s=100.0)
            plan = workload("kernel").plan(spec, FleetSummary())
            tensor = Tensor(dtype="float32", shape=(1,), data=b"1234")
            for name, ended_at in (("j-1", wall - 200.0), ("j-2", wall - 50.0)):
                job = JobRow(
                    id=name, submitter="s", kind="kernel", spec=spec, plan=plan, digest_key=bytes(32),
                    state=JobState.DONE, created_at=wall - 300.0, ended_at=ended_at, grains_done=plan.grains,
                    result=ResultManifest(outputs={"out": tensor}),
                )  # fmt: skip
                await store.add_job(job)
            upload = services.blobs.begin("s", None, 64)
            upload.write(os.urandom(64))
            digest = upload.finish()
            await store.add_blob(BlobRow(digest=digest, sealed_bytes=64, principal="s", created_at=wall - 10.0))

            chores = Housekeeping(services)
            await chores.purge_outputs(wall)
            first, second = await store.job("j-1"), await store.job("j-2")
            assert first is not None and second is not None
            assert (first.purged, second.purged) == (True, False)
            await chores.purge_outputs(wall + 100.0)
            second = await store.job("j-2")
            assert second is not None and second.purged

            await chores.drop_blobs(wall - 20.0)
            assert services.blobs.size(digest) == 64
            await chores.drop_blobs(wall)
            assert services.blobs.size(digest) is None
            assert await store.blob(digest) is None

            # A crash between a blob's file and its row leaves a file that no row names.
            orphan = services.blobs.begin("s", None, 64)
            orphan.write(os.urandom(64))
            lost = orphan.finish()
            await chores.drop_blobs(wall - 20.0)
            assert services.blobs.size(lost) == 64
            await chores.drop_blobs(wall + 3600.0)
            assert services.blobs.size(lost) is None

    asyncio.run(run())


def test_a_round_on_an_empty_pool_finds_nothing_to_do(tmp_path: Path) -> None:
    async def run() -> None:
        config = ServeConfig(port=0, state=str(tmp_path / "pool"), profile="")
        async with coordinator(config) as made:
            await Housekeeping(made.services).round()
        async with coordinator(replace(config, name="again")) as made:
            assert made.opening.pool_name == "again"

    asyncio.run(run())
