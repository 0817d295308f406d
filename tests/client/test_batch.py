"""What the link says of a job of calls becomes results, each once, whatever comes twice or not at all."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import pytest

from moregpu.client.functions.batch import Batch
from moregpu.client.functions.call import Call
from moregpu.client.functions.options import Chosen
from moregpu.client.functions.program import Program
from moregpu.encoding import encode
from moregpu.encoding.failures import RemoteError, describe, packed
from moregpu.encoding.records import Status, record
from moregpu.errors import JobCancelled, MoreGPUError, TaskLost, Unreachable
from moregpu.jobs import Blob, JobState, Tensor
from moregpu.wire import link as wire
from moregpu.wire.api import JobView, Problem, ResultManifest

BLOB = Blob(digest="0" * 64, key=bytes(32), size_bytes=1)


class Pool:
    """What a batch asks of its pool, written down."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.blobs: dict[str, bytes | MoreGPUError] = {}
        self.later: list[Callable[[], None]] = []

    def fetch(self, blob: Blob, then: Callable[[bytearray | MoreGPUError], None]) -> None:
        found = self.blobs[blob.digest]
        self.later.append(lambda: then(found if isinstance(found, MoreGPUError) else bytearray(found)))

    def cancel_job(self, job: str, idempotency_key: str = "") -> None:
        self.asked.append(("cancel", job or idempotency_key))

    def again(self, calls: Sequence[Call]) -> None:
        self.asked.append(("again", list(calls)))

    def here(self, calls: Sequence[Call]) -> None:
        for call in calls:
            call.run_here(lambda tensor: memoryview(b""))

    def closed(self, batch: Batch) -> None:
        self.asked.append("closed")


def batch_of(pool: Pool, count: int, **options: Any) -> Batch:
    program = Program(content=b"p", digest="d", name="f", function=lambda x: ("here", x))
    chosen = Chosen(**options)
    return Batch(
        pool, [Call(program, chosen, encode(((n,), {})), {}, {}, (program.function, (n,), {})) for n in range(count)]
    )


def values(*given: Any) -> bytes:
    return b"".join(b"".join(record(Status.VALUE, encode(value))) for value in given)


def part(first: int, *given: Any, task: str = "t-1", data: bytes | Blob | None = None) -> wire.Part:
    content = values(*given) if data is None else data
    size = content.size_bytes if isinstance(content, Blob) else len(content)
    tensor = Tensor(dtype="uint8", shape=(size,), data=content)
    return wire.Part(id=1, task=task, grains=(first, first + len(given)), outputs={"results": tensor}, places={})


def view(state: JobState = JobState.DONE, **fields: Any) -> JobView:
    facts = {"id": "j-1", "kind": "function", "name": "", "submitter": "", "created_at": 0.0, **fields}
    facts |= {"grains": 0, "grains_done": 0, "tasks_total": 0, "tasks_done": 0, "checked": False}
    return JobView(state=state, **facts)


def whole(*given: Any) -> ResultManifest:
    data = values(*given)
    return ResultManifest(outputs={"results": Tensor(dtype="uint8", shape=(len(data),), data=data)})


def test_what_calls_gave_is_gone_as_soon_as_nobody_holds_it() -> None:
    pool = Pool()
    batch = batch_of(pool, 2)
    futures = [call.future for call in batch.calls]
    gone = [weakref.ref(future) for future in futures]
    gc.disable()  # cycles are sought when many small objects were made: results of 4 MiB are few
    try:
        batch.hear(part(0, {1}))
        batch.fail(RuntimeError("no more"))
        del batch
        assert futures[0].result() == {1} and isinstance(futures[1].exception(), RuntimeError)
        futures.clear()
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


def test_parts_come_in_any_order_and_twice() -> None:
    batch = batch_of(Pool(), 4)
    for message in (part(2, "c", "d", task="t-2"), part(2, "c", "d", task="t-2"), part(0, "a", "b")):
        batch.hear(message)
    assert [call.future.result(0) for call in batch.calls] == ["a", "b", "c", "d"]


def test_a_part_answers_for_the_calls_of_its_task_and_for_no_others() -> None:
    batch = batch_of(Pool(), 3)
    batch.hear(part(0, "a", data=values("a", "forged", "forged")))
    batch.hear(part(1, "b", "c", task="t-2"))
    assert [call.future.result(0) for call in batch.calls] == ["a", "b", "c"]


def test_of_a_result_in_parts_each_answers_for_its_own_calls_too() -> None:
    batch = batch_of(Pool(), 3)
    outputs = {
        name: Tensor(dtype="uint8", shape=(len(data),), data=data)
        for name, data in {"results/0": values("a", "forged", "forged"), "results/1": values("b", "c", "d")}.items()
    }
    batch.hear(wire.Ended(id=1, job=view(result=ResultManifest(outputs=outputs))))
    assert [call.future.result(0) for call in batch.calls] == ["a", "b", "c"]


