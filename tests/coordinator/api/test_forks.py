"""A program that forks after it connected: parent and child each have connections of their own."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from moregpu.client.access import Access
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool as Client
from moregpu.errors import StillRunning

from .conftest import Pool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows forks nothing")

GIVEN_UP_S = 60.0


@pytest.fixture
def client(pool: Pool) -> Iterator[Client]:
    with Client(Access(addresses=(pool.address,), token=pool.token("submitter"), pin=pool.pin)) as connected:
        yield connected


def in_a_child(ask: Callable[[], Any]) -> Any:
    """What a forked process is told; raises `TimeoutError` where it waits for ever."""
    forking = multiprocessing.get_context("fork")
    here, there = forking.Pipe(duplex=False)

    def say(there: Connection) -> None:
        there.send(ask())

    child = forking.Process(target=say, args=(there,), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what is tried
        child.start()
    there.close()
    try:
        if not here.poll(GIVEN_UP_S):
            raise TimeoutError("the child waits for ever")
        return here.recv()
    finally:
        child.kill()
        child.join()


def still_runs(job: JobHandle) -> bool:
    try:
        job.wait(0.01)
    except StillRunning:
        return True
    return False


def test_a_child_submits_and_waits_and_the_parent_hears_what_it_waited_for(client: Client) -> None:
    job = client.benchmark("relu", 4)
    assert still_runs(job)

    def ask() -> tuple[str, str, bool]:
        with client:  # what it closes is its own
            return client.me().role, client.benchmark("relu", 5).cancel().state, still_runs(job)

    for _ in range(2):
        assert in_a_child(ask) == ("submitter", "cancelled", True)
    job.cancel()
    assert job.wait(GIVEN_UP_S).state == "cancelled"
    assert client.benchmark("relu", 6).cancel().state == "cancelled"


def test_a_child_waits_for_no_lock_that_another_thread_held(client: Client) -> None:
    client.me()
    with client._lock, client._calls_lock, client.doors._lock:
        assert in_a_child(lambda: (client.me().role, client.benchmark("relu", 7).cancel().state)) == (
            "submitter",
            "cancelled",
        )
