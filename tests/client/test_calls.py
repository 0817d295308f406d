"""The Executor that a pool is, before anything is sent: who cancels, who shuts down, and who waits meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from types import SimpleNamespace
from typing import Any

import cloudpickle
import msgspec
import pytest

from moregpu.client.aio import AsyncPool
from moregpu.client.functions import caller as sending
from moregpu.client.functions.accelerate import accelerate
from moregpu.client.functions.caller import Caller
from moregpu.client.functions.executor import Calls
from moregpu.client.functions.functions import Functions
from moregpu.client.functions.options import Chosen
from moregpu.client.functions.program import Packer
from moregpu.errors import JobCancelled, Unreachable
from moregpu.jobs import Blob, Tensor
from moregpu.wire import link as wire
from moregpu.workloads.function.spec import FunctionSpec


class Link:
    """The connection: what was asked on it, and nobody at its other end."""

    def __init__(self) -> None:
        self.submitted: list[FunctionSpec] = []
        self.cancelled = 0
        self.heard = threading.Semaphore(0)

    def ask(self, make: Callable[[int], Any], hear: Callable[[Any], None], patience_s: float = 0.0) -> None:
        match make(len(self.submitted)):
            case wire.Submit(spec=spec):
                self.submitted.append(msgspec.msgpack.decode(spec, type=FunctionSpec))
                self.hear = hear
                self.heard.release()
            case wire.Cancel():
                self.cancelled += 1
                self.hear(JobCancelled("as asked"))


class Pool(Functions):
    """A pool that nothing leaves."""

    def __init__(self) -> None:
        self.connection = Link()
        self.closed = threading.Event()

    def link(self) -> Any:
        return self.connection

    def blobs(self) -> Any: ...

    def submit_job(self, spec: Any, *, wait_s: float = 0.0, idempotency_key: str = "") -> Any: ...

    def _threads_for_calls(self) -> Any: ...

    def workers(self) -> Any: ...

    def close(self) -> None:
        self.end_calls(cancel=True)
        self.closed.set()


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def gathering(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, calls that come while others are under way are gathered."""
    over = threading.Event()
    monkeypatch.setattr(sending, "time", SimpleNamespace(sleep=lambda _: over.wait()))
    return over


def test_a_call_that_is_cancelled_while_it_is_gathered_is_never_sent(pool: Pool, gathering: threading.Event) -> None:
    pool.submit(abs, 1)
    unwanted, wanted = pool.submit(abs, 2), pool.submit(len, "x")
    assert unwanted.cancel()
    gathering.set()
    assert [pool.connection.heard.acquire(timeout=60) for _ in range(2)] == [True, True]
    assert [spec.function for spec in pool.connection.submitted] == ["abs", "len"]
    assert wait([unwanted, wanted], 0).done == {unwanted}, "it counts as done for whoever waits for it"


def test_nobody_waits_for_calls_that_were_all_cancelled_while_they_were_gathered(
    pool: Pool, gathering: threading.Event
) -> None:
    first, second = pool.submit(abs, 1), pool.submit(abs, 2)
    second.cancel()
    first.cancel()
    gathering.set()
    pool.shutdown()
    assert len(pool.connection.submitted) == 1


def test_a_pool_that_is_shut_down_cancels_what_has_no_result_when_asked_to(pool: Pool) -> None:
    futures = pool.calls().submit_all(abs, [(1,), (2,)])
    pool.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    assert pool.connection.cancelled == 1
    assert len(wait(futures, 0).done) == 2


def test_an_executor_that_is_shut_down_cancels_its_own_calls_alone(pool: Pool) -> None:
    one, other = pool.calls(timeout=5), pool.calls(timeout=5)
    mine, theirs = one.submit_all(abs, [(1,)]), other.submit_all(abs, [(1,)])
    one.shutdown(wait=False, cancel_futures=True)
    assert mine[0].cancelled()
    assert not theirs[0].cancelled()


@pytest.mark.parametrize("has_called", [True, False])
def test_a_pool_takes_no_calls_from_when_it_is_shut_down_though_others_are_under_way(
    pool: Pool, has_called: bool
) -> None:
    futures = [pool.submit(abs, 1)] if has_called else []
    calls = pool.calls()
    pool.shutdown(wait=False)
    for executor in (pool, calls):
        with pytest.raises(RuntimeError, match="closed"):
            executor.submit(abs, 2)
    for future in futures:
        assert not future.done()
        pool.connection.hear(JobCancelled("the end of it"))
    assert pool.closed.wait(60)
    calls.shutdown()
    pool.shutdown()


def test_a_map_whose_time_is_over_cancels_the_call_that_was_waited_for_too(pool: Pool) -> None:
    with pytest.raises(TimeoutError):
        list(pool.map(abs, [1, 2, 3], timeout=0))
    assert pool.connection.cancelled == 1, "nobody wants any of its calls"


def test_an_awaited_map_cancels_the_rest_where_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: Future[Any] = Future()
    failed.set_exception(ZeroDivisionError())
    futures: list[Future[Any]] = [failed, Future()]
    monkeypatch.setattr(Calls, "submit_all", lambda *_: futures)
    packer = Packer()
    made = Calls(lambda: Caller.__new__(Caller), packer, Chosen())
    pool = AsyncPool(SimpleNamespace(calls=lambda: made))  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(pool.map(abs, [1, 2]))
    with pytest.raises(CancelledError):
        futures[1].result(0)


