"""The nine operations that the pool names, as data: inputs, parameters, shapes and costs. No NumPy in here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OUTPUT = "out"
"""Name of the one output that every operation has."""

LAYERNORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Operation:
    """What is known of an operation without running it.

    `form` says how its arrays lie: `product` a (M, K) @ b (K, N); `elements` any shape, element by element; `rows`
    along the last axis. `flops` counts float operations of one output element (a product: 2·K instead).
    """

    name: str
    form: Literal["product", "elements", "rows"]
    inputs: tuple[str, ...]
    flops: float
    takes_scalar: bool = False

    @property
    def bound_by(self) -> Literal["flops", "bytes"]:
        """Whether arithmetic or memory decides how long it takes."""
        return "flops" if self.form == "product" else "bytes"


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("matmul", "product", ("a", "b"), 0.0),
        Operation("vector_add", "elements", ("a", "b"), 1.0),
        Operation("vector_mul", "elements", ("a", "b"), 1.0),
        Operation("saxpy", "elements", ("a", "b"), 2.0, takes_scalar=True),
        Operation("relu", "elements", ("a",), 1.0),
        Operation("gelu", "elements", ("a",), 16.0),
        Operation("scale", "elements", ("a",), 1.0, takes_scalar=True),
        Operation("softmax", "rows", ("a",), 12.0),
        Operation("layernorm", "rows", ("a",), 8.0),
    )
}
