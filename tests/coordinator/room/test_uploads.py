"""What workers upload and no job names: the oldest makes room for what is new; honest workers are never refused."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from moregpu.coordinator.hub import UPLOADS_OF_AN_OUTPUT
from moregpu.coordinator.store.protocol import BlobRow
from moregpu.coordinator.uploads import Uploads
from moregpu.errors import TooManyRequests
from moregpu.jobs import Blob, Tensor
from moregpu.wire.messages import ResultEntry
from tests.coordinator.room.pool import ANN, Room, product, room


async def _uploaded(here: Room, worker: str, size: int) -> str:
    """A blob of so many bytes, as its door takes it in."""
    upload = here.blobs.begin(worker, None, size)
    upload.write(os.urandom(size))
    digest = upload.finish()
    await here.store.add_blob(BlobRow(digest=digest, sealed_bytes=size, principal=worker, created_at=0.0))
    return digest


def _there(here: Room, digests: list[str]) -> list[bool]:
    return [here.blobs.size(digest) is not None for digest in digests]


def _naming(digest: str) -> ResultEntry:
    out = Tensor(dtype="float32", shape=(25,), data=Blob(digest=digest, key=bytes(32), size_bytes=100))
    return ResultEntry(task="t-1", attempt=1, token=b"t" * 16, outputs={"out": out})


def test_what_a_killed_worker_left_here_gives_way_oldest_first(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            left = [await _uploaded(here, "w-1", 1000) for _ in range(4)]
            others = [await _uploaded(here, "w-2", 1000)]
            uploads = here.desk._uploads
            assert await uploads.make_room("w-1", 1500) == 2000
            assert _there(here, left) == [False, False, True, True] and _there(here, others) == [True]
            assert await here.store.blob(left[0]) is None
            await uploads.admit("w-1", 1000, 1000)
            assert _there(here, left[2:]) == [True, True], "it fits beside them"
            await uploads.admit("w-1", 1000, -900)
            assert _there(here, left[2:]) == [False, False]
            with pytest.raises(TooManyRequests):
                await uploads.admit("w-1", 1000, 999)

    asyncio.run(run())


def test_nothing_goes_that_a_result_names_while_it_is_judged_or_that_a_job_names(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            judged, newer = [await _uploaded(here, "w-1", 1000) for _ in range(2)]
            uploads: Uploads = here.desk._uploads
            with uploads.judging([_naming(judged)]):
                with uploads.judging([_naming(judged)]):
                    assert await uploads.make_room("w-1", 2000) == 1000
                assert await uploads.forget("w-1", [judged]) == 0, "another result names it as well"
                assert _there(here, [judged, newer]) == [True, False]
            assert await uploads.forget("w-2", [judged]) == 0, "it is not theirs"
            assert await uploads.forget("w-1", [judged]) == 1000

            spec = await here.spec("matmul", *product(100, 100, 100))
            named = spec.inputs["a"].data.digest  # type: ignore[union-attr]
            await here.store.add_blob(BlobRow(digest=named, sealed_bytes=1000, principal="w-1", created_at=0.0))
            await here.submit(spec, wait_s=0.0)
            assert await uploads.make_room("w-1", 1 << 20) == 0 and _there(here, [named]) == [True]

    asyncio.run(run())


def test_an_upload_that_rests_gives_way_and_one_that_is_written_does_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            uploads = here.desk._uploads
            resting = here.blobs.begin("w-1", "ab" * 32, 5000)
            resting.write(bytes(3000))
            resting.pause()
            written = here.blobs.begin("w-1", "cd" * 32, 5000)
            written.write(bytes(2000))
            assert await uploads.make_room("w-1", 10_000, but="ab" * 32) == 0, "it goes on with that one"
            assert await uploads.make_room("w-1", 10_000) == 3000
            assert here.blobs.offset("w-1", "ab" * 32) is None and here.blobs.offset("w-1", "cd" * 32) == 2000
            written.abort()

    asyncio.run(run())


def test_a_worker_that_dies_between_upload_and_result_again_and_again_may_still_upload(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            row = None
            for _ in range(UPLOADS_OF_AN_OUTPUT + 2):
                worker.computes = False
                token = (await worker.welcomed()).blob_token
                row = row or await here.submit(await here.spec("matmul", *product(100, 100, 100)), wait_s=0.0)
                await worker.until(lambda who=worker: bool(who.assigned))
                who, right = (await here.desk.blob_right(token, "")) or ("", None)
                assert right is not None and right.left_bytes is not None and right.write_bytes > 0
                await here.desk.admit_upload(who, right.write_bytes, right.left_bytes)
                await _uploaded(here, who, right.write_bytes)
                await here.hang_up(worker)
                await here.until(lambda id=worker.id: here.desk._fleet.get(id) is None)
                worker = await here.worker(keys=worker.keys)
            assert row is not None
            await here.desk.cancel(ANN, row.id)

    asyncio.run(run())
