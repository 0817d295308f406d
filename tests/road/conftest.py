"""Pools of real processes on loopback: the same commands that a person types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool

UNPRIVILEGED = "65534"
"""Whose processes functions are where the tests run as root: no sandbox is root's."""

QUICK = ("test_every_kernel_at_small_sizes", "test_both_workers_take_part_and_sign", "test_the_demo_prints_one_object")
"""What `make quick` drives of the road; the rest takes processes' time and is marked slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.name.startswith(QUICK):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackPool]:
    """A coordinator with two workers, anna and ben. Whoever breaks one starts a pool of its own (`lone`)."""
    with LoopbackPool(tmp_path_factory.mktemp("road") / "home") as local:
        local.start_coordinator()
        for name in ("anna", "ben"):
            local.start_worker(name)
        local.wait_for_workers()
        yield local


@pytest.fixture(scope="session")
def pool(road: LoopbackPool) -> Iterator[Pool]:
    """Connected to it as its admin."""
    with road.connect() as connected:
        yield connected


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[LoopbackPool]:
    """A coordinator that a test may kill, without workers."""
    with LoopbackPool(tmp_path / "home") as local:
        local.start_coordinator()
        yield local


@pytest.fixture(scope="session")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackPool]:
    """A coordinator, and a worker that lets functions in."""
    home = tmp_path_factory.mktemp("functions") / "home"
    with LoopbackPool(home, environment={"MOREGPU_FUNCTIONS_USER": UNPRIVILEGED}) as local:
        local.start_coordinator()
        local.start_worker("anna", "--allow", "functions", "--ceiling", "1.0")
        (anna,) = local.wait_for_workers()
        if "function" not in anna.kinds:
            pytest.skip("missing: a sandbox for functions; mend: apt-get install bubblewrap")
        yield local


@pytest.fixture
def function_pool(functions: LoopbackPool) -> Iterator[Pool]:
    """Connected to it: one session of functions."""
    with functions.connect() as connected:
        yield connected
