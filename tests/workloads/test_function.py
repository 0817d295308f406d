"""The kind `function`: what a job must be, how calls become tasks, and what nobody can know."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu.encoding import decode, encode
from moregpu.encoding.failures import unpacked
from moregpu.encoding.records import Status, read_records, record
from moregpu.errors import InvalidJob
from moregpu.jobs import Blob, Evidence, Planned, Tensor
from moregpu.workloads import JobSpec, workload
from moregpu.workloads.function.cut import BEGUN_JOBS, MAX_TASK_BYTES, MAX_TASK_CALLS
from moregpu.workloads.function.plan import CALL_AMOUNT, CALL_S
from moregpu.workloads.function.spec import MAX_RESULT_BYTES, CallPlan, FunctionSpec
from moregpu.workloads.protocol import FleetSummary, Inline, Part, WorkerProfile

KIND = workload("function")


def line(data: bytes) -> Tensor:
    return Tensor(dtype="uint8", shape=(len(data),), data=data)


def spec(*calls: bytes, **fields: Any) -> FunctionSpec:
    inputs = {"program": line(b"a program"), "arguments": line(b"".join(calls))}
    return FunctionSpec(calls=tuple(map(len, calls)), inputs=inputs, **fields)


def cuts(job: FunctionSpec, worker: WorkerProfile, budget_s: float = 1.0) -> list[Any]:
    plan, cursor, found = KIND.plan(job, FleetSummary()), 0, []
    while cursor < plan.grains:
        found.append(KIND.cut(job, plan, cursor, worker, budget_s))
        cursor = found[-1].grains[1]
    return found


def timed(job: FunctionSpec, call_s: float) -> WorkerProfile:
    return WorkerProfile(speeds={KIND.plan(job, FleetSummary()).cost.speed_key: CALL_AMOUNT / call_s})


def test_one_grain_is_one_call() -> None:
    plan = KIND.plan(spec(b"a", b"bc", b""), FleetSummary())
    assert plan.grains == 3
    assert plan.outputs["results"].most_bytes == MAX_RESULT_BYTES
    assert WorkerProfile().seconds(plan.cost) == pytest.approx(3 * CALL_S)


def test_a_program_that_nobody_timed_is_called_once_first() -> None:
    assert [task.grains for task in cuts(spec(b"a", b"b", b"c"), WorkerProfile())] == [(0, 1), (1, 2), (2, 3)]


def test_many_tiny_calls_make_one_task() -> None:
    job = spec(*[b"x"] * 3000)
    tasks = cuts(job, timed(job, 1e-5))
    assert [task.grains[1] - task.grains[0] for task in tasks] == [MAX_TASK_CALLS] * 3


def test_a_task_of_calls_is_a_quarter_of_a_second_since_a_worker_that_dies_takes_its_finished_calls_with_it() -> None:
    job = spec(*[b"x"] * 20)
    for call_s, together, budget_s in ((0.1, 2, 1.0), (0.01, 10, 0.105), (0.01, 20, 1.0), (0.25, 1, 1.0)):
        tasks = cuts(job, timed(job, call_s), budget_s)
        assert {task.grains[1] - task.grains[0] for task in tasks} == {together}


def test_calls_that_gave_much_make_small_tasks_and_one_that_gives_too_much_is_a_task_of_its_own() -> None:
    job = spec(*[b"x"] * 20)
    key = KIND.plan(job, FleetSummary()).cost.speed_key
    for each, together in ((4 << 20, 4), (3 << 30, 1), (1, 20)):
        worker = msgspec.structs.replace(timed(job, 1e-5), result_bytes={key: float(each)})
        assert [task.grains[1] - task.grains[0] for task in cuts(job, worker)] == [together] * (20 // together)


def test_each_task_has_the_arguments_of_its_calls_and_no_others() -> None:
    job = spec(b"one", b"", b"three", session="s", requires=("numpy",), time_limit_s=2.0)
    for task in cuts(job, WorkerProfile()):
        said = msgspec.msgpack.decode(task.parameters, type=CallPlan)
        assert (said.first, said.session, said.requires) == (task.grains[0], "s", ("numpy",))
        assert task.inputs["arguments"] == line((b"one", b"", b"three")[task.grains[0]])
        assert sum(said.calls) == task.inputs["arguments"].whole_bytes


def test_a_task_has_its_own_arguments_wherever_its_job_and_others_were_cut_before() -> None:
    jobs = [spec(*[bytes([job]) * call for call in range(9)]) for job in range(BEGUN_JOBS + 2)]
    plan = KIND.plan(jobs[0], FleetSummary())
    few, all_of_them = list(enumerate(jobs))[:3], list(enumerate(jobs))
    for cursor, which in ((0, few), (1, few), (8, few), (3, few), (4, all_of_them), (2, few), (7, all_of_them)):
        for number, job in which:
            task = KIND.cut(job, plan, cursor, WorkerProfile(), 1.0)
            assert task.inputs["arguments"] == line(bytes([number]) * cursor)


def test_large_arguments_make_small_tasks() -> None:
    size = MAX_TASK_BYTES // 2
    arguments = Tensor(dtype="uint8", shape=(4 * size,), data=Blob(digest="0" * 64, key=bytes(32), size_bytes=4 * size))
    job = FunctionSpec(calls=(size,) * 4, inputs={"program": line(b"p"), "arguments": arguments})
    assert [task.grains for task in cuts(job, timed(job, 1e-5))] == [(0, 2), (2, 4)]


@pytest.mark.parametrize("fields", [{"isolate": "task"}, {"idempotent": False}])
def test_calls_that_need_a_process_or_a_life_of_their_own_are_tasks_of_their_own(fields: Any) -> None:
    job = spec(b"a", b"b", **fields)
    tasks = cuts(job, timed(job, 1e-5))
    assert len(tasks) == 2
    assert all(task.once == (not job.idempotent) for task in tasks)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (spec(b"a", requires=("numpy @ https://elsewhere/x.whl",)), "not a package of an index"),
        (spec(b"a", requires=("--index-url=https://elsewhere",)), "not a package of an index"),
        (spec(b"a", python="2"), "no minor version"),
        (spec(b"a", idempotent=False, check="agree"), "only once"),
        (FunctionSpec(calls=(1,), inputs={"arguments": line(b"a")}), "needs the input 'program'"),
        (FunctionSpec(calls=(2,), inputs={"program": line(b"p"), "arguments": line(b"a")}), "take 2 bytes"),
        (FunctionSpec(calls=(), inputs={"program": line(b""), "arguments": line(b"")}), "program is empty"),
        (
            FunctionSpec(calls=(), inputs={"program": line(b"p"), "arguments": line(b""), "x": line(b"")}),
            "no input 'x'",
        ),
        (
            FunctionSpec(
                calls=(4,),
                inputs={"program": line(b"p"), "arguments": Tensor(dtype="float32", shape=(1,), data=b"1234")},
            ),
            "line of bytes",
        ),
        (
            FunctionSpec(
                calls=(9,), inputs={"program": line(b"p"), "arguments": Tensor(dtype="uint8", shape=(9,), data=b"1")}
            ),
            "says 9 bytes and holds 1",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_its_reason(job: FunctionSpec, words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        KIND.validate(job)


def test_nobody_knows_whether_a_result_is_right_and_two_workers_agree_on_the_same_bytes() -> None:
    job = spec(b"a")
    (task,) = cuts(job, WorkerProfile())
    one, other = ({"results": np.frombuffer(data, np.uint8)} for data in (b"same", b"else"))
    for level in ("none", "spot", "full"):
        assert KIND.check(task, {}, one, level, bytes).kind == "unchecked"
    assert KIND.check_alike([Inline(task, {}, {"results": b"same"})]) == [Evidence(kind="unchecked")]
    assert KIND.agree(task, {}, one, {"results": one["results"].copy()})
    assert not KIND.agree(task, {}, one, other)


class Written:
    """What `combine` writes."""

    def __init__(self) -> None:
        self.said: tuple[Any, ...] = ()
        self.data = b""

    def begin(self, *about: Any) -> None:
        self.said = about

    def write(self, data: Any) -> None:
        self.data += bytes(data)


def joined_of(job: FunctionSpec, streams: list[bytes]) -> list[Any]:
    """What a job's result holds when its tasks, of a call each, gave these: values, and the causes of failures."""
    parts = [
        Part(
            task=task,
            open=lambda stream=stream: {"results": iter([stream[:9], stream[9:]])},
            shapes={"results": (len(stream),)},
        )
        for task, stream in zip(cuts(job, WorkerProfile()), streams, strict=True)
    ]
    out = Written()
    KIND.combine(KIND.plan(job, FleetSummary()), parts, out)
    assert out.said == ("results", "uint8", (len(out.data),))
    return [
        decode(content) if status is Status.VALUE else unpacked(content).cause
        for status, content in read_records(out.data)
    ]