def test_what_came_in_no_part_is_read_from_the_whole() -> None:
    pool = Pool()
    batch = batch_of(pool, 3)
    batch.hear(part(1, "b"))
    batch.hear(wire.Ended(id=1, job=view(result=whole("a", "not this", "c"))))
    assert [call.future.result(0) for call in batch.calls] == ["a", "b", "c"]
    assert pool.asked == ["closed"]


def test_the_end_waits_for_what_is_being_fetched() -> None:
    pool = Pool()
    pool.blobs[BLOB.digest] = values("a")
    batch = batch_of(pool, 1)
    batch.hear(part(0, "?", data=BLOB))
    batch.hear(wire.Ended(id=1, job=view()))
    assert not batch.calls[0].future.done()
    pool.later.pop()()
    assert batch.calls[0].future.result(0) == "a"
    assert pool.asked == ["closed"]


def test_a_result_that_cannot_be_fetched_fails_its_call_alone() -> None:
    pool = Pool()
    pool.blobs[BLOB.digest] = Unreachable("the cable is out")
    batch = batch_of(pool, 2)
    batch.hear(part(0, "?", data=BLOB))
    batch.hear(part(1, "b", task="t-2"))
    batch.hear(wire.Ended(id=1, job=view()))
    pool.later.pop()()
    with pytest.raises(Unreachable):
        batch.calls[0].future.result(0)
    assert batch.calls[1].future.result(0) == "b"


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (view(JobState.CANCELLED), JobCancelled),
        (view(JobState.FAILED, error=Problem(type="about:moregpu/task-lost", title="", status=200)), TaskLost),
        (view(JobState.DONE), RemoteError),
    ],
)
def test_a_job_that_ends_without_a_result_says_why(ended: JobView, error: type[Exception]) -> None:
    batch = batch_of(Pool(), 2)
    batch.hear(part(0, "a"))
    batch.hear(wire.Ended(id=1, job=ended))
    assert batch.calls[0].future.result(0) == "a"
    with pytest.raises(error):
        batch.calls[1].future.result(0)


def test_an_answer_that_cannot_be_read_is_an_error_of_its_calls() -> None:
    batch = batch_of(Pool(), 2)
    batch.hear(part(0, "?", data=b"".join(record(Status.VALUE, [b"no value"])) + b"cut"))
    batch.hear(wire.Ended(id=1, job=view()))
    for call in batch.calls:
        with pytest.raises(RemoteError):
            call.future.result(0)


def test_what_retry_on_names_is_called_again_so_often_and_no_more() -> None:
    pool = Pool()
    batch = batch_of(pool, 1, retry_on=(KeyError,), retries=1)
    failure = b"".join(record(Status.FAILURE, packed(describe(KeyError("x")))))
    batch.hear(part(0, "?", data=failure))
    batch.hear(wire.Ended(id=1, job=view()))
    ((what, calls), closed) = pool.asked
    assert (what, closed) == ("again", "closed")
    second = Batch(pool, calls)
    second.hear(part(0, "?", data=failure))
    with pytest.raises(KeyError):
        calls[0].future.result(0)


def test_the_job_is_cancelled_when_nobody_wants_any_of_it() -> None:
    pool = Pool()
    batch = batch_of(pool, 2)
    batch.hear(wire.Accepted(id=1, job=view(JobState.RUNNING)))
    assert batch.calls[0].future.cancel()
    assert pool.asked == []
    assert batch.calls[1].future.cancel()
    assert pool.asked == [("cancel", "j-1")]
    batch.hear(wire.Ended(id=1, job=view(JobState.CANCELLED)))
    with pytest.raises(CancelledError):
        batch.calls[0].future.result(0)


def test_a_job_that_is_not_there_yet_is_cancelled_by_its_key_and_once_it_is() -> None:
    pool = Pool()
    batch = batch_of(pool, 1)
    batch.calls[0].future.cancel()
    batch.hear(wire.Accepted(id=1, job=view(JobState.RUNNING)))
    assert pool.asked == [("cancel", batch.idempotency_key), ("cancel", "j-1")]


def test_where_it_is_allowed_what_waits_runs_here() -> None:
    pool = Pool()
    batch = batch_of(pool, 2, local="ok")
    batch.hear(part(0, "a"))
    batch.hear(wire.Accepted(id=1, job=view(JobState.QUEUED, waiting_reason="no worker accepts functions")))
    assert [call.future.result(0) for call in batch.calls] == ["a", ("here", 1)]
    assert pool.asked == [("cancel", "j-1"), "closed"]