def test_an_accelerated_function_may_have_an_argument_of_any_name(pool: Pool) -> None:
    future = accelerate(pool)(dict).submit(self=1, fn=2, pool=3)
    assert not future.done(), "it was sent"
    future.cancel()
    with pytest.raises(CancelledError):
        future.result(0)


@dataclasses.dataclass
class Holder:
    held: Any


@pytest.mark.parametrize("by_pickle", [False, True])
def test_what_is_scattered_is_refused_where_nobody_would_put_its_value(pool: Pool, by_pickle: bool) -> None:
    calls = pool.calls(allow_pickle=by_pickle)
    caller = pool._the_caller()  # pyright: ignore[reportPrivateUsage]
    table = caller.scattered.put("0" * 64, Tensor(dtype="uint8", shape=(0,), data=b""))
    calls.submit(len, [table], {"a": (table,)})
    for submit in (
        lambda: calls.submit(Holder, Holder(table)),
        lambda: calls.submit(Holder, {table}),
        lambda: calls.submit(len, table, Holder(table)),
        lambda: calls.submit(len, table, [{table: 1}, {table}]),
        lambda: calls.submit(functools.partial(len, table)),
        lambda: calls.submit(lambda: table),
        lambda: calls.submit(len, table, print),
    ):
        with pytest.raises(TypeError, match="stands for its value" if by_pickle else "stands for its|cannot travel"):
            submit()
    pool.shutdown(cancel_futures=True)


class Storing(Pool):
    """A pool that keeps what is sent ahead of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, bytes] = {}

    def blobs(self) -> Any:
        return self

    def upload_pieces(self, pieces: list[bytes]) -> Blob:
        content = b"".join(pieces)
        digest = f"{len(self.kept):064x}"
        self.kept[digest] = content
        return Blob(digest=digest, key=bytes(32), size_bytes=len(content))

    def download_into(self, blob: Blob, out: memoryview) -> None:
        out[:] = self.kept[blob.digest]

    def _threads_for_calls(self) -> Any:
        return SimpleNamespace(submit=lambda work, *rest: work(*rest))


def test_classes_in_what_is_scattered_go_with_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Storing()
    table = pool.scatter([Holder(1)])
    packed: list[dict[str, type]] = []
    pack = Packer.pack
    monkeypatch.setattr(
        Packer,
        "pack",
        lambda self, function, types, *rest: packed.append({**types}) or pack(self, function, types, *rest),
    )
    pool.submit(len, table)
    pool.submit(len, {"a": [table]})
    pool.submit(len, [])
    assert packed == [{f"{__name__}:Holder": Holder}] * 2 + [{}]
    pool.shutdown(cancel_futures=True)


def test_a_call_that_runs_here_gets_what_was_scattered_itself() -> None:
    pool = Storing()
    table = pool.scatter([Holder(1)])
    given = Counter({"a": table})
    future: Any = pool.calls(local="ok").submit(lambda held: (held, held["a"][0].held), given)
    pool.connection.hear(Unreachable("nobody is there", ""))
    assert future.result(0) == (Counter({"a": [Holder(1)]}), 1)
    assert future.ran_here
    assert given == {"a": table}, "the caller's own stays as it was"


def test_a_call_that_runs_here_takes_its_arguments_as_they_are_and_opens_no_pickle() -> None:
    pool = Storing()
    future: Any = pool.calls(local="ok", allow_pickle=True).submit(lambda found: found.pattern, re.compile("a+"))
    pool.connection.hear(Unreachable("nobody is there", ""))
    assert future.result(0) == "a+"
    assert future.ran_here


def test_one_argument_that_goes_by_pickle_changes_nothing_for_those_beside_it(pool: Pool) -> None:
    futures = pool.calls(allow_pickle=True).submit_all(type, [(re.compile("a"),), (5,), (re.compile("b"),), ("x",)])
    programs = [cloudpickle.loads(spec.inputs["program"].data)[0] for spec in pool.connection.submitted]
    assert [len(spec.calls) for spec in pool.connection.submitted] == [2, 2]
    assert programs[1] is type, "it opens no pickle"
    for future in futures:
        future.cancel()


class Answering(Pool):
    """A pool whose calls have their results once somebody waits for them."""

    def end_calls(self, *, cancel: bool) -> None:
        if not cancel:
            self.connection.hear(JobCancelled("an answer"))
        super().end_calls(cancel=cancel)


@pytest.mark.parametrize("error", [None, ValueError()])
def test_a_block_of_coroutines_ends_as_any_other_with_all_results_or_by_its_exception_with_none(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Answering()
    future = pool.submit(abs, 1)

    async def close(_: AsyncPool) -> None:
        pool.close()

    monkeypatch.setattr(AsyncPool, "close", close)
    block = AsyncPool(pool)  # type: ignore[arg-type]
    asyncio.run(block.__aexit__(None if error is None else type(error), error, None))
    assert future.cancelled() == (error is not None)
    assert pool.closed.is_set()