def value(given: Any) -> bytes:
    return b"".join(record(Status.VALUE, encode(given)))


def test_results_are_joined_in_the_calls_order_and_large_ones_stay_in_parts() -> None:
    assert joined_of(spec(b"a", b"b"), [value("one"), value(b"x" * 5000)]) == ["one", b"x" * 5000]
    assert not KIND.hands_through(1000, 2)
    assert KIND.hands_through(100 << 20, 50)


@pytest.mark.parametrize(
    "forged",
    [b"", b"x", value(1) + value(2), value(1)[:-1], b"\x07" + value(1)[1:], b"\0" * 8 + b"\xff" * 8, bytes(16) + b"\0"],
    ids=["nothing", "a letter", "two", "cut off", "of another kind", "endless", "a byte more"],
)
def test_what_is_not_a_record_for_each_call_moves_no_other_calls_result(forged: bytes) -> None:
    assert joined_of(spec(b"a", b"b", b"c"), [value("a"), forged, value("c")]) == ["a", "unencodable", "c"]


def test_an_output_of_open_size_admits_lines_up_to_its_size() -> None:
    planned = Planned(dtype="uint8", shape=(0,), most_bytes=10)
    assert planned.admits("uint8", (10,)) and planned.admits("uint8", (0,))
    assert not planned.admits("uint8", (11,))
    assert (
        not planned.admits("uint8", (2, 2)) and not planned.admits("int8", (2,)) and not planned.admits("uint8", (-1,))
    )
    assert msgspec.msgpack.encode(Planned(dtype="uint8", shape=(9,))) == msgspec.msgpack.encode(
        {"dtype": "uint8", "shape": (9,)}
    )


def test_a_function_job_is_told_from_a_kernels_by_its_kind() -> None:
    job = spec(b"a")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=JobSpec) == job
    assert msgspec.json.decode(msgspec.json.encode(job), type=JobSpec) == job
