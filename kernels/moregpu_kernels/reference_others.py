"""References and bounds of the operations that the pool does not name.

Reductions, norms with weights, transpose, quantised products, epilogues, formulas; `expect_any` knows the named too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from moregpu_kernels.errors import BadShape
from moregpu_kernels.formula import Call, Expression, Name
from moregpu_kernels.fuse import expression_of
from moregpu_kernels.operations import LAYERNORM_EPSILON
from moregpu_kernels.plan_rows import QUANTISED
from moregpu_kernels.quantise import Quantised, dequantise
from moregpu_kernels.reference import FLUSH, OPERATIONS, U32, Array, Expected, Floats, expect
from moregpu_kernels.reference_formula import expect_formula
from moregpu_kernels.template import Value

_LANES: Final = 8.0
"""Sums along rows run in at least this many lanes and a tree."""


def expect_any(operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Value], dtype: str) -> Expected:
    """Reference and bound of any operation of this library on arrays as they are stored."""
    with np.errstate(all="ignore"):
        if operation == "matmul" and parameters.get("epilogue"):
            return _with_epilogue(arrays, str(parameters["epilogue"]), dtype)
        if operation in OPERATIONS and not (set(arrays) & {"weight", "bias"}) and "epsilon" not in parameters:
            return expect(operation, arrays, parameters, dtype)
        if operation in QUANTISED:
            return _quantised(operation, arrays, dtype)
        expression = expression_of(operation, parameters)
        if expression is not None:
            scalars = {name: float(value) for name, value in parameters.items() if not isinstance(value, str)}
            return expect_formula(expression, {**scalars, **arrays}, dtype)
        a = arrays["a"].astype(np.float64)
        match operation:
            case "layernorm" | "rmsnorm":
                return _norm(operation, a, arrays, float(parameters.get("epsilon", LAYERNORM_EPSILON)), dtype)
            case "sum" | "mean" | "max" | "min":
                return _reduction(operation, a, dtype)
            case "transpose":
                value = np.swapaxes(a, -1, -2)
                return _expected(value, np.zeros_like(value), dtype, exact=True)
            case _:
                raise BadShape(f"There is no reference for {operation!r}")


def _expected(
    value: Floats,
    error: Floats,
    dtype: str,
    highest: Floats | None = None,
    lowest: Floats | None = None,
    exact: bool = False,
) -> Expected:
    computed = np.where(np.isfinite(value), error + FLUSH, 0.0)
    stored = computed
    if dtype == "float16" and not exact:
        stored = computed + 2.0**-11 * (np.abs(value) + computed) + 2.0**-25
    return Expected(
        value, stored, computed, value if highest is None else highest, value if lowest is None else lowest, dtype
    )


def _reduction(operation: str, a: Floats, dtype: str) -> Expected:
    columns = a.shape[-1]
    if operation in ("max", "min"):
        value = (np.max if operation == "max" else np.min)(a, axis=-1)
        return _expected(value, np.zeros_like(value), dtype)
    total = np.sum(a, axis=-1)
    finite = np.where(np.isfinite(a), a, 0.0)
    plain, size = np.sum(finite, axis=-1), np.sum(np.abs(finite), axis=-1)
    # A sum of C terms in L lanes and trees; a long row in parts of 65,536 whose sums are summed again.
    units = min(float(columns), 65_536 / _LANES + columns / 65_536 / _LANES + 32)
    error = (units * U32 + columns * 2.0**-53) * size + max(columns, 1) * FLUSH
    divisor = columns if operation == "mean" else 1
    value = total / divisor if divisor else total * np.nan
    error = error / max(divisor, 1) + 4 * U32 * np.abs(np.where(np.isfinite(value), value, 0.0))
    return _expected(value, error, dtype, (size + plain) / 2 + error, (plain - size) / 2 - error)


def _norm(operation: str, a: Floats, arrays: Mapping[str, Array], epsilon: float, dtype: str) -> Expected:
    """As the named layernorm's bound; rmsnorm has no mean to subtract and so nothing of its error."""
    columns = a.shape[-1]
    epsilon = float(np.float32(epsilon))
    mean = np.mean(a, axis=-1, keepdims=True) if operation == "layernorm" else np.zeros((*a.shape[:-1], 1))
    apart = a - mean
    spread = np.sqrt(np.mean(apart * apart, axis=-1, keepdims=True) + epsilon)
    value = apart / spread
    units = (columns / _LANES + 11) * U32
    size = np.mean(np.abs(a), axis=-1, keepdims=True) if operation == "layernorm" else 0.0
    # Subnormal inputs may be read as 0.
    off = (units * size + FLUSH) / spread
    error = (off + np.abs(value) * (units / 2 + off * off / 2 + 8 * U32)) * (1 + 4 * units + off)
    weight = arrays["weight"].astype(np.float64) if "weight" in arrays else np.ones(())
    bias = arrays["bias"].astype(np.float64) if "bias" in arrays else np.zeros(())
    scaled = value * weight
    result = scaled + bias
    error = error * np.abs(weight) + U32 * (np.abs(scaled) + np.abs(result)) + FLUSH
    return _expected(result, np.where(np.isnan(error), 0.0, error), dtype)


def _quantised(operation: str, arrays: Mapping[str, Array], dtype: str) -> Expected:
    """32 products in a block, times its scale, and blocks in at least eight lanes: 34 + K/256 roundoffs and a tree."""
    matrix = dequantise(Quantised(operation.removeprefix("gemv_"), arrays["quants"], arrays["scales"])).astype(
        np.float64
    )
    x = arrays["x"].astype(np.float64)
    value, total = matrix @ x, np.abs(matrix) @ np.abs(x)
    error = (40 + x.size / 256) * U32 * np.where(np.isfinite(total), total, 0.0) + x.size * FLUSH
    return _expected(value, error, dtype, total, -total)


def _with_epilogue(arrays: Mapping[str, Array], text: str, dtype: str) -> Expected:
    """The product's bound, carried through the stages as a formula of the product."""
    product = expect("matmul", arrays, {}, "float32")
    expression: Expression = Name("product")
    values: dict[str, Array | float] = {"product": product.value}
    for stage in text.split("+"):
        if stage in ("bias", "residual"):
            values[stage] = arrays[stage]
            expression = Call("add", (expression, Name(stage)))
        else:
            expression = Call(stage, (expression,))
    return expect_formula(expression, values, dtype, {"product": product.computed})
