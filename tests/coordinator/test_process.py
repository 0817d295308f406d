"""A coordinator's process: bounded threads for products, work on threads, memory given back when they rest."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from moregpu.coordinator import process, shell
from moregpu.platform import memory


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what is set there holds for all of it."""
    path = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env={**path, **environment}, capture_output=True, text=True, check=True
    )


BLAS_THREADS = """
import os
from moregpu.coordinator import process

process.prepare()
print(os.environ[process.BLAS_VARIABLES[0]])
"""


def test_products_of_checks_use_one_thread_each_unless_the_environment_says_otherwise() -> None:
    assert _run(BLAS_THREADS).stdout.strip() == "1"
    assert _run(BLAS_THREADS, **{process.BLAS_VARIABLES[0]: "3"}).stdout.strip() == "3"


def test_giving_memory_back_is_harmless_at_any_time() -> None:
    memory.trim()
    kept = bytearray(b"x" * 1_000_000)
    memory.trim()
    assert kept == b"x" * 1_000_000


ARENAS_OF_FOUR_THREADS = """
import ctypes
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from moregpu.coordinator import process

process.prepare()
together = Barrier(4)

def work():
    together.wait()
    block = bytearray(100_000)
    together.wait()

with ThreadPoolExecutor(4) as threads:
    for done in [threads.submit(work) for _ in range(4)]:
        done.result()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas of this kind")
def test_threads_share_one_arena() -> None:
    assert _run(ARENAS_OF_FOUR_THREADS).stderr.count("Arena ") == 1


KEPT_AND_GIVEN_BACK = """
from moregpu.coordinator import process
from moregpu.platform import memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

process.prepare()
before = resident()
block = bytearray(b"x") * (24 << 20)
del block
freed = resident()
memory.trim()
print((freed - before) >> 20, (resident() - before) >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep nothing")
def test_what_was_freed_is_used_again_and_given_back_at_a_rest() -> None:
    kept, left = map(int, _run(KEPT_AND_GIVEN_BACK).stdout.split())
    assert kept >= 20 and left <= 4


def test_work_runs_on_threads_also_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "REST_S", 0.0)

    async def run() -> list[int]:
        offload = shell.ThreadOffload(1)
        found = [await offload(lambda: 1)]
        await asyncio.sleep(0)  # the timer of the rest is due
        await asyncio.sleep(0)
        found.append(await offload(lambda: 2))
        offload.close()
        return found

    assert asyncio.run(run()) == [1, 2]


def test_an_error_of_the_work_is_the_callers() -> None:
    async def run() -> None:
        offload = shell.ThreadOffload(1)
        try:
            await offload(lambda: int("none"))
        finally:
            offload.close()

    with pytest.raises(ValueError, match="none"):
        asyncio.run(run())


def test_no_piece_of_randomness_is_given_twice_from_any_thread() -> None:
    entropy = shell.SystemEntropy()
    with ThreadPoolExecutor(4) as threads:
        pieces = list(threads.map(entropy, [16, 32, 7, 2000] * 1000))
    assert [len(piece) for piece in pieces] == [16, 32, 7, 2000] * 1000
    assert len(set(pieces)) == len(pieces)
