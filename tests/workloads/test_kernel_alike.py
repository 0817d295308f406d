"""Many tiny tasks judged by one computation: what passes together is what passes alone, and nobody fails here."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moregpu_kernels.blocks import compute
from moregpu_kernels.operations import OPERATIONS
from msgspec.structs import replace

from moregpu.jobs import Evidence, Planned, Tensor
from moregpu.workloads import workload
from moregpu.workloads.protocol import Cost, Inline, TaskSpec

KERNEL = workload("kernel")
TOGETHER = [name for name, about in OPERATIONS.items() if about.form != "product"]
DTYPES = {"float32": "<f4", "float16": "<f2"}


def honest(operation: str, rows: int, seed: int = 0, dtype: Any = "float32", scalar: float = 1.5) -> Inline:
    """A task with the bytes that an honest worker makes of it."""
    about = OPERATIONS[operation]
    shape = {"elements": (rows,), "rows": (rows, 5), "product": (rows, rows)}[about.form]
    rng = np.random.default_rng(seed)
    arrays = {name: rng.standard_normal(shape).astype(DTYPES[dtype]) for name in about.inputs}
    out = np.empty(shape, DTYPES[dtype])
    if about.form == "product":
        np.matmul(arrays["a"], arrays["b"], out=out)
    else:
        compute(operation, list(arrays.values()), np.float32(scalar), out)
    task = TaskSpec(
        kind="kernel",
        program=operation.encode(),
        parameters=msgspec.msgpack.encode({"scalar": scalar} if about.takes_scalar else {}),
        precision=dtype,
        grains=(0, 1),
        inputs={name: Tensor(dtype=dtype, shape=shape, data=array.tobytes()) for name, array in arrays.items()},
        outputs={"out": Planned(dtype=dtype, shape=shape)},
        cost=Cost(),
    )
    return Inline(task, {name: array.tobytes() for name, array in arrays.items()}, {"out": out.tobytes()})


def one_bit_off(each: Inline) -> Inline:
    made = bytearray(each.outputs["out"])
    made[-1] ^= 0x40  # of the last element's exponent: far outside of any bound
    return each._replace(outputs={"out": bytes(made)})


def alone(each: Inline) -> Any:
    arrays, outputs = (
        {
            name: np.frombuffer(data, DTYPES[each.task.precision]).reshape(each.task.outputs["out"].shape)
            for name, data in named.items()
        }
        for named in (each.inputs, each.outputs)
    )
    return KERNEL.check(each.task, arrays, outputs, "spot", os.urandom)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", TOGETHER)
def test_honest_tasks_of_any_lengths_get_together_the_evidence_that_each_gets_alone(operation: str, dtype: str) -> None:
    tasks = [honest(operation, rows, rows, dtype) for rows in (1, 2, 3, 7, 16, 33)]
    assert list(KERNEL.check_alike(tasks)) == [alone(each) for each in tasks] == [Evidence(kind="recomputed")] * 6


@pytest.mark.parametrize("operation", TOGETHER)
def test_no_task_passes_with_a_wrong_one_beside_it_that_would_not_pass_alone(operation: str) -> None:
    tasks = [honest(operation, rows, rows) for rows in (3, 4, 5)]
    tasks[1] = one_bit_off(tasks[1])
    assert list(KERNEL.check_alike(tasks)) == [None] * 3
    assert [isinstance(alone(each), Evidence) for each in tasks] == [True, False, True]


@given(st.lists(st.tuples(st.sampled_from(TOGETHER), st.integers(1, 9), st.booleans()), min_size=1, max_size=12))
def test_whatever_is_mixed_only_what_is_right_alone_passes(mixture: list[tuple[str, int, bool]]) -> None:
    tasks = [honest(operation, rows, at) for at, (operation, rows, _) in enumerate(mixture)]
    tasks = [one_bit_off(each) if wrong else each for each, (_, _, wrong) in zip(tasks, mixture, strict=True)]
    for each, evidence in zip(tasks, KERNEL.check_alike(tasks), strict=True):
        assert evidence is None or alone(each) == evidence


def test_tasks_of_other_scalars_are_no_kin() -> None:
    one, other = honest("scale", 4, scalar=2.0), honest("scale", 4, scalar=3.0)
    swapped = one._replace(task=replace(one.task, parameters=other.task.parameters))
    assert list(KERNEL.check_alike([one, swapped, other])) == [Evidence(kind="recomputed"), None, None]


@pytest.mark.parametrize("odd", ["product", "unknown", "empty", "missing", "other dtype", "other shape"])
def test_what_cannot_be_laid_end_to_end_is_left_to_be_judged_alone(odd: str) -> None:
    good = honest("vector_add", 4)
    strange = {
        "product": honest("matmul", 4),
        "unknown": good._replace(task=replace(good.task, program=b"custom:0")),
        "empty": honest("vector_add", 0),
        "missing": good._replace(inputs={"a": good.inputs["a"]}),
        "other dtype": good._replace(task=replace(good.task, precision="float64")),
        "other shape": good._replace(task=replace(good.task, outputs={"out": Planned(dtype="float32", shape=(2, 2))})),
    }[odd]
    assert list(KERNEL.check_alike([good, strange])) == [Evidence(kind="recomputed"), None]


def test_nothing_that_is_no_number_passes_for_another_number() -> None:
    good = honest("relu", 4)
    made = np.frombuffer(good.outputs["out"], "<f4").copy()
    made[2] = np.nan
    assert list(KERNEL.check_alike([good._replace(outputs={"out": made.tobytes()})])) == [None]
