"""What a kernel job may not be: each mistake has its own answer, and none allocates anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moregpu.errors import InvalidJob, MoreGPUError, TooLarge
from moregpu.jobs import Blob, Tensor
from moregpu.workloads import JobSpec, KernelSpec, workload

KERNEL = workload("kernel")


def tensor(*shape: int, dtype: Any = "float32", size: int | None = None) -> Tensor:
    count = 1
    for length in shape:
        count *= length
    item = {"float32": 4, "float16": 2, "float64": 8, "bfloat16": 2}[dtype]
    data = Blob(digest="ab" * 32, key=bytes(32), size_bytes=count * item if size is None else size)
    return Tensor(dtype=dtype, shape=shape, data=data)


def refused(error: type[MoreGPUError], words: str, **fields: Any) -> None:
    with pytest.raises(error, match=words) as caught:
        KERNEL.validate(KernelSpec(**fields))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("shapes .2, 3. and .2, 3.", {"operation": "matmul", "inputs": {"a": tensor(2, 3), "b": tensor(2, 3)}}),
        ("shapes .3,. and", {"operation": "matmul", "inputs": {"a": tensor(3), "b": tensor(3, 2)}}),
        ("one shape, not", {"operation": "vector_add", "inputs": {"a": tensor(4), "b": tensor(5)}}),
        ("one shape, not", {"operation": "saxpy", "inputs": {"a": tensor(2, 2), "b": tensor(4)}}),
        ("the last axis", {"operation": "softmax", "inputs": {"a": tensor()}}),
        ("inputs given: a\\.", {"operation": "vector_mul", "inputs": {"a": tensor(4)}}),
        ("inputs given: a, b", {"operation": "relu", "inputs": {"a": tensor(4), "b": tensor(4)}}),
        ("inputs given: none", {"operation": "relu"}),
        ("either `size` or `inputs`", {"operation": "relu", "size": 4, "inputs": {"a": tensor(4)}}),
        ("size is -1", {"operation": "relu", "size": -1}),
        ("a is float64", {"operation": "relu", "inputs": {"a": tensor(4, dtype="float64")}}),
        ("a is float32", {"operation": "relu", "dtype": "float16", "inputs": {"a": tensor(4)}}),
        ("compute in bfloat16", {"operation": "relu", "dtype": "bfloat16", "size": 4}),
        ("called 'explode'", {"operation": "explode", "size": 4}),
        ("holds 15 bytes", {"operation": "relu", "inputs": {"a": tensor(4, size=15)}}),
        ("scalar nan", {"operation": "scale", "size": 4, "scalar": float("nan")}),
        ("scalar inf", {"operation": "saxpy", "size": 4, "scalar": float("inf")}),
        ("scalar 1e\\+39", {"operation": "scale", "size": 4, "scalar": 1e39}),
    ],
)
def test_a_job_that_cannot_run_is_refused_with_its_reason(words: str, fields: dict[str, Any]) -> None:
    refused(InvalidJob, words, **fields)


def test_inline_bytes_must_be_as_many_as_the_shape_says() -> None:
    refused(
        InvalidJob, "holds 3 bytes", operation="relu", inputs={"a": Tensor(dtype="float32", shape=(1,), data=b"abc")}
    )


def test_a_region_of_a_larger_array_is_no_input() -> None:
    part = msgspec.structs.replace(tensor(8), region=((0, 4),))
    refused(InvalidJob, "names a region", operation="relu", inputs={"a": part})


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "relu", "size": 10**12},
        {"operation": "matmul", "size": 10**6},
        {"operation": "softmax", "size": 10**11},
        {"operation": "relu", "inputs": {"a": tensor(10**6, 10**6)}},
        {"operation": "relu", "inputs": {"a": tensor(1 << 40, 1 << 40, 1 << 40)}},
        # small inputs, a huge output
        {"operation": "matmul", "inputs": {"a": tensor(10**7, 1), "b": tensor(1, 10**7)}},
    ],
)
def test_a_trillion_elements_are_too_many(fields: dict[str, Any]) -> None:
    refused(TooLarge, "elements", **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "relu", "inputs": {"a": tensor()}},
        {"operation": "relu", "inputs": {"a": tensor(0)}},
        {"operation": "vector_add", "inputs": {"a": tensor(2, 0, 3), "b": tensor(2, 0, 3)}},
        {"operation": "softmax", "inputs": {"a": tensor(3, 0)}},
        {"operation": "layernorm", "inputs": {"a": tensor(2, 3, 4, 5)}},
        {"operation": "matmul", "inputs": {"a": tensor(3, 0), "b": tensor(0, 2)}},
        {"operation": "matmul", "size": 999_999},
        {"operation": "gelu", "size": 0},
        {"operation": "scale", "size": 3, "scalar": -3.4e38},
        {"operation": "vector_mul", "dtype": "float16", "size": 1},
    ],
)
def test_everything_else_runs_and_is_planned_in_no_time(fields: dict[str, Any]) -> None:
    spec = KernelSpec(**fields)
    KERNEL.validate(spec)


def test_a_spec_is_what_http_sends() -> None:
    text = b'{"kind": "kernel", "operation": "matmul", "size": 64, "seed": 3}'
    spec = msgspec.json.decode(text, type=JobSpec)
    assert spec == KernelSpec(operation="matmul", size=64, seed=3)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind": "kernel", "operation": "explode", "size": 64}', type=JobSpec)
