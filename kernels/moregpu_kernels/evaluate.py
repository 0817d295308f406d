"""Formulas on the CPU: an expression's value in float32 by NumPy, piece by piece, within the reference's bound.

Only the functions listed here are ever called, on arrays that were given: nothing is looked up in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from moregpu_kernels.errors import BadFormula
from moregpu_kernels.formula import Call, Expression, Name, Number
from moregpu_kernels.reference import GELU_CUBE, GELU_SLOPE

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float32]]

PIECE_ELEMENTS: Final = 1 << 17
"""Elements computed at a time: the intermediates stay in cache. Measured: 2¹⁷ to 2¹⁸ are best, 2¹⁴ costs half again."""


def evaluate(expression: Expression, values: Mapping[str, Array]) -> Floats:
    """Give an expression's value in float32; `values` are arrays that broadcast together, float16 is widened.

    Raises
    ------
    BadFormula
        A function that there is not.

    """
    with np.errstate(all="ignore"):
        return np.asarray(_value(expression, values, {}), np.float32)


def pieces(
    values: Mapping[str, Array], shape: tuple[int, ...], elements: int = PIECE_ELEMENTS
) -> Iterator[tuple[slice, dict[str, Array]]]:
    """Cut an output of `shape`, as one line of elements, into pieces, each with what it needs of arrays that broadcast.

    What has one element stays a single number.
    """
    count = math.prod(shape)
    lines: dict[str, Any] = {}
    single = {name for name, array in values.items() if array.size == 1 and array.shape != shape}
    for name, array in values.items():
        if array.shape == shape:
            lines[name] = array.reshape(-1)
        elif name in single:
            lines[name] = array.reshape(())
        else:
            lines[name] = np.broadcast_to(array, shape).flat  # a slice of it copies no more than the slice
    for start in range(0, count, elements):
        span = slice(start, min(start + elements, count))
        yield span, {name: line if name in single else line[span] for name, line in lines.items()}


def _value(part: Expression, values: Mapping[str, Array], known: dict[Expression, Any]) -> Any:
    """Each part once: a formula may name it often."""
    found = known.get(part)
    if found is None:
        match part:
            case Number(number):
                found = np.float32(number)
            case Name(name):
                found = np.asarray(values[name], np.float32)
            case Call(function, arguments):
                compute = _FUNCTIONS.get(function)
                if compute is None:
                    raise BadFormula(f"There is no {function} on the CPU")
                found = compute(*(_value(argument, values, known) for argument in arguments))
        known[part] = found
    return found


ONE: Final = np.float32(1)


def _sigmoid(x: Floats) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, ONE) / (ONE + small)


def _gelu(x: Floats) -> Floats:
    # (1 + tanh z)/2 = sigmoid(2z), which loses nothing where x is far below 0.
    return x * _sigmoid(np.float32(2 * GELU_SLOPE) * (x + np.float32(GELU_CUBE) * (x * x * x)))


def _softplus(x: Floats) -> Floats:
    return np.maximum(x, np.float32(0)) + np.log1p(np.exp(-np.abs(x)))


def _erf(x: Floats) -> Any:
    return np.asarray(_erf_each(x), np.float32)


_erf_each: Final = np.frompyfunc(math.erf, 1, 1)


def _silu(x: Floats) -> Floats:
    return x * _sigmoid(x)


def _relu(x: Floats) -> Floats:
    return np.maximum(x, np.float32(0))


def power(x: Any, y: Any) -> Any:
    """`x ** y` as IEEE 754's pow has it, also where NumPy takes the square root for it.

    Whether it does that depends on its version and on how the exponent lies in memory; the root of −∞ is NaN and that
    of −0 is −0, where pow gives +∞ and 0.
    """
    found = np.power(x, y)
    half = y == 0.5
    if np.any(half):
        found = np.where(half & (np.isinf(x) | (x == 0)), np.abs(x), found)
    return found


def _reciprocal(x: Floats) -> Floats:
    return ONE / x


def _clip(x: Floats, low: Floats, high: Floats) -> Floats:
    return np.minimum(np.maximum(x, low), high)


def _where(condition: Floats, yes: Floats, no: Floats) -> Floats:
    return np.where(condition != 0, yes, no).astype(np.float32, copy=False)


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compared(a: Floats, b: Floats) -> Floats:
        return compare(a, b).astype(np.float32)

    return compared


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "negative": np.negative,
    "power": power, "minimum": np.minimum, "maximum": np.maximum, "abs": np.abs, "sqrt": np.sqrt,
    "square": np.square, "reciprocal": _reciprocal, "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "sign": np.sign, "relu": _relu, "sigmoid": _sigmoid, "gelu": _gelu,
    "silu": _silu, "softplus": _softplus, "erf": _erf,
    "clip": _clip, "where": _where,
    "less": _compared(np.less), "less_equal": _compared(np.less_equal), "greater": _compared(np.greater),
    "greater_equal": _compared(np.greater_equal), "equal": _compared(np.equal), "not_equal": _compared(np.not_equal),
}  # fmt: skip
