"""The truth about a formula: its value in float64, and a running bound of what float32 arithmetic may be off.

Every part carries a value and the largest honest error; each operation adds its own rounding to what its arguments
bring. Where an argument's error crosses a step (a comparison, floor) or a pole, the bound covers both sides; where
nothing can be said (a division by less than the error) it is infinite and the element goes unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from moregpu_kernels.errors import BadFormula
from moregpu_kernels.evaluate import power
from moregpu_kernels.formula import Call, Expression, Name, Number
from moregpu_kernels.reference import FLOAT32_LIMIT, FLUSH, U32, Array, Expected, Floats

Pair = tuple[Floats, Floats]

UNITS: Final[dict[str, float]] = {
    "add": 1, "subtract": 1, "multiply": 1, "divide": 4, "reciprocal": 4, "square": 1, "sqrt": 4, "exp": 4, "expm1": 8,
    "log": 5, "log2": 6, "log10": 6, "log1p": 8, "sin": 4, "cos": 4, "tan": 16, "sinh": 16, "cosh": 16, "tanh": 8,
    "sigmoid": 10, "silu": 12, "gelu": 24, "erf": 8, "softplus": 12, "power": 8,
}  # fmt: skip
"""Roundoffs (of the result) that a function may add; the others add none. Measured: at most half of these."""

ABSOLUTE: Final = {"sin": 1.5e-7, "cos": 1.5e-7, "erf": 1.5e-7, "log1p": 1e-7, "softplus": 1e-7}
"""Absolute errors besides, for functions that pass 0 where their parts do not."""


def expect_formula(
    expression: Expression,
    values: Mapping[str, Array | float],
    dtype: str,
    errors: Mapping[str, Floats] | None = None,
) -> Expected:
    """Reference and bound of an expression; `values` are arrays (as stored) and scalars by name.

    `errors` are what some of the values may be off already.
    """
    with np.errstate(all="ignore"):
        known: dict[Expression, Pair] = {
            Name(name): (np.asarray(values[name], np.float64), error) for name, error in (errors or {}).items()
        }
        value, error = _walk(expression, values, known)
        value, error = np.broadcast_arrays(value, error)
        # Where nothing can be said everything is let through: a value of 0, a bound and a range without end.
        unknown = np.isinf(error) | np.isnan(error)
        value = np.where(unknown, 0.0, value)
        computed = np.where(np.isfinite(value), error + FLUSH, 0.0)
        stored = computed
        if dtype == "float16":
            stored = computed + 2.0**-11 * (np.abs(value) + computed) + 2.0**-25
        return Expected(
            value,
            np.where(unknown, np.finfo(np.float64).max, stored),
            np.where(unknown, 0.0, computed),
            np.where(unknown, np.inf, value),
            np.where(unknown, -np.inf, value),
            dtype,
        )


def _walk(part: Expression, values: Mapping[str, Array | float], known: dict[Expression, Pair]) -> Pair:
    if part in known:
        return known[part]
    match part:
        case Number(number):
            pair = (np.asarray(np.float64(np.float32(number))), np.zeros(()))
        case Name(name):
            given = values[name]
            exact = np.asarray(given if isinstance(given, np.ndarray) else np.float32(given), np.float64)
            # Subnormal inputs may be read as 0.
            pair = (exact, np.where(np.abs(exact) < FLUSH, np.abs(exact), 0.0))
        case Call(function, arguments):
            pairs = [_walk(argument, values, known) for argument in arguments]
            value, error = _rule(function)(*pairs)
            # Rounded is what there is, which may be larger than it is in truth: where a step was crossed, by far.
            there = np.abs(value) + np.where(np.isfinite(error), error, 0.0)
            own = UNITS.get(function, 0.0) * there * U32 + ABSOLUTE.get(function, 0.0)
            if function != "where":
                for _, brought in pairs:
                    error = np.where(np.isinf(brought), np.inf, error)
            # A 0 of exact arguments is exact; other results may be flushed to it.
            flushed = np.where((value == 0) & (error == 0), 0.0, FLUSH) if function in UNITS else 0.0
            error = error + np.where(np.isfinite(value), own, 0.0) + flushed
            # What leaves float32 is infinite from here on, as on the device; near the edge it is not known.
            edge = (np.abs(value) + error >= FLOAT32_LIMIT) & (np.abs(value) - error < FLOAT32_LIMIT)
            value = np.where(np.abs(value) >= FLOAT32_LIMIT, np.copysign(np.inf, value), value)
            pair = (value, np.where(edge & ~np.isnan(value), np.inf, error))
    known[part] = pair
    return pair


def _rule(function: str) -> Callable[..., Pair]:
    if function in _RULES:
        return _RULES[function]
    if function in _MONOTONE:
        return partial(_monotone, _MONOTONE[function])
    if function in _LIPSCHITZ:
        return partial(_lipschitz, *_LIPSCHITZ[function])
    if function in _COMPARISONS:
        return partial(_comparison, function)
    raise BadFormula(f"There is no reference for {function}")


def _lipschitz(slope: float, compute: Callable[[Floats], Floats], pair: Pair) -> Pair:
    """A function whose slope is bounded everywhere."""
    return compute(pair[0]), np.where(np.isfinite(pair[0]), slope * pair[1], pair[1])


def _monotone(compute: Callable[[Floats], Floats], pair: Pair) -> Pair:
    """A function that only rises or only falls errs least in the middle: both ends of the argument bound it."""
    value, error = pair
    middle = compute(value)
    high, low = compute(value + error), compute(value - error)
    away = np.maximum(_apart(high, middle), _apart(low, middle))
    return middle, np.where(error == 0, 0.0, away)


def _apart(a: Floats, b: Floats) -> Floats:
    """|a − b|, 0 where both are the same infinity or NaN, infinite where only one is."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.abs(a - b)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _add(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _subtract(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] + b[1]


