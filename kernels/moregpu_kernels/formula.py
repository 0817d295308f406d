"""Formulas as people write them: text to a tree, with a parser of our own. Nothing is ever evaluated as Python.

`exp(-x*x) * sin(y)`, `where(x > 0, x, 0.1*x)`, `2 * pi * r`. Numbers, names, calls of known functions,
`+ - * / **`, comparisons (which give 1 or 0), parentheses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from moregpu_kernels.errors import BadFormula

TEXT_LIMIT: Final = 10_000
DEPTH_LIMIT: Final = 60
NODES_LIMIT: Final = 400

CONSTANTS: Final = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}

FUNCTIONS: Final[dict[str, int]] = {
    name: arity
    for arity, names in {
        1: "abs exp expm1 log log1p log2 log10 sqrt square reciprocal sin cos tan sinh cosh tanh sigmoid erf floor "
        "ceil round sign relu gelu silu softplus negative",
        2: "minimum maximum power add subtract multiply divide less less_equal greater greater_equal equal not_equal",
        3: "where clip",
    }.items()
    for name in names.split()
}
"""Every function and how many arguments it takes. Operators are functions too: `a + b` is `add(a, b)`."""


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A constant. 0 and −0 are two, for 1/(−0·x) is not 1/(0·x): what was made of one must not serve the other.

    NaN is equal to itself.
    """

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.value.hex() == other.value.hex()

    def __hash__(self) -> int:
        return hash(self.value.hex())


