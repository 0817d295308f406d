"""Who may try a task again when nobody better is left."""

from __future__ import annotations

from msgspec.structs import replace

from moregpu.coordinator.scheduler import may_take
from moregpu.coordinator.store.protocol import TaskRow, Vote
from moregpu.jobs import TaskState
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu.workloads.protocol import Cost, TaskSpec
from tests.coordinator.store import rows

SPEC = TaskSpec(
    kind="kernel", program=b"relu", parameters=b"", precision="float32", grains=(0, 1), inputs={}, outputs={},
    cost=Cost(),
)  # fmt: skip


def test_one_that_failed_a_task_tries_again_when_all_others_have_answered_it() -> None:
    job = rows.job(grains=1, spec=KernelSpec(operation="relu", check="agree"))
    mine, yours = rows.worker("w-1", owner="me"), rows.worker("w-2", owner="you")
    task = TaskRow(id="t-1", job=job.id, number=0, state=TaskState.WAITING, spec=SPEC, failed_on=("w-1",))
    assert not may_take(job, task, mine, [mine, yours])
    answered = replace(task, votes=(Vote(attempt=1, worker="w-2", owner="you"),))
    assert may_take(job, answered, mine, [mine, yours])
    assert not may_take(job, answered, yours, [mine, yours])
    third = rows.worker("w-3", owner="they")
    assert not may_take(job, answered, mine, [mine, yours, third])