def _multiply(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0], _finite(np.abs(a[0]) * b[1]) + _finite(np.abs(b[0]) * a[1]) + a[1] * b[1]


def _finite(error: Floats) -> Floats:
    """0·inf and inf·0 in a bound: the exact factor decides."""
    return np.where(np.isnan(error), 0.0, error)


def _divide(a: Pair, b: Pair) -> Pair:
    value = a[0] / b[0]
    room = np.abs(b[0]) - b[1]
    error = _finite((a[1] + np.abs(value) * b[1]) / np.where(room > 0, room, 1.0))
    # By an exact 0, all depends on the other's sign and whether it is 0: exp(-400)/0 is infinite in truth, and NaN in
    # float32, where it is 0/0.
    known = (b[0] == 0) & (b[1] == 0) & ((a[1] == 0) | (np.abs(a[0]) > a[1]))
    known |= np.isnan(a[0]) | np.isnan(b[0]) | (np.isinf(a[0]) & np.isinf(b[0]))
    return value, np.where((room > 0) | known, error, np.inf)


def _negative(a: Pair) -> Pair:
    return -a[0], a[1]


def _power(a: Pair, b: Pair) -> Pair:
    value = power(a[0], b[0])
    corners = [power(a[0] + i * a[1], b[0] + j * b[1]) for i in (-1, 1) for j in (-1, 1)]
    error = np.maximum.reduce([_apart(corner, value) for corner in corners])
    error = np.where((a[1] == 0) & (b[1] == 0), 0.0, error)
    # What the corners do not show: a negative number to a power that may be whole (else NaN), the pole of negative
    # powers at 0, and the two powers that NaN does not spoil, 1 to any and any to 0.
    hidden = (b[1] > 0) & (np.floor(b[0] + b[1]) >= np.ceil(b[0] - b[1])) & (a[0] < a[1])
    hidden |= (a[1] > 0) & (np.abs(a[0]) <= a[1]) & (b[0] < b[1])
    hidden |= np.isnan(a[0]) & (b[1] > 0) & (np.abs(b[0]) <= b[1])
    hidden |= np.isnan(b[0]) & (a[1] > 0) & (np.abs(a[0] - 1) <= a[1])
    error = np.where(hidden, np.inf, error)
    # exp(y·ln x): the logarithm's roundoffs come multiplied by y.
    grown = np.abs(b[0] * np.log(np.abs(a[0])))
    return value, error + np.where(np.isfinite(grown) & np.isfinite(value), 8 * grown * U32 * np.abs(value), 0.0)