@dataclass(frozen=True, slots=True)
class Name:
    """An array or scalar that is given when the formula runs."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of other expressions."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Number | Name | Call


@lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """Parse a formula.

    Raises
    ------
    BadFormula
        With the position: unknown characters or functions, wrong numbers of arguments, a division by the constant 0,
        too long, too deep.

    """
    if len(text) > TEXT_LIMIT:
        raise BadFormula(f"A formula has at most {TEXT_LIMIT:,} characters, this one has {len(text):,}")
    expression = _Parser(text).formula()
    count = sum(1 for _ in walk(expression))
    if count > NODES_LIMIT:
        raise BadFormula(f"A formula has at most {NODES_LIMIT} parts, this one has {count}", hint="Compute it in steps")
    return expression


def walk(expression: Expression) -> Iterator[Expression]:
    """Every part of an expression, itself first. Without recursion: a long sum is as deep as it has terms."""
    left = [expression]
    while left:
        part = left.pop()
        yield part
        if isinstance(part, Call):
            left.extend(reversed(part.arguments))


def names_of(expression: Expression) -> tuple[str, ...]:
    """The names that a formula uses, in the order in which they first appear."""
    return tuple(dict.fromkeys(part.name for part in walk(expression) if isinstance(part, Name)))


def check_names(text: str, expression: Expression, given: Mapping[str, object]) -> None:
    """Raise BadFormula for a name that is not given, pointing at it."""
    for name in names_of(expression):
        if name not in given:
            found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
            known = ", ".join(given) or "none"
            raise BadFormula(
                f"Unknown name {name!r}",
                text,
                found.start() if found else 0,
                f"Given are: {known}; constants: pi, e, inf, nan",
            )


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """Put expressions in the place of names."""
    match expression:
        case Name(name):
            return values.get(name, expression)
        case Call(function, arguments):
            return Call(function, tuple(substitute(argument, values) for argument in arguments))
        case Number():
            return expression


# ---- the parser ----------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|<=|>=|==|!=|[-+*/<>(),]))",
    re.ASCII,
)
_COMPARISONS: Final = {
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal"
}  # fmt: skip


class _Parser:
    """Recursive descent: comparison, sum, product, sign, power, then numbers, names, calls and parentheses."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = list(self._tokens())
        self.index = 0
        self.depth = 0
        self.atoms = 0

    def formula(self) -> Expression:
        if not self.tokens:
            raise BadFormula("The formula is empty")
        expression = self._comparison()
        if self.index < len(self.tokens):
            raise self._error(f"{self._peek()!r} is not expected here")
        return expression

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            found = _TOKEN.match(self.text, position)
            if not found:
                at = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                hint = "Write powers as x ** 2" if self.text[at] == "^" else ""
                raise BadFormula(f"{self.text[at]!r} has no meaning in a formula", self.text, at, hint)
            kind = str(found.lastgroup)
            yield kind, found.group(kind), found.start(kind)
            position = found.end()

    def _comparison(self) -> Expression:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise self._error(f"The formula nests more than {DEPTH_LIMIT} deep")
        left = self._sum()
        if (sign := self._peek()) in _COMPARISONS:
            self.index += 1
            left = Call(_COMPARISONS[sign], (left, self._sum()))
            if self._peek() in _COMPARISONS:
                raise self._error("Comparisons do not chain: use where() or a product of two")
        self.depth -= 1
        return left

    def _sum(self) -> Expression:
        left = self._product()
        while (sign := self._peek()) in ("+", "-"):
            self.index += 1
            left = Call("add" if sign == "+" else "subtract", (left, self._product()))
        return left

    def _product(self) -> Expression:
        left = self._signed()
        while (sign := self._peek()) in ("*", "/"):
            self.index += 1
            at = self.index
            right = self._signed()
            if sign == "/" and isinstance(right, Number) and right.value == 0:
                raise self._error("This divides by the constant 0", at)
            left = Call("multiply" if sign == "*" else "divide", (left, right))
        return left

    def _signed(self) -> Expression:
        negative = False
        while (sign := self._peek()) in ("+", "-"):
            self.index += 1
            negative ^= sign == "-"
        value = self._power()
        if not negative:
            return value
        return Number(-value.value) if isinstance(value, Number) else Call("negative", (value,))

    def _power(self) -> Expression:
        base = self._atom()
        if self._peek() != "**":
            return base
        self.index += 1
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise self._error(f"The formula nests more than {DEPTH_LIMIT} deep")
        exponent = self._signed()
        self.depth -= 1
        return Call("power", (base, exponent))

    def _atom(self) -> Expression:
        if self.index >= len(self.tokens):
            raise BadFormula("The formula ends too early", self.text, len(self.text))
        kind, word, position = self.tokens[self.index]
        self.index += 1
        self.atoms += 1
        if self.atoms > NODES_LIMIT:  # no need to read on
            raise BadFormula(
                f"A formula has at most {NODES_LIMIT} parts, this one has more", hint="Compute it in steps"
            )
        if kind == "number":
            return Number(float(word))
        if kind == "name":
            if self._peek() == "(":
                return self._call(word, position)
            if word in FUNCTIONS:
                raise BadFormula(f"{word} is a function: write {word}(…)", self.text, position)
            return Number(CONSTANTS[word]) if word in CONSTANTS else Name(word)
        if word == "(":
            inner = self._comparison()
            self._expect(")")
            return inner
        raise self._error(f"{word!r} is not expected here", self.index - 1)

    def _call(self, function: str, position: int) -> Expression:
        if function not in FUNCTIONS:
            raise BadFormula(
                f"Unknown function {function!r}", self.text, position, f"Known are: {', '.join(sorted(FUNCTIONS))}"
            )
        self._expect("(")
        arguments: list[Expression] = []
        while self._peek() != ")":
            arguments.append(self._comparison())
            if self._peek() == ",":
                self.index += 1
            elif self._peek() != ")":
                raise self._error("Here ',' or ')' is missing")
        self._expect(")")
        if len(arguments) != FUNCTIONS[function]:
            raise BadFormula(
                f"{function} takes {FUNCTIONS[function]} argument(s), not {len(arguments)}", self.text, position
            )
        return Call(function, tuple(arguments))

    def _peek(self) -> str:
        return self.tokens[self.index][1] if self.index < len(self.tokens) else ""

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._error(f"Here {token!r} is missing")
        self.index += 1

    def _error(self, detail: str, index: int | None = None) -> BadFormula:
        at = self.index if index is None else index
        position = self.tokens[at][2] if at < len(self.tokens) else len(self.text)
        return BadFormula(detail, self.text, position)
