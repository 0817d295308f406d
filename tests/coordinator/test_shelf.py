"""Kernels that an earlier version registered, which refused less."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from moregpu.coordinator.shelf import KernelShelf
from moregpu.coordinator.store.memory import MemoryStore
from moregpu.errors import InvalidRequest, NotFound
from tests.coordinator.api.test_kernels import LEAKY_RELU
from tests.coordinator.store import rows

OLD = LEAKY_RELU.replace("slope * a)", "count * a)").replace('"slope"]', '"count"]')


def test_a_kernel_that_nobody_may_register_any_more_is_listed_and_can_be_removed() -> None:
    """One that counts as broken now kept the others from being listed, and could not be taken away."""

    async def run() -> None:
        clock = rows.TestClock()
        store = MemoryStore(clock)
        await store.open(clock.now)
        kept = {"leaky_relu": {"source": OLD, "created_at": 1.0}}
        await store.set_setting("pool.kernels", msgspec.json.encode(kept).decode())
        shelf = KernelShelf(store)
        await shelf.load()
        assert [view.parameters for view in shelf.views()] == [["count"]]
        with pytest.raises(InvalidRequest, match="sizes of what is computed"):
            await shelf.add(OLD.replace("leaky_relu", "another"), 2.0)
        await shelf.drop("leaky_relu")
        assert shelf.views() == []
        with pytest.raises(NotFound):
            await shelf.drop("leaky_relu")
        await store.close()

    asyncio.run(run())
