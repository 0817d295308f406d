"""Large values between blobs and shared memory: right, patient, and not fetched more often than needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moregpu.blobs.cache import SealedCache
from moregpu.blobs.format import open_into, seal, sealed_size
from moregpu.errors import NotFound, OutOfSpace, Unreachable
from moregpu.jobs import Blob, Planned, Tensor
from moregpu.wire.messages import Assignment
from moregpu.wire.statement import content_digest
from moregpu.worker.frames import Place
from moregpu.worker.memory import Region
from moregpu.worker.transfers import Transfers
from tests.blobs.conftest import Door

ROWS, COLUMNS = 600, 1024
SIZE = ROWS * COLUMNS * 4
KEY = bytes(range(32))


@pytest.fixture
def door(tmp_path: Path) -> object:
    door = Door(tmp_path)
    yield door
    door.stop()


def put(door: Door, plain: bytes) -> Blob:
    blob, sealed = seal(plain)
    upload = door.files.begin("client", blob.digest, len(sealed))
    upload.write(memoryview(sealed))
    upload.finish()
    return blob


def task(**inputs: Tensor) -> Assignment:
    return Assignment(
        job="j-1", task="t-1", attempt=1, token=bytes(16), kind="kernel", program=b"relu", parameters=b"\x80",
        precision="float32", inputs=inputs, outputs={"out": Planned(dtype="float32", shape=(ROWS, COLUMNS))},
        digest_key=KEY, seed=0, time_limit_s=None, lease_s=60.0,
    )  # fmt: skip


def place_of(tensor: Tensor, start: int = 0) -> Place:
    return Place(dtype=tensor.dtype, shape=tensor.part_shape, start=start, size_bytes=tensor.part_bytes)


async def asked(door: Door) -> None:
    """Wait until a request has come."""
    async with asyncio.timeout(20):
        while not door.requests:  # noqa: ASYNC110 — the door lives on threads of its own
            await asyncio.sleep(0.01)


def tell(tmp_path: Path, story: Callable[[Transfers, asyncio.Event], Awaitable[None]]) -> None:
    async def run() -> None:
        transfers = Transfers(SealedCache(tmp_path / "cache", 64 << 20))
        try:
            await story(transfers, asyncio.Event())
        finally:
            transfers.close()

    asyncio.run(run())


def test_inputs_land_where_they_belong_and_are_described_by_what_is_inside(tmp_path: Path, door: Door) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        transfers.connected(door.address, door.pin, door.token)
        plain = os.urandom(SIZE)
        blob = put(door, plain)
        rows = Tensor(dtype="float32", shape=(ROWS, COLUMNS), data=blob, region=((100, 200), (0, COLUMNS)))
        inline = Tensor(dtype="float32", shape=(2,), data=b"abcdefgh")
        region = Region(1, 1 << 20)
        places = {"a": place_of(rows), "b": place_of(inline, rows.part_bytes)}
        described = await transfers.fetch(task(a=rows, b=inline), region, places, unwanted)
        part = plain[100 * COLUMNS * 4 : 200 * COLUMNS * 4]
        assert bytes(region.view(0, len(part))) == part
        assert bytes(region.view(len(part), 8)) == b"abcdefgh"
        assert described["a"].content == content_digest(KEY, "float32", (100, COLUMNS), part)
        assert (described["a"].blob_digest, described["a"].shape) == (blob.digest, (100, COLUMNS))
        assert described["b"].blob_digest == ""

    tell(tmp_path, story)


def test_outputs_are_stored_each_time_under_a_fresh_key(tmp_path: Path, door: Door) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        transfers.connected(door.address, door.pin, door.token)
        region = Region(1, SIZE)
        plain = os.urandom(SIZE)
        region.view(0, SIZE)[:] = plain
        places = {"out": Place(dtype="float32", shape=(ROWS, COLUMNS), start=0, size_bytes=SIZE)}
        keys: set[bytes] = set()
        for _ in range(2):
            tensors, described = await transfers.store(task(), places, region.view, unwanted)
            blob = tensors["out"].data
            assert isinstance(blob, Blob)
            keys.add(blob.key)
            sealed = door.files.path(blob.digest).read_bytes()
            out = bytearray(SIZE)
            open_into(blob, sealed, out)
            assert out == plain
            assert described["out"].content == content_digest(KEY, "float32", (ROWS, COLUMNS), plain)
        assert len(keys) == 2

    tell(tmp_path, story)


def test_a_full_coordinator_is_asked_until_it_has_room(tmp_path: Path, door: Door) -> None:
    refusals = [0]

    def full() -> OutOfSpace:
        refusals[0] += 1
        if refusals[0] == 3:
            door.refusal = None
        return OutOfSpace("full", "later")

    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        transfers.connected(door.address, door.pin, door.token)
        door.refusal = full
        places = {"out": Place(dtype="float32", shape=(2,), start=0, size_bytes=8)}
        tensors, _ = await transfers.store(task(), places, Region(1, 4096).view, unwanted)
        assert isinstance(tensors["out"].data, Blob)
        assert refusals[0] == 3

    tell(tmp_path, story)


def test_a_task_that_nobody_wants_any_more_ends_the_patience(tmp_path: Path, door: Door) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        transfers.connected(door.address, door.pin, door.token)
        door.refusal = lambda: OutOfSpace("full", "later")
        places = {"out": Place(dtype="float32", shape=(2,), start=0, size_bytes=8)}
        storing = asyncio.ensure_future(transfers.store(task(), places, Region(1, 4096).view, unwanted))
        await asked(door)
        unwanted.set()
        with pytest.raises(OutOfSpace):
            await storing

    tell(tmp_path, story)


def test_without_a_session_it_waits_and_goes_on_with_the_next_ones_token(tmp_path: Path, door: Door) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        tensor = Tensor(dtype="float32", shape=(ROWS, COLUMNS), data=put(door, os.urandom(SIZE)))
        fetching = asyncio.ensure_future(
            transfers.fetch(task(a=tensor), Region(1, SIZE), {"a": place_of(tensor)}, unwanted)
        )
        await asyncio.sleep(0)
        assert not door.requests
        transfers.connected(door.address, door.pin, "mgt_of_an_old_session")
        await asked(door)
        transfers.connected(door.address, door.pin, door.token)
        assert "a" in await fetching

    tell(tmp_path, story)


def test_waiting_for_a_session_ends_when_the_task_is_withdrawn(tmp_path: Path) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        tensor = Tensor(dtype="float32", shape=(2,), data=b"abcdefgh")
        fetching = asyncio.ensure_future(
            transfers.fetch(task(a=tensor), Region(1, 4096), {"a": place_of(tensor)}, unwanted)
        )
        await asyncio.sleep(0)
        unwanted.set()
        with pytest.raises(Unreachable):
            await fetching

    tell(tmp_path, story)


def test_a_blob_that_is_not_there_is_not_asked_for_for_ever(tmp_path: Path, door: Door) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        transfers.connected(door.address, door.pin, door.token)
        blob, _ = seal(bytes(SIZE))
        tensor = Tensor(dtype="float32", shape=(ROWS, COLUMNS), data=blob)
        with pytest.raises(NotFound):
            await transfers.fetch(task(a=tensor), Region(1, SIZE), {"a": place_of(tensor)}, unwanted)

    tell(tmp_path, story)


def test_neighbouring_tasks_fetch_a_shared_input_at_most_twice(tmp_path: Path, door: Door) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        transfers.connected(door.address, door.pin, door.token)
        plain = os.urandom(SIZE)
        blob = put(door, plain)
        region = Region(1, SIZE)
        for number in range(16):  # columns, as the tiles of a product need them: no two neighbours in memory
            first = number * COLUMNS // 16
            part = Tensor(
                dtype="float32", shape=(ROWS, COLUMNS), data=blob, region=((0, ROWS), (first, first + COLUMNS // 16))
            )
            await transfers.fetch(task(a=part), region, {"a": place_of(part)}, unwanted)
            expected = b"".join(
                plain[(row * COLUMNS + first) * 4 : (row * COLUMNS + first + COLUMNS // 16) * 4] for row in range(ROWS)
            )
            assert bytes(region.view(0, part.part_bytes)) == expected
        assert door.sent_bytes <= 2 * sealed_size(SIZE)
        assert transfers.cache.hot() == [blob.digest]

    tell(tmp_path, story)


def test_what_is_used_once_is_not_kept(tmp_path: Path, door: Door) -> None:
    async def story(transfers: Transfers, unwanted: asyncio.Event) -> None:
        transfers.connected(door.address, door.pin, door.token)
        blob = put(door, os.urandom(SIZE))
        region = Region(1, SIZE)
        for first in range(0, ROWS, 150):  # rows: each byte is needed by one task
            part = Tensor(
                dtype="float32", shape=(ROWS, COLUMNS), data=blob, region=((first, first + 150), (0, COLUMNS))
            )
            await transfers.fetch(task(a=part), region, {"a": place_of(part)}, unwanted)
        assert transfers.cache.used_bytes() == 0

    tell(tmp_path, story)
