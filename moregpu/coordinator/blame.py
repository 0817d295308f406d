"""Whose fault it is that an entry cannot be accepted: its worker's, its task's, or an engine's, as far as it shows."""

from __future__ import annotations

from typing import Literal

from moregpu.coordinator.cases import Case, Wrong
from moregpu.coordinator.store.protocol import WorkerRow
from moregpu.workloads import workload


def blames_task(case: Case) -> bool:
    """Whether a worker says that a submitter's own code is to blame (an environment that nobody can build).

    "The task's fault" is a claim that no worker may make alone: one lying worker would end every job it touches. Two
    owners' workers who say the same are believed; the first one's word counts as a failed attempt, but not against
    that worker.
    """
    claimed = case.entry.error
    return claimed is not None and claimed.fault == "task" and case.job.plan.needs.own_code


def fault_of(worker: WorkerRow, case: Case, finding: Wrong) -> Literal["task", "engine", "worker"]:
    """Whose fault a failed attempt is counted as."""
    claimed = case.entry.error
    if claimed is None:
        return "task" if finding.doubtful else "engine"
    if claimed.fault == "task":  # of a registered kernel, that its WGSL does not compile: a CPU needs none of it
        return "task" if blames_task(case) or _ran_registered(worker, case, "") else "engine"
    return claimed.fault


def wrong_result(worker: WorkerRow, case: Case, reason: str, device: str) -> Wrong:
    """Outputs that are not what they should be: proof against a worker, unless a registered kernel may be why.

    Then they are refused as ever, and count as a failed attempt of the task: it goes to others, and ends the job when
    all have failed it or its retries are over. Two wrong kernels' results would have put every GPU in quarantine.
    """
    program = _ran_registered(worker, case, device)
    if not program:
        return Wrong("wrong-result", reason, proven=True)
    name = next((each.name for each in worker.devices if each.id == device), "its device")
    return Wrong("wrong-result", f"{reason}: the kernel {program} and its reference differ on {name}", doubtful=True)


def _ran_registered(worker: WorkerRow, case: Case, device: str) -> str:
    """The registered program that a GPU of the worker may have run for a task; empty where there is none.

    `device` is the one that it says it ran on, empty where it does not: a CPU never runs such a program, but computes
    its reference, as the judge does.
    """
    kinds = {each.id: each.kind for each in worker.devices}
    if "gpu" not in kinds.values() or kinds.get(device) == "cpu":
        return ""
    return workload(case.assignment.kind).registered(case.job.spec)
