"""How many calls make a task: one where nobody has timed the program, else about a quarter of a second's worth."""

from __future__ import annotations

import msgspec

from moregpu.jobs import Tensor
from moregpu.workloads.function.plan import CALL_AMOUNT
from moregpu.workloads.function.spec import ARGUMENTS, CallPlan, FunctionSpec
from moregpu.workloads.protocol import Cost, Plan, TaskSpec, WorkerProfile

TASK_S = 0.25
"""A task of calls is shorter than one of kernels: what they gave is told when the last one of their task has ended, and
a worker that dies takes what they gave until then with it. Of 20 calls of 0.25 s on two workers, one of them killed,
the last ended after 3.2 s instead of 3.5 s; each task more costs the coordinator 2 ms of its CPU."""

MAX_TASK_CALLS = 1000
MAX_TASK_BYTES = 64 << 20
"""Of arguments, unless one call alone has more."""

TASK_RESULT_BYTES = 16 << 20
"""Of results, where a call's are known: they are stored, checked and fetched while the next task's calls run, and pass
through memory that is warm (fresh pages cost 4 ms for 4 MiB, sealing what they hold 1 ms). Of smaller tasks the commits
cost more than that saves."""

_encode = msgspec.msgpack.Encoder().encode


def cut_task(spec: FunctionSpec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> TaskSpec:
    """The next calls from `cursor` on, for one worker."""
    count = _count(spec, plan, cursor, worker, budget_s)
    calls = spec.calls[cursor : cursor + count]
    start = _before(spec.calls, cursor)
    arguments = spec.inputs[ARGUMENTS]
    return TaskSpec(
        kind="function",
        program=str(plan.layout["program"]).encode(),
        parameters=_encode(
            CallPlan(
                form=spec.form,
                first=cursor,
                calls=calls,
                session=spec.session,
                requires=spec.requires,
                python=spec.python,
                isolate=spec.isolate,
                network=spec.network,
                memory_bytes=spec.memory_bytes,
                cores=spec.cores or 1,
                gpu=spec.gpu,
            )
        ),
        precision="",
        grains=(cursor, cursor + count),
        inputs={**spec.inputs, ARGUMENTS: _part(arguments, start, start + sum(calls))},
        outputs=plan.outputs,
        cost=Cost(flops=count * CALL_AMOUNT, speed_key=plan.cost.speed_key),
        once=not spec.idempotent,
        seed=(spec.seed or 0) + cursor if spec.seed is not None else 0,
    )


def _count(spec: FunctionSpec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> int:
    if spec.isolate == "task" or not spec.idempotent:
        return 1
    if plan.cost.speed_key not in worker.speeds:
        return 1
    call_s = worker.seconds(Cost(flops=CALL_AMOUNT, speed_key=plan.cost.speed_key))
    most = min(plan.grains - cursor, MAX_TASK_CALLS)
    each = worker.result_bytes.get(plan.cost.speed_key, 0.0)
    if each > 0.0:
        most = min(most, int(TASK_RESULT_BYTES / each))
    count = max(1, min(most, int(min(budget_s, TASK_S) / max(call_s, 1e-9))))
    size = 0
    for place, length in enumerate(spec.calls[cursor : cursor + count]):
        size += length
        if size > MAX_TASK_BYTES:
            return max(1, place)
    return count


_begun: dict[int, tuple[tuple[int, ...], int, int]] = {}
"""Calls of jobs that are being cut, by the identity of their list: (the list, a place in it, bytes before that)."""

BEGUN_JOBS = 16


def _before(calls: tuple[int, ...], cursor: int) -> int:
    """Bytes of all calls before `cursor`, from where the job was cut last: over a whole job each call is added once."""
    _, at, size = _begun.get(id(calls), (calls, 0, 0))
    size += sum(calls[at:cursor]) if cursor >= at else -sum(calls[cursor:at])
    if len(_begun) >= BEGUN_JOBS and id(calls) not in _begun:
        _begun.clear()
    _begun[id(calls)] = calls, cursor, size
    return size


def _part(tensor: Tensor, start: int, stop: int) -> Tensor:
    """The part of a line of bytes: a region of its blob, or exactly its own bytes when they travel inline."""
    if (start, stop) == (0, tensor.shape[0]):
        return tensor
    if isinstance(tensor.data, bytes):
        return msgspec.structs.replace(tensor, shape=(stop - start,), data=tensor.data[start:stop])
    return msgspec.structs.replace(tensor, region=((start, stop),))
