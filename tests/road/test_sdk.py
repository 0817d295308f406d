"""The SDK against a real pool: one connection, sync and async alike, composed functions, resident tensors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import moregpu
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import find_access
from moregpu.client.aio import AsyncPool
from moregpu.client.pool import Pool
from moregpu.errors import InvalidJob, JobCancelled, NotFound, StillRunning, Unauthorized, Unreachable
from moregpu.wire.api import TokenRequest

RNG = np.random.default_rng(3)
A = RNG.standard_normal((200, 96)).astype(np.float32)
B = RNG.standard_normal((96, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def viewer(pool: Pool) -> Iterator[Pool]:
    line = pool.create_token(TokenRequest(label="looks", role="viewer")).line
    with Pool(find_access(token=line)) as looking:
        yield looking


def close(found: object, wanted: object) -> bool:
    return bool(np.allclose(np.asarray(found), np.asarray(wanted), rtol=1e-4, atol=1e-4))


def test_a_job_is_watched_to_its_end_and_its_parts_make_the_whole(pool: Pool) -> None:
    left, right = RNG.standard_normal((2, 1200, 1200)).astype(np.float32)
    handle = pool.kernel("matmul", left, right)
    whole = np.full((1200, 1200), np.nan, np.float32)
    tasks: set[str] = set()
    for part in handle.parts():
        part.fill(whole)
        tasks.add(part.task)
    seen = list(handle.watch())
    assert seen[-1].share == 1.0
    assert handle.view.state == "done"
    result = handle.result()
    if not np.isnan(whole).any():  # a part that its end overtook is read from the result
        assert np.array_equal(whole, result)
    assert len(tasks) <= handle.status().tasks_total
    assert close(result, left @ right)


def test_progress_only_grows(pool: Pool) -> None:
    seen = list(pool.benchmark("matmul", 1500).watch())
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].state == "done"


def test_leaving_a_watch_early_leaves_the_job_alone(pool: Pool) -> None:
    handle = pool.benchmark("matmul", 1000)
    for _ in handle.watch():
        break
    assert handle.wait(60).checked


def test_composed_functions_give_what_numpy_gives(pool: Pool) -> None:
    bias = RNG.standard_normal(64).astype(np.float32)
    assert close(pool.linear(A, B, bias), A @ B + bias)
    assert close(pool.linear(A, B), A @ B)
    hidden = np.maximum(A @ B + bias, 0)
    assert close(pool.mlp(A, [(B, bias), (B.T, None)], "relu"), hidden @ B.T)
    scores = A @ A.T / np.sqrt(A.shape[1])
    weights = np.exp(scores - scores.max(1, keepdims=True))
    assert close(pool.attention(A, A, A), weights / weights.sum(1, keepdims=True) @ A)
    masked = np.where(np.tri(len(A), dtype=bool), scores, -np.inf)
    weights = np.exp(masked - masked.max(1, keepdims=True))
    assert close(pool.attention(A, A, A, causal=True), weights / weights.sum(1, keepdims=True) @ A)


def test_sums_are_right_for_every_size(pool: Pool) -> None:
    for size in (1, 3, 4095, 4097, 100_003):
        a, b = RNG.standard_normal((2, size)).astype(np.float32)
        exact = a.astype(np.float64)
        bound = 1e-5 * np.abs(exact).sum() + 1e-6
        assert abs(pool.sum(a) - exact.sum()) <= bound
        assert abs(pool.mean(a) - exact.mean()) <= bound
        assert abs(pool.norm(a) - np.linalg.norm(exact)) <= bound
        assert abs(pool.dot(a, b) - exact @ b.astype(np.float64)) <= 1e-5 * np.abs(a) @ np.abs(b) + 1e-6
    assert pool.sum(np.zeros(0)) == 0.0
    assert np.isnan(pool.mean(np.zeros(0)))


def test_shapes_that_do_not_fit_are_refused(pool: Pool) -> None:
    with pytest.raises(InvalidJob, match="bias"):
        pool.linear(A, B, np.ones(63))
    with pytest.raises(InvalidJob):
        pool.dot(np.ones(3), np.ones(4))
    with pytest.raises(InvalidJob):
        pool.mlp(A, [])
    with pytest.raises(InvalidJob):
        pool.attention(A, B, A)


def test_a_weight_that_comes_again_and_again_gives_each_job_its_own_result(pool: Pool) -> None:
    weight = np.random.default_rng(0).standard_normal((700, 900)).astype(np.float32)
    pool.upload_weight("again", weight)
    for seed in range(6):  # from the second on workers keep it open
        x = np.random.default_rng(seed).standard_normal((1 + 40 * (seed % 2), 700)).astype(np.float32)
        assert close(pool.matmul_resident(x, "again"), x @ weight)
    pool.upload_weight("again", 2 * weight)
    ones = np.ones((1, 700), np.float32)
    assert close(pool.matmul_resident(ones, "again"), 2 * (ones @ weight))


def test_a_resident_weight_is_used_by_its_name(pool: Pool) -> None:
    kept = pool.upload_weight("layers/0", B)
    assert kept.shape == B.shape
    assert close(pool.matmul_resident(A, "layers/0"), A @ B)
    assert close(pool.matmul_resident(A, kept), A @ B)
    assert pool.upload_weight("layers/1", B.tolist()).shape == B.shape
    assert close(pool.matmul(A, kept), A @ B)
    assert "layers/0" in {tensor.name for tensor in pool.tensors()}
    half = pool.put("half", B.astype(np.float16))
    assert pool.matmul(A, half).dtype == np.float16  # what is on the pool decides
    assert np.array_equal(pool.fetch(half.tensor), B.astype(np.float16))
    pool.drop("layers/0")
    with pytest.raises(NotFound):
        pool.matmul_resident(A, "layers/0")
    with pytest.raises(InvalidJob):
        pool.upload_weight("vector", np.ones(3))


def test_one_jobs_output_is_the_next_ones_input_without_coming_here(pool: Pool) -> None:
    product = pool.kernel("matmul", A, B).outputs()
    assert product is not None
    assert close(pool.relu(product["out"]), np.maximum(A @ B, 0))


def test_coroutines_wait_without_threads(pool: Pool) -> None:
    async def many() -> None:
        waiting = AsyncPool(pool)
        found = await asyncio.gather(*(waiting.scale(A, float(factor)) for factor in range(12)))
        assert all(close(one, factor * A) for factor, one in enumerate(found))
        handle = await waiting.kernel("matmul", A, B)
        states = [progress.state async for progress in handle.watch()]
        assert states[-1] == "done"
        assert close(await handle, A @ B)
        assert close(await waiting.linear(A, B), A @ B)
        assert abs(await waiting.sum(A) - A.sum(dtype=np.float64)) < 0.1

    asyncio.run(many())


def test_a_coroutine_connects_by_itself(pool: Pool) -> None:
    line = pool.create_token(TokenRequest(label="async")).line

    async def one() -> None:
        async with moregpu.connect_async(token=line) as waiting:
            assert (await waiting.me()).role == "submitter"
            assert close(await waiting.relu(A), np.maximum(A, 0))

    asyncio.run(one())


def test_a_viewer_waits_for_a_job_that_it_may_only_look_at(pool: Pool, viewer: Pool) -> None:
    handle = pool.benchmark("matmul", 1200)
    seen = viewer.job(handle.id)
    assert seen.wait(60).state == "done"
    assert [one.state for one in viewer.job(handle.id).watch()] == ["done"]


def test_a_cancelled_job_is_told_to_who_waits(pool: Pool) -> None:
    handle = pool.benchmark("matmul", 6000, group="nobody")
    with pytest.raises(StillRunning, match="group"):
        handle.wait(1.5)
    threading.Timer(0.2, pool.job(handle.id).cancel).start()
    with pytest.raises(JobCancelled):
        handle.result(30)


def test_who_waits_waits_through_a_restart_and_says_so(lone: LoopbackPool, caplog: pytest.LogCaptureFixture) -> None:
    lone.start_worker("anna")
    lone.wait_for_workers()
    with lone.connect() as pool:
        handle = pool.benchmark("matmul", 1200)
        waiting = threading.Thread(target=handle.wait, args=(100,))
        waiting.start()
        lone.kill_coordinator()
        until = time.monotonic() + 30
        while not any("trying again" in record.message for record in caplog.records):
            assert time.monotonic() < until, "nobody said that the coordinator is away"
            time.sleep(0.02)
        lone.start_coordinator()
        waiting.join(100)
        assert handle.view.checked
        assert np.array_equal(pool.relu(A), np.maximum(A, 0))


@pytest.mark.parametrize("days", [-400, 400])
def test_a_clock_that_is_wrong_here_harms_nothing(
    road: LoopbackPool, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 86_400 * days)
    with road.connect() as pool:
        assert np.allclose(pool.matmul(A, B), A @ B, atol=1e-4)
        assert pool.benchmark("relu", 1000).wait(60).checked
        made = pool.create_token(TokenRequest(label="a day", expires_s=86_400))
        with Pool(find_access(token=made.line)) as other:  # how long it is good is the coordinator's clock's business
            assert other.me().role == "submitter"


def test_who_waits_for_a_worker_is_told_so_once(lone: LoopbackPool, caplog: pytest.LogCaptureFixture) -> None:
    with lone.connect() as pool:
        handle = pool.benchmark("matmul", 64)
        for _ in range(2):
            with pytest.raises(StillRunning):
                handle.wait(2.5)
        assert [record.message for record in caplog.records] == [f"{handle.id} waits: no worker is connected"]
        handle.cancel()


def test_a_revoked_token_ends_what_waits(lone: LoopbackPool) -> None:
    with lone.connect() as admin:
        made = admin.create_token(TokenRequest(label="short"))
        with Pool(find_access(token=made.line)) as pool:
            handle = pool.benchmark("relu", 10)
            admin.revoke_token(made.id)
            with pytest.raises(Unauthorized):
                handle.wait(60)


def test_a_pool_that_is_not_there_is_said_at_once(road: LoopbackPool) -> None:
    with pytest.raises(Unreachable):
        moregpu.connect("https://127.0.0.1:9", "mgt_abcdefgh_" + "x" * 43, timeout_s=0)


def test_a_bar_shows_long_calls_where_it_is_asked_for(road: LoopbackPool, capfd: pytest.CaptureFixture[str]) -> None:
    with Pool(road.access(), progress=True) as pool:
        pool.matmul(*RNG.standard_normal((2, 2600, 2600)).astype(np.float32))
    shown = capfd.readouterr().err
    with Pool(road.access()) as pool:
        pool.matmul(A, B)
    assert capfd.readouterr().err == ""  # no terminal here
    assert "done" in shown or shown == ""  # a machine that needs no second shows nothing
