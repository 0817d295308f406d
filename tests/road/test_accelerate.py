"""What is made of the Executor: `@accelerate` in its forms, `distribute`, joblib, Jupyter, coroutines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import moregpu
from moregpu import accelerate
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.aio import AsyncPool
from moregpu.client.functions import accelerate as accelerating
from moregpu.client.pool import Pool
from moregpu.errors import NotConfigured
from moregpu.wire.api import TokenRequest


@pytest.fixture
def installed(function_pool: Pool) -> Iterator[Pool]:
    accelerate.install(function_pool)  # type: ignore[attr-defined]
    yield function_pool
    accelerating._installed.clear()


def test_accelerate_with_a_pool_and_options_runs_elsewhere(function_pool: Pool) -> None:
    @accelerate(function_pool, cores=1, timeout=60)
    def where(x: int) -> tuple[int, int]:
        return x, os.getpid()

    assert where(3)[0] == 3
    assert where(3)[1] != os.getpid()
    assert where.local(3)[1] == os.getpid()
    assert [x for x, _ in where.map([1, 2, 3])] == [1, 2, 3]
    assert where.submit(4).result(60)[0] == 4
    assert where.__name__ == "where"


def test_bare_accelerate_uses_the_installed_pool(installed: Pool) -> None:
    @accelerate
    def double(x: int) -> int:
        return 2 * x

    assert double(21) == 42
    assert double.distribute([1, 2]) == [2, 4]


def test_of_pools_that_were_installed_the_latest_is_used(installed: Pool) -> None:
    @accelerate
    def double(x: int) -> int:
        return 2 * x

    assert double(1) == 2
    with moregpu.connect(token=installed.create_token(TokenRequest(label="later")).line) as later:
        accelerate.install(later)  # type: ignore[attr-defined]
        assert double(2) == 4
        assert [job.submitter for job in later.jobs()] == [later.me().id]


def test_a_closed_pool_is_not_opened_again_behind_anybodys_back(installed: Pool) -> None:
    @accelerate
    def double(x: int) -> int:
        return 2 * x

    with moregpu.connect(token=installed.create_token(TokenRequest(label="closed")).line) as closed:
        accelerate.install(closed)  # type: ignore[attr-defined]
        assert double(1) == 2
    with pytest.raises(NotConfigured, match="closed") as refused:
        double(2)
    assert "accelerate.install" in (refused.value.hint or "")
    with pytest.raises(RuntimeError, match="closed"):
        closed.submit(abs, -1)
    accelerate.install(installed)  # type: ignore[attr-defined]
    assert double(2) == 4


def test_one_accelerated_function_may_call_another(installed: Pool) -> None:
    @accelerate
    def inner(x: int) -> int:
        return x + 1

    @accelerate
    def outer(x: int) -> int:
        return inner(x) * 2  # on the worker it is the function alone: no pool is asked for there

    assert outer(1) == 4


def test_a_device_that_nobody_has_is_named(function_pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    future = accelerate(function_pool)(abs).to("cuda").submit(-1)
    with pytest.raises(TimeoutError):
        future.result(1.5)
    assert future.cancel()
    assert "no worker here offers a GPU" in caplog.text


def test_nothing_runs_here_unless_it_is_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("MOREGPU_HOME", str(tmp_path))

    @accelerate
    def here() -> int:
        return os.getpid()

    with pytest.raises(NotConfigured):
        here()
    monkeypatch.setenv("MOREGPU_LOCAL", "1")
    assert here() == os.getpid()


def test_where_it_is_allowed_what_no_worker_takes_runs_here_and_says_so(
    function_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    future = function_pool.calls(gpu="no such device", local="ok").submit(os.getpid)
    assert future.result(60) == os.getpid()
    assert future.ran_here  # type: ignore[attr-defined]
    assert "runs here" in caplog.text


def test_distribute_passes_mappings_by_name_and_tuples_in_order(function_pool: Pool) -> None:
    def power(base: int, exponent: int = 2) -> int:
        return base**exponent

    assert function_pool.distribute(power, [{"base": 2, "exponent": 5}, (3, 3), 4]) == [32, 27, 16]
    assert function_pool.distribute(power, []) == []


def test_the_pool_counts_its_devices(function_pool: Pool) -> None:
    assert function_pool.device_count() == len(function_pool.devices()) >= 1
    assert function_pool.total_score() == sum(worker.score for worker in function_pool.workers())
    assert function_pool.auto_device() in [device.name for device in function_pool.devices()]


def test_joblib_runs_on_the_pool(function_pool: Pool) -> None:
    joblib = pytest.importorskip("joblib")
    moregpu.register_joblib(function_pool)
    with joblib.parallel_config("moregpu"):
        assert joblib.Parallel()(joblib.delayed(pow)(x, 2) for x in range(50)) == [x * x for x in range(50)]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, x) for x in (1, 0))


def test_joblib_makes_no_call_here_however_few_cores_the_pool_has_or_jobs_are_asked_for(
    function_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    joblib = pytest.importorskip("joblib")
    alone = [msgspec.structs.replace(function_pool.devices()[0], cores=1)]
    monkeypatch.setattr(function_pool, "devices", lambda: alone)
    moregpu.register_joblib(function_pool)
    with joblib.parallel_config("moregpu"):
        for n_jobs in (None, 1, -1):
            there = joblib.Parallel(n_jobs=n_jobs)(joblib.delayed(os.getpid)() for _ in range(3))
            assert len(there) == 3 and os.getpid() not in there


def test_a_cell_of_a_notebook_runs_on_the_pool(installed: Pool) -> None:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell()
    shell.run_line_magic("load_ext", "moregpu")
    shell.user_ns["x"] = 20
    shell.run_cell_magic("pool", "timeout=60", "import os\ny = x + 1\nwhere = os.getpid()\nopen_file = object()")
    assert shell.user_ns["y"] == 21
    assert shell.user_ns["where"] != os.getpid()
    assert "open_file" not in shell.user_ns


def test_the_last_expression_of_a_pools_cell_is_shown_as_in_any_cell(installed: Pool) -> None:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell()
    shell.run_line_magic("load_ext", "moregpu")

    def shown_of(cell: str) -> Any:
        ran = shell.run_cell(f"%%pool timeout=60\n{cell}")
        ran.raise_error()
        return ran.result

    assert shown_of("z = 4\n(z, [z * 2])") == (4, [8])
    assert shell.user_ns["z"] == 4
    assert shown_of("z + 1;  # quietly") is None
    assert shown_of("z = 5") is None
    assert shown_of("'a;b'") == "a;b"
    odd = "class Odd:\n    def __repr__(self):\n        return 'odd \\x1b[2J'\nOdd()"
    assert repr(shown_of(odd)) == "odd \\x1b[2J"


def test_coroutines_await_calls(functions: LoopbackPool) -> None:
    async def work() -> tuple[Any, Any, Any]:
        async with AsyncPool(functions.connect()) as pool:
            return (
                await (await pool.submit(pow, 2, 10)),
                await pool.map(pow, [1, 2, 3], [2, 2, 2]),
                await pool.distribute(pow, [(2, 3)]),
            )

    assert asyncio.run(work()) == (1024, [1, 4, 9], [8])


def test_results_become_rows() -> None:
    from moregpu.client.functions.distributing import rows_of

    assert rows_of([{"rate": 0.1}, (1, 2)], [{"loss": 3}, 4]) == [
        {"rate": 0.1, "loss": 3},
        {"argument_0": 1, "argument_1": 2, "result": 4},
    ]
