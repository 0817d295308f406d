"""Functions where no WebSocket gets through, and on a pool that a program started for itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import moregpu
from moregpu.cli.loopback import LoopbackPool, free_port
from moregpu.client.functions.started import Started
from moregpu.client.pool import Pool
from moregpu.errors import Unavailable
from tests.road.conftest import UNPRIVILEGED
from tests.road.test_proxy import Proxy, behind_proxy


@pytest.fixture
def without_link(functions: LoopbackPool, tmp_path: Path) -> Iterator[tuple[Pool, Proxy]]:
    with behind_proxy(functions.access(), tmp_path) as reached:
        yield reached


def test_calls_are_made_where_no_websocket_gets_through(without_link: tuple[Pool, Proxy]) -> None:
    pool, proxy = without_link
    assert pool.submit(lambda x: x * x, 7).result(60) == 49
    assert list(pool.map(lambda x: x + 1, range(50))) == list(range(1, 51))
    array = np.random.default_rng(1).random(300_000)
    assert np.array_equal(pool.submit(lambda x: x * 2, array).result(60), array * 2)
    assert proxy.refused >= 1


def test_what_goes_wrong_there_is_each_calls_own(without_link: tuple[Pool, Proxy]) -> None:
    pool, _ = without_link

    def inverse(x: float) -> float:
        return 1 / x

    futures = [pool.submit(inverse, x) for x in (2, 0, 4)]
    assert futures[0].result(60) == 0.5
    with pytest.raises(ZeroDivisionError):
        futures[1].result(60)
    assert futures[2].result(60) == 0.25
    with pytest.raises(moregpu.RemoteError) as caught:
        pool.submit(os._exit, 3).result(60)
    assert caught.value.cause in ("exited", "crashed")


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "own"
    for name, value in (
        ("HOME", str(home)), ("SECRETS", "file"), ("YIELD", "off"), ("FUNCTIONS_USER", UNPRIVILEGED),
    ):  # fmt: skip
        monkeypatch.setenv(f"MOREGPU_{name}", value)
    for name in ("URL", "ADMIN_TOKEN", "TOKEN"):
        monkeypatch.delenv(f"MOREGPU_{name}", raising=False)
    return home


def until_worker(pool: Pool, process: Started) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.process.poll() is None:
        workers = pool.workers()
        if workers and workers[0].state == "online" and workers[0].reason != "being measured":
            return workers[0]
        time.sleep(0.05)
    raise AssertionError("the worker did not come")


def test_a_program_starts_a_pool_gives_it_this_machine_and_both_end_with_it(own_home: Path) -> None:
    with moregpu.start_coordinator(port=free_port(), name="mine") as coordinator:
        with moregpu.connect() as pool:
            assert pool.info().name == "mine"
            with moregpu.add_worker(pool, name="here", cores=1) as worker:
                found = until_worker(pool, worker)
                assert found.name == "here"
                if "function" not in found.kinds:
                    pytest.skip("missing: a sandbox for functions; mend: apt-get install bubblewrap")
                assert pool.submit(lambda: 6 * 7).result(60) == 42
            assert worker.process.poll() is not None
        assert coordinator.process.poll() is None
    assert coordinator.process.poll() is not None
    assert (own_home / "state" / "pool").exists()


def test_a_coordinator_that_cannot_come_up_says_where_to_look(own_home: Path) -> None:
    with moregpu.start_coordinator(port=free_port()) as first:
        with moregpu.connect() as pool:
            port = int(pool.info().addresses[0].rpartition(":")[2])
        with pytest.raises(Unavailable) as caught:
            moregpu.start_coordinator(port=port, state=str(own_home / "state" / "second"))
        assert "moregpu serve" in caught.value.hint
        assert first.process.poll() is None
