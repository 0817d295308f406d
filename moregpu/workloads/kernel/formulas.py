"""Formulas over arrays that broadcast: how their inputs lie under the output, and how a task gets its part of each.

A formula is cut along one line. Where every input is as large as the output or a single number, that is the line of all
elements; else the output's first axis, of which inputs that have it give the same rows, and the others go whole with
every task. No NumPy in here: intake and planning use it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from moregpu_kernels.errors import BadFormula
from moregpu_kernels.formula import Call, Expression, check_names, names_of, parse, walk
from moregpu_kernels.operations import Operation

from moregpu.errors import InvalidJob

FORMULA = "formula"
"""The operation's name."""

ARRAYS_LIMIT = 7
"""Arrays that a GPU binds to a kernel beside its output (single numbers are not counted)."""

NAME_LIMIT = 64
TEXT_LIMIT = 10_000
"""Bytes of a formula: it travels with every task."""
SHOWN = 80
"""Characters of a formula that an error shows."""

Shape = tuple[int, ...]


class FormulaForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a formula is cut. `rest` is the shape of the output behind the axis that is cut along."""

    rest: Shape
    operands: dict[str, Shape]  # each input's shape, as tasks see it
    cut: tuple[str, ...]  # inputs of which a task gets its rows; of the others it gets all
    flops: float

    @property
    def about(self) -> Operation:
        """As the named operations are described."""
        return Operation(FORMULA, "elements", tuple(self.operands), self.flops)

    def rows(self, shape: Shape) -> int:
        """How many steps there are to cut between, for an output of `shape`."""
        return math.prod(shape) // max(1, math.prod(self.rest)) if math.prod(shape) else 0

    def operand_shape(self, name: str, rows: int) -> Shape:
        """Shape of the part of an input, or of the output, that `rows` steps need."""
        if name in self.operands and name not in self.cut:
            return self.operands[name]
        return (rows, *(self.operands[name][1:] if name in self.operands else self.rest))


def expression_of(text: str) -> Expression:
    """Read a formula; raises `InvalidJob` that points at what is wrong."""
    if len(text.encode()) > TEXT_LIMIT:
        raise InvalidJob(f"a formula has at most {TEXT_LIMIT:,} bytes", "Compute it in steps")
    try:
        return parse(text)
    except BadFormula as error:
        raise _invalid(text, error) from None


def _invalid(text: str, error: BadFormula) -> InvalidJob:
    """In one line: what is wrong, where, and in what (a piece of it, where it is long)."""
    start = max(0, error.position - SHOWN // 2)
    piece = " ".join(text[start : start + SHOWN].split())
    shown = f"{'…' if start else ''}{piece}{'…' if start + SHOWN < len(text) else ''}"
    return InvalidJob(f"{error.detail.partition(chr(10))[0]} of the formula {shown}", error.hint)


def formula_form(text: str, shapes: Mapping[str, Shape]) -> tuple[FormulaForm, Shape]:
    """Work out how a formula over inputs of these shapes is cut, and the shape of its output.

    Raises `InvalidJob`: a text that is no formula, names that are not given or not used, shapes that do not broadcast,
    more arrays than a GPU binds.
    """
    expression = expression_of(text)
    try:
        check_names(text, expression, shapes)
    except BadFormula as error:
        raise _invalid(text, error) from None
    used = names_of(expression)
    unused = [name for name in shapes if name not in used]
    if unused:
        raise InvalidJob(f"the formula does not use {unused[0]!r}", "Leave that input out")
    if not used:
        raise InvalidJob("a formula of constants alone has nothing to compute", "Give it an input")
    long = [name for name in used if len(name) > NAME_LIMIT]
    if long:
        raise InvalidJob(f"the name {long[0][:NAME_LIMIT]}… is too long", f"Names have at most {NAME_LIMIT} characters")
    shape = _broadcast(shapes)
    count = math.prod(shape)
    arrays = [name for name in used if math.prod(shapes[name]) != 1]
    if len(arrays) > ARRAYS_LIMIT:
        raise InvalidJob(
            f"a formula takes at most {ARRAYS_LIMIT} arrays, this one has {len(arrays)}", "Compute it in two steps"
        )
    flops = float(max(1, sum(isinstance(part, Call) for part in walk(expression))))
    return _form(used, shapes, shape, count, flops), shape


def flat_form(names: tuple[str, ...], count: int) -> FormulaForm:
    """The form of arrays of one shape, `count` elements each."""
    return FormulaForm(rest=(), operands=dict.fromkeys(names, (count,)), cut=names, flops=1.0)


def _form(used: tuple[str, ...], shapes: Mapping[str, Shape], shape: Shape, count: int, flops: float) -> FormulaForm:
    # Single numbers stay so, unless all is one: then they are arrays of one element.
    single = {name for name in used if math.prod(shapes[name]) == 1 and count != 1}
    if count == 0 or all(name in single or math.prod(shapes[name]) == count for name in used):
        operands: dict[str, Shape] = {name: () if name in single else (math.prod(shapes[name]),) for name in used}
        return FormulaForm(rest=(), operands=operands, cut=tuple(n for n in used if n not in single), flops=flops)
    lead = next(axis for axis, length in enumerate(shape) if length != 1)
    inner = shape[lead:]
    operands = {name: () if name in single else _without_ones(shapes[name], len(inner)) for name in used}
    cut = tuple(name for name, own in operands.items() if len(own) == len(inner) and own[:1] == inner[:1])
    return FormulaForm(rest=inner[1:], operands=operands, cut=cut, flops=flops)


def _without_ones(shape: Shape, axes: int) -> Shape:
    """The last `axes` axes; those before have length 1, as the output's do."""
    return shape[-axes:] if len(shape) > axes else shape


def _broadcast(shapes: Mapping[str, Shape]) -> Shape:
    axes = max(len(shape) for shape in shapes.values())
    out: list[int] = []
    for axis in range(-axes, 0):
        lengths = {shape[axis] for shape in shapes.values() if len(shape) >= -axis} - {1}
        if len(lengths) > 1:
            told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise InvalidJob(f"these shapes do not broadcast together: {told}", "As in NumPy: equal lengths, or 1")
        out.append(lengths.pop() if lengths else 1)
    return tuple(out)
