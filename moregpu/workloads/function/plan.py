"""What a function job must be, and its plan: one grain is one call."""

from __future__ import annotations

import re

from blake3 import blake3

from moregpu.errors import InvalidJob, TooLarge
from moregpu.jobs import Blob, Planned, Tensor
from moregpu.workloads.function.spec import (
    ARGUMENTS,
    MAX_RESULT_BYTES,
    PROGRAM,
    RESULTS,
    SHARED,
    FunctionSpec,
)
from moregpu.workloads.protocol import NOMINAL_FLOPS, Cost, Needs, Plan

CALL_S = 0.05
"""What a call counts that nobody has timed yet."""

CALL_AMOUNT = CALL_S * NOMINAL_FLOPS
"""A call's cost, in the unit of speeds: so an untimed worker is expected to take `CALL_S` for it."""

SPEEDS = "function."
"""Speed keys of programs begin so: they are the coordinator's own, kept while a worker is connected."""

BASE_MEMORY_BYTES = 64 << 20
"""Of an interpreter that has imported little."""

MAX_PROGRAM_BYTES = 1 << 30
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-\[\],<>=!~*+ ;()'\"]*")
_SHARED = re.compile(re.escape(SHARED) + r"[0-9a-f]{16,64}")


def refuse_invalid(spec: FunctionSpec) -> None:
    """Raise `InvalidJob` unless the inputs are what the spec's module says."""
    for name, tensor in spec.inputs.items():
        if name not in (PROGRAM, ARGUMENTS) and _SHARED.fullmatch(name) is None:
            raise InvalidJob(
                f"a function job has no input {name[:80]!r}", "inputs: program, arguments, shared/<digest in hex>"
            )
        if tensor.dtype != "uint8" or len(tensor.shape) != 1 or tensor.region is not None:
            raise InvalidJob(f"input {name!r} must be a line of bytes (uint8, one axis, whole)")
        held = tensor.data.size_bytes if isinstance(tensor.data, Blob) else len(tensor.data)
        if held != tensor.shape[0]:
            raise InvalidJob(f"input {name!r} says {tensor.shape[0]} bytes and holds {held}")
    for name in (PROGRAM, ARGUMENTS):
        if name not in spec.inputs:
            raise InvalidJob(f"a function job needs the input {name!r}")
    size = spec.inputs[PROGRAM].shape[0]
    if size == 0:
        raise InvalidJob("the program is empty")
    if size > MAX_PROGRAM_BYTES:
        raise TooLarge(f"the program takes {size} bytes", "pass large values as arguments, or with pool.scatter")
    total, held = sum(spec.calls), spec.inputs[ARGUMENTS].shape[0]
    if total != held:
        raise InvalidJob(f"the calls' arguments take {total} bytes; `arguments` holds {held}")
    for requirement in spec.requires:
        if _REQUIREMENT.fullmatch(requirement) is None or "@" in requirement:
            raise InvalidJob(
                f"the requirement {requirement[:80]!r} is not a package of an index", "name it as pip does: numpy>=2"
            )
    if spec.check == "agree" and not spec.idempotent:
        raise InvalidJob("a call that may run only once cannot be made by a second worker, too", "leave check out")
    if re.fullmatch(r"3\.\d{1,2}", spec.python) is None:
        raise InvalidJob(f"{spec.python[:20]!r} is no minor version of Python", 'write it as "3.12"')


def make_plan(spec: FunctionSpec) -> Plan:
    """One grain a call."""
    refuse_invalid(spec)
    name = program_name(spec.inputs[PROGRAM])
    count = len(spec.calls)
    what = spec.function or ("a script" if spec.form == "script" else "a function")
    return Plan(
        kind="function",
        grains=count,
        cost=Cost(flops=count * CALL_AMOUNT, speed_key=SPEEDS + name[:32]),
        needs=Needs(
            kind="function",
            engine="gpu" if spec.gpu or spec.vram_bytes or spec.engine == "gpu" else "cpu",
            device=spec.device,
            group=spec.group,
            memory_bytes=spec.memory_bytes or 0,
            cores=spec.cores or 0,
            vram_bytes=spec.vram_bytes or 0,
            own_code=True,
        ),
        layout={"program": name},
        summary=f"{what}: {count} call{'' if count == 1 else 's'}",
        task_memory_bytes=BASE_MEMORY_BYTES,
        outputs={RESULTS: Planned(dtype="uint8", shape=(0,), most_bytes=MAX_RESULT_BYTES)},
    )


def program_name(program: Tensor) -> str:
    """What a program is known by, in hex: its own digest, or that of the sealed blob it came in."""
    data = program.data
    return data.digest if isinstance(data, Blob) else blake3(data).hexdigest()
