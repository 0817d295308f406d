"""Python functions over a pool of real processes, as a person uses them: an Executor, whose calls run in sandboxes."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import operator
import os
import time
from collections import Counter
from concurrent.futures import Executor, as_completed, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.encoding.failures import RemoteError


def square(x: Any) -> Any:
    return x * x


@dataclasses.dataclass
class Point:
    x: float
    y: float

    def length(self) -> float:
        return math.hypot(self.x, self.y)


def test_the_pool_is_an_executor(function_pool: Pool) -> None:
    assert isinstance(function_pool, Executor)
    assert function_pool.submit(square, 7).result(60) == 49
    assert function_pool.submit(operator.add, 2, 3).result(60) == 5
    assert list(function_pool.map(square, range(100))) == [x * x for x in range(100)]
    assert list(function_pool.map(operator.add, [1, 2], [10, 20, 30])) == [11, 22]


def test_calls_run_elsewhere(function_pool: Pool) -> None:
    assert function_pool.submit(os.getpid).result(60) != os.getpid()
    assert function_pool.submit(os.getpid).result(60) == function_pool.submit(os.getpid).result(60), (
        "a session's process stays warm"
    )


def test_as_completed_wait_and_asyncio_take_its_futures(function_pool: Pool) -> None:
    futures = [function_pool.submit(square, x) for x in range(20)]
    assert sorted(future.result() for future in as_completed(futures, 60)) == [x * x for x in range(20)]
    done, left = wait([function_pool.submit(square, x) for x in range(5)], 60)
    assert (len(done), len(left)) == (5, 0)

    async def awaited() -> Any:
        return await asyncio.wrap_future(function_pool.submit(square, 3))

    assert asyncio.run(awaited()) == 9


def test_many_small_calls_share_jobs(function_pool: Pool) -> None:
    before = len(function_pool.jobs(limit=500))
    assert [future.result(60) for future in [function_pool.submit(square, x) for x in range(300)]] == [
        x * x for x in range(300)
    ]
    assert len(function_pool.jobs(limit=500)) - before < 100


def test_arguments_and_results_keep_their_types(function_pool: Pool) -> None:
    def same(*args: Any, _under: Any = None, **kwargs: Any) -> Any:
        return args, _under, kwargs

    value = ({1: "int key", (1, 2): {3}}, np.arange(6).reshape(2, 3), Path("/x"), 2**80, None, b"bytes", 1 + 2j)
    args, under, kwargs = function_pool.submit(same, value, _under=[1, (2,)], named=np.float32(1.5)).result(60)
    assert args[0][0] == value[0]
    assert args[0][2:] == value[2:]
    assert (args[0][1] == value[1]).all()
    assert under == [1, (2,)]
    assert type(kwargs["named"]) is np.float32


def test_a_class_of_ones_own_travels_with_its_methods(function_pool: Pool) -> None:
    def longer(point: Point) -> Point:
        return Point(point.x * 2, point.length())

    assert function_pool.submit(longer, Point(3.0, 4.0)).result(60) == Point(6.0, 5.0)


def test_large_arrays_go_there_and_back(function_pool: Pool) -> None:
    array = np.random.default_rng(1).random(1 << 20)
    assert np.array_equal(function_pool.submit(lambda x: x * 2, array).result(60), array * 2)
    results = list(function_pool.map(lambda x, factor: x * factor, [array[:200_000]] * 4, range(4)))
    assert all(np.array_equal(result, array[:200_000] * factor) for factor, result in enumerate(results))


def test_what_is_scattered_is_sent_once_and_named_in_many_calls(function_pool: Pool) -> None:
    table = np.random.default_rng(2).random(200_000)
    shared = function_pool.scatter(table)
    assert shared == function_pool.scatter(table)
    assert list(function_pool.map(lambda t, place: float(t["table"][place]), [{"table": shared}] * 5, range(5))) == [
        float(table[place]) for place in range(5)
    ]


def test_what_is_scattered_may_hold_classes_of_ones_own(function_pool: Pool) -> None:
    shared = function_pool.scatter([Point(1, 2), Point(3, 4)])

    def look(points: list[Point], counts: Counter[str]) -> tuple[float, int]:
        return points[1].length(), counts["nothing"]

    assert function_pool.submit(look, shared, Counter("a")).result(60) == (5, 0)


def test_an_exception_comes_back_as_itself(functions: LoopbackPool, function_pool: Pool) -> None:
    def deep(x: int) -> None:
        raise ValueError("no such number", x)

    with pytest.raises(ValueError, match="no such number") as caught:
        function_pool.submit(deep, 7).result(60)
    assert caught.value.args == ("no such number", 7)
    assert "in deep" in str(caught.value.__cause__)
    assert any("worker" in note for note in caught.value.__notes__)
    (job,) = function_pool.jobs(limit=1)
    assert (job.state, job.failed_calls) == ("done", 1)
    assert "1 call failed" in functions.run("jobs").stdout


@pytest.mark.parametrize(
    ("code", "cause", "words"),
    [
        ("import sys; sys.exit(0)", "exited", "exit status 0"),
        ("import sys; sys.exit(3)", "exited", "exit status 3"),
        ("import os; os._exit(4)", "exited", ""),
        ("import os; os.kill(os.getpid(), 9)", "crashed", ""),
        ("import ctypes; ctypes.string_at(0)", "crashed", ""),
        ("result = lambda: 1", "unencodable", "result"),
        ("result = {'a': [1, object()]}", "unencodable", "result['a'][1]"),
    ],
)
def test_bad_endings_each_have_their_own_error_and_harm_no_other_call(
    function_pool: Pool, code: str, cause: str, words: str
) -> None:
    def run(code: str) -> Any:
        names: dict[str, Any] = {}
        exec(code, names)  # noqa: S102
        return names.get("result")

    good = function_pool.submit(square, 5)
    with pytest.raises(RemoteError) as caught:
        function_pool.submit(run, code).result(60)
    assert caught.value.cause == cause
    assert words in str(caught.value)
    assert good.result(60) == 25
    assert function_pool.submit(square, 6).result(60) == 36


def test_what_cannot_travel_is_refused_here_and_named(function_pool: Pool) -> None:
    with pytest.raises(TypeError, match=r"argument 0\['a'\].*allow_pickle=True"):
        function_pool.submit(square, {"a": lambda: 1})
    assert function_pool.calls(allow_pickle=True).submit(lambda f: f(4), square).result(60) == 16


def test_a_timeout_ends_the_call_at_its_first_attempt(function_pool: Pool) -> None:
    began = time.monotonic()
    with pytest.raises(RemoteError) as caught:
        function_pool.calls(timeout=0.3).submit(time.sleep, 60).result(60)
    assert caught.value.cause == "timeout"
    assert time.monotonic() - began < 30


def test_a_call_that_is_cancelled_is_killed(function_pool: Pool) -> None:
    future = function_pool.submit(time.sleep, 600)
    deadline = time.monotonic() + 30
    while function_pool.workers()[0].leases == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert future.cancel()
    while function_pool.workers()[0].leases and time.monotonic() < deadline:
        time.sleep(0.01)
    assert function_pool.workers()[0].leases == 0
    assert function_pool.submit(square, 2).result(60) == 4


def test_retry_on_names_what_is_called_again(function_pool: Pool) -> None:
    def sometimes() -> int:
        import random

        if random.random() < 0.7:
            raise ConnectionError("try again")
        return 1

    assert function_pool.calls(retry_on=ConnectionError, retries=20).submit(sometimes).result(60) == 1
    with pytest.raises(KeyError):
        function_pool.calls(retry_on=ConnectionError).submit({}.__getitem__, 1).result(60)


def test_what_a_function_prints_arrives_here_prefixed_and_in_its_jobs_log(
    function_pool: Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    def speak(x: int) -> int:
        print("step", x)
        return x

    future = function_pool.submit(speak, 1)
    assert future.result(60) == 1
    seen = ""
    deadline = time.monotonic() + 30
    while "step 1" not in seen and time.monotonic() < deadline:
        seen += capfd.readouterr().err
        time.sleep(0.01)
    assert "on anna] step 1" in seen


def test_functions_are_refused_within_a_second_where_nobody_lets_them_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LoopbackPool(tmp_path / "home") as local:
        local.start_coordinator()
        local.start_worker("ben")
        local.wait_for_workers()
        with local.connect() as pool:
            future = pool.submit(square, 2)
            deadline = time.monotonic() + 30
            while not caplog.records and time.monotonic() < deadline:
                time.sleep(0.01)
            assert "no worker accepts functions" in caplog.text
            assert future.cancel()
