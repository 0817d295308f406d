"""From a lease to the words that a worker is sent, and to the statement that will be expected back."""

from __future__ import annotations

from moregpu.coordinator.opening import cut_inline
from moregpu.coordinator.store.protocol import JobRow, TaskRow
from moregpu.wire.messages import Assignment


def assignment_of(
    job: JobRow, task: TaskRow, attempt: int, token: bytes, *, lease_s: float = 0.0, device: str = ""
) -> Assignment:
    """The assignment of one attempt. Made again at the result's arrival, it says what the statement must say."""
    spec = task.spec
    return Assignment(
        job=job.id,
        task=task.id,
        attempt=attempt,
        token=token,
        kind=spec.kind,
        program=spec.program,
        parameters=spec.parameters,
        precision=spec.precision,
        inputs={name: cut_inline(tensor) for name, tensor in spec.inputs.items()},
        outputs=spec.outputs,
        digest_key=job.digest_key,
        seed=spec.seed,
        time_limit_s=job.spec.time_limit_s,
        lease_s=lease_s,
        device=device,
        submitter=job.submitter,
        name=job.spec.name,
        once=spec.once,
    )
