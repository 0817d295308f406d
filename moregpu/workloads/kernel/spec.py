"""The JobSpec of a kernel job: a named operation or a formula over tensors, or a benchmark that makes its own data."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from moregpu.jobs import JobCommon, Tensor

Operation = Literal[
    "matmul", "vector_add", "vector_mul", "saxpy", "relu", "gelu", "scale", "softmax", "layernorm", "formula",
    "custom",
]  # fmt: skip

KERNELS: tuple[Operation, ...] = (
    "matmul", "vector_add", "vector_mul", "saxpy", "relu", "gelu", "scale", "softmax", "layernorm",
)  # fmt: skip
"""Those that MoreGPU 1.x had."""

FORMULA_LIMIT = 10_000
"""Characters of a formula."""


def _only(*operations: str) -> dict[str, object]:
    """For forms: a field that means something only for some operations."""
    return {"when": {"operation": list(operations)}}


class KernelSpec(JobCommon, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="kernel", tag_field="kind"):
    """Data mode: `inputs` holds `a` (and `b`). Benchmark mode: `size` alone, and the pool makes the data from `seed`.

    matmul: a (M, K) @ b (K, N). vector_add, vector_mul: a, b of one shape. saxpy: scalar · a + b. scale: scalar · a.
    relu, gelu (tanh form): a. softmax, layernorm (eps 1e-5, no affine): over the last axis of a.
    formula: the names in `formula` are the inputs, which broadcast together as NumPy's; numbers are inputs of shape ().
    custom: a kernel that an admin registered (`kernel` names it), over arrays of one shape and `numbers`.
    Benchmark sizes: matmul size × size; softmax and layernorm `size` rows of 128; the others `size` elements.
    """

    operation: Annotated[Operation, Meta(title="Operation", extra_json_schema={"widget": "select"})]
    dtype: Annotated[Literal["float32", "float16"], Meta(title="Type")] = "float32"
    size: Annotated[int, Meta(title="Size", description="Benchmark mode: the pool makes the data", ge=0)] | None = None
    inputs: Annotated[dict[str, Tensor], Meta(title="Inputs", extra_json_schema={"widget": "tensors"})] = {}
    scalar: Annotated[
        float,
        Meta(
            title="Scalar",
            description="saxpy: scalar · a + b; scale: scalar · a",
            extra_json_schema=_only("saxpy", "scale"),
        ),
    ] = 1.0
    kernel: Annotated[
        str,
        Meta(
            title="Kernel",
            description="custom: the name of a registered kernel",
            max_length=200,
            extra_json_schema=_only("custom"),
        ),
    ] = ""
    numbers: Annotated[
        dict[str, float],
        Meta(title="Numbers", description="custom: its parameters, name=number", extra_json_schema=_only("custom")),
    ] = {}
    source: Annotated[str, Meta(title="Source", description="custom: put in by the coordinator", max_length=20_000)] = (
        ""
    )
    formula: Annotated[
        str,
        Meta(
            title="Formula",
            description="such as exp(-x*x) * sin(y): its names are the inputs",
            max_length=FORMULA_LIMIT,
            extra_json_schema=_only("formula"),
        ),
    ] = ""
