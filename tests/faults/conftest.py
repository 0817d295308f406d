"""A pool of its own for every test of a fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from tests.faults.proxy import Proxy
from tests.faults.rig import Rig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LoopbackPool]:
    """A home for processes, none of them started."""
    with LoopbackPool(tmp_path / "home") as pool:
        yield pool


@pytest.fixture
def rig(local: LoopbackPool) -> Iterator[Rig]:
    """A running coordinator behind a proxy, without workers."""
    local.start_coordinator()
    with Proxy(f"127.0.0.1:{local.port}") as proxy:
        here = Rig(local, proxy)
        try:
            yield here
            assert here.pool.audit().ok
        finally:
            here.pool.close()
            local.stop()
