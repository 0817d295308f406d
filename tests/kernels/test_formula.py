"""Formulas: what parses to what, what is refused with its place, and that no text can do harm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moregpu_kernels.errors import BadFormula
from moregpu_kernels.formula import Call, Expression, Name, Number, names_of, parse
from moregpu_kernels.reference_formula import expect_formula


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7.0), ("(1 + 2) * 3", 9.0), ("2 ** 3 ** 2", 512.0), ("-2 ** 2", -4.0), ("2 ** -1", 0.5),
        ("10 - 4 - 3", 3.0), ("12 / 2 / 3", 2.0), ("--3", 3.0), ("1e3 + .5", 1000.5), ("2 < 3", 1.0), ("2 >= 3", 0.0),
        ("where(1 > 2, 10, 20)", 20.0), ("maximum(3, 4) - minimum(3, 4)", 1.0), ("pi", math.pi), ("sqrt(16)", 4.0),
    ],
)  # fmt: skip
def test_operators_bind_as_in_python(text: str, value: float):
    expected = expect_formula(parse(text), {}, "float32")
    assert abs(float(expected.value) - value) <= 1e-6 * max(1.0, abs(value))


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("x +", 3, "too early"), ("x ^ 2", 2, "no meaning"), ("foo(x)", 0, "Unknown function"),
        ("exp(x, 1)", 0, "takes 1"),
        ("exp", 0, "is a function"), ("x y", 2, "not expected"), ("(x", 2, "missing"),
        ("", 0, "empty"), ("x / 0", 4, "constant 0"),
        ("1 < x < 2", 6, "chain"), ("x.real", 1, "no meaning"), ("__import__('os')", 0, "Unknown function|no meaning"),
        ("x[0]", 1, "no meaning"), ("x; y", 1, "no meaning"), ("lambda: 1", 6, "no meaning"),
        ("clip(x, 0)", 0, "takes 3"),
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused_at_its_place(text: str, position: int, said: str):
    with pytest.raises(BadFormula, match=said) as caught:
        parse(text)
    if said not in ("empty", "Unknown function|no meaning"):
        assert caught.value.position == position


@pytest.mark.parametrize(
    "text", ["(" * 5000 + "x" + ")" * 5000, "-" * 9000 + "x", "2 ** " * 3000 + "x", "x + " * 3000, "x" * 20_000]
)
def test_a_huge_formula_is_refused_quickly(text: str):
    try:
        parse(text)
    except BadFormula:
        return
    assert text.startswith("-")  # a row of signs is one sign


@given(st.text(alphabet="xy01.+-*/()<>=, expsin", max_size=60))
def test_any_text_parses_or_is_refused_by_name(text: str):
    try:
        parse(text)
    except BadFormula as error:
        assert str(error)


def expressions() -> st.SearchStrategy[Expression]:
    leaves: st.SearchStrategy[Expression] = st.one_of(
        st.sampled_from([Name("x"), Name("y")]), st.sampled_from([Number(0.5), Number(-3.0), Number(1e30)])
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(
                lambda f, a: Call(f, (a,)), st.sampled_from(["exp", "sin", "tanh", "negative", "floor", "log"]), inner
            ),
            st.builds(
                lambda f, a, b: Call(f, (a, b)),
                st.sampled_from(["add", "multiply", "divide", "maximum", "less"]),
                inner,
                inner,
            ),
        ),
        max_leaves=8,
    )


@given(expressions())
def test_float32_arithmetic_stays_within_the_running_bound(expression: Expression):
    rng = np.random.default_rng(1)
    values = {name: (rng.standard_normal(50) * 3).astype(np.float32) for name in ("x", "y")}
    with np.errstate(all="ignore"):
        found = np.broadcast_to(_in_float32(expression, values), 50)
        expected = expect_formula(expression, {**values}, "float32")
        assert np.all(np.broadcast_to(expected.ratio(np.asarray(found)), 50) <= 1.0)


def _in_float32(expression: Expression, values: dict[str, np.ndarray]) -> np.ndarray:
    match expression:
        case Number(value):
            return np.asarray(np.float32(value))
        case Name(name):
            return values[name]
        case Call(function, arguments):
            compute = {"less": lambda a, b: np.less(a, b).astype(np.float32)}.get(function) or getattr(np, function)
            return np.asarray(compute(*(_in_float32(argument, values) for argument in arguments)), np.float32)


def test_an_error_shows_the_place_and_below_it_what_to_do():
    with pytest.raises(BadFormula) as caught:
        parse("x ^ 2")
    assert str(caught.value).splitlines()[1:] == ["    x ^ 2", "      ^", "Write powers as x ** 2"]


def test_names_come_in_the_order_of_their_appearance():
    assert names_of(parse("y * sin(x) + y + pi")) == ("y", "x")