def _minimum(a: Pair, b: Pair) -> Pair:
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _maximum(a: Pair, b: Pair) -> Pair:
    return np.maximum(a[0], b[0]), np.maximum(a[1], b[1])


def _clip(x: Pair, low: Pair, high: Pair) -> Pair:
    return _minimum(_maximum(x, low), high)


def _where(condition: Pair, yes: Pair, no: Pair) -> Pair:
    chosen = condition[0] != 0
    value = np.where(chosen, yes[0], no[0])
    error = np.where(chosen, yes[1], no[1])
    both = _apart(yes[0], no[0]) + yes[1] + no[1]
    return value, np.where(
        (condition[1] > 0) & ((np.abs(condition[0]) <= condition[1]) | (condition[1] >= 1)), both, error
    )


_COMPARISONS: Final[dict[str, Callable[[Floats, Floats], Any]]] = {
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "equal": np.equal, "not_equal": np.not_equal,
}  # fmt: skip


def _comparison(function: str, a: Pair, b: Pair) -> Pair:
    value = _COMPARISONS[function](a[0], b[0]).astype(np.float64)
    error = a[1] + b[1]
    return value, np.where((error > 0) & (np.abs(a[0] - b[0]) <= error), 1.0, 0.0)


def _tan(a: Pair) -> Pair:
    sine, cosine = _rule("sin")(a), _rule("cos")(a)
    own = ABSOLUTE["sin"]
    return _divide((sine[0], sine[1] + own), (cosine[0], cosine[1] + own))


def _cosh(a: Pair) -> Pair:
    size = np.abs(a[0])
    return np.cosh(size), _monotone(np.cosh, (size, a[1]))[1]


def _square(a: Pair) -> Pair:
    return _multiply(a, a)


def _reciprocal(a: Pair) -> Pair:
    return _divide((np.ones(()), np.zeros(())), a)


def _gelu(x: Floats) -> Floats:
    # (1 + tanh z)/2 = sigmoid(2z), which loses nothing where x is far below 0.
    return x * _sigmoid(2.0 * 0.7978845608028654 * (x + 0.044715 * x**3))


def _gelu_pair(a: Pair) -> Pair:
    """Its slope is at most 1.13; and roundoffs of 2z, the argument of its exponential, count |2z| times below 0."""
    x = a[0]
    value = _gelu(x)
    grown = np.where(x < 0, 2.0 * 0.7978845608028654 * (np.abs(x) + 0.044715 * np.abs(x) ** 3), 0.0)
    own = np.where(np.isfinite(value) & np.isfinite(grown), 6 * grown * U32 * np.abs(value) + np.abs(x) * FLUSH, 0.0)
    return value, np.where(np.isfinite(x), 1.13 * a[1], a[1]) + own


def _silu_pair(a: Pair) -> Pair:
    """Its slope is at most 1.1; its sigmoid may be flushed to 0 before it is multiplied."""
    value = a[0] * _sigmoid(a[0])
    return value, np.where(np.isfinite(a[0]), 1.1 * a[1] + np.abs(a[0]) * FLUSH, a[1])


def _sigmoid(x: Floats) -> Floats:
    return np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x)))


def _erf(x: Floats) -> Floats:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x) if x.size else x


_RULES: Final[dict[str, Callable[..., Pair]]] = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "negative": _negative,
    "power": _power,
    "minimum": _minimum, "maximum": _maximum, "clip": _clip, "where": _where, "tan": _tan, "cosh": _cosh,
    "square": _square, "reciprocal": _reciprocal, "gelu": _gelu_pair, "silu": _silu_pair,
}  # fmt: skip

_MONOTONE: Final[dict[str, Callable[[Floats], Floats]]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "sinh": np.sinh, "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf, "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "sign": np.sign,
}  # fmt: skip

_LIPSCHITZ: Final[dict[str, tuple[float, Callable[[Floats], Floats]]]] = {
    "abs": (1.0, np.abs), "sin": (1.0, np.sin), "cos": (1.0, np.cos), "relu": (1.0, lambda x: np.maximum(x, 0.0)),
    "softplus": (1.0, lambda x: np.logaddexp(x, 0.0)),
}  # fmt: skip
