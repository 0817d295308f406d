"""Formulas and chains of elementwise operations become one generated kernel each.

Memory decides how long elementwise work takes: five operations fused read and write once instead of five times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from moregpu_kernels.errors import BadFormula
from moregpu_kernels.evaluate import evaluate
from moregpu_kernels.formula import Call, Expression, Name, Number, names_of, parse, substitute, walk
from moregpu_kernels.template import Kernel, parse_kernel

ARRAYS_LIMIT: Final = 7
"""A device binds at least eight storage buffers to a kernel; one is the output."""
FUSED_NODES_LIMIT: Final = 200

FORMULAS: Final[dict[str, str]] = {
    "vector_add": "a + b",
    "vector_sub": "a - b",
    "vector_mul": "a * b",
    "vector_div": "a / b",
    "saxpy": "scalar * a + b",
    "scale": "scalar * a",
    "relu": "relu(a)",
    "gelu": "gelu(a)",
    "silu": "silu(a)",
    "sigmoid": "sigmoid(a)",
    "tanh": "tanh(a)",
    "exp": "exp(a)",
    "sqrt": "sqrt(a)",
}
"""The named elementwise operations, as formulas over their inputs; `scalar` is a parameter."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How an input lies under the output: `full`, `scalar` (a uniform), or strides per output axis, in elements."""

    kind: str  # full, scalar or strided
    strides: tuple[int, ...] = ()


@lru_cache(maxsize=512)
def elementwise_kernel(expression: Expression, inputs: tuple[tuple[str, Layout], ...], axes: int) -> Kernel:
    """Generate the kernel of an expression.

    `inputs` name every array and scalar that it uses; `axes` is the number of the output's axes where one is strided.

    Raises
    ------
    BadFormula
        More than seven arrays.

    """
    arrays = [name for name, layout in inputs if layout.kind != "scalar"]
    if len(arrays) > ARRAYS_LIMIT:
        raise BadFormula(
            f"A formula takes at most {ARRAYS_LIMIT} arrays, this one has {len(arrays)}", hint="Compute it in two steps"
        )
    is_strided = any(layout.kind == "strided" for _, layout in inputs)
    uniforms = ["count: u32", *(f"s_{name}: f32" for name, layout in inputs if layout.kind == "scalar")]
    if is_strided:
        uniforms += [f"size_{axis}: u32" for axis in range(axes)]
        uniforms += [
            f"stride_{name}_{axis}: u32" for name, ly in inputs if ly.kind == "strided" for axis in range(axes)
        ]
    bindings = [*(f"a_{name}: read tensor" for name in arrays), "out: write tensor if not wide"]
    bindings.append("out: write tensor//float32 if wide")
    lines = [
        'name = "elementwise"',
        'summary = "generated"',
        f"bindings = {_toml(bindings)}",
        f"uniforms = {_toml(uniforms)}",
        "[options]",
        f"vector = {1 if is_strided else 4}",
        "wide = false",
    ]
    body = ["#include number", "#include functions", _MAIN]
    if is_strided:
        body.append("  if i >= u.count { return; }")
        body.append("  var rest = i;")
        for axis in reversed(range(axes)):
            body.append(f"  let x_{axis} = rest % u.size_{axis};")
            body.append(f"  rest = rest / u.size_{axis};")
    else:
        body.append("  if i >= (u.count + 3u) / 4u { return; }")
    for name, layout in inputs:
        if layout.kind == "scalar":
            body.append(f"  let v_{name} = {{{{T}}}}(u.s_{name});")
        elif layout.kind == "full":
            body.append(f"  let v_{name} = load_a_{name}(i);")
        else:
            place = " + ".join(f"x_{axis} * u.stride_{name}_{axis}" for axis in range(axes)) or "0u"
            body.append(f"  let v_{name} = load_a_{name}({place});")
    code, result = write_expression(_folded(expression))
    body += [f"  {line}" for line in code]
    body += [f"  store_out(i, {result});", "}"]
    return parse_kernel("\n".join([*(f"//! {line}" for line in lines), *body]), "generated from a formula")


_MAIN: Final = """#entry 64
  let i = group * 64u + lane;"""


def write_expression(expression: Expression) -> tuple[list[str], str]:
    """WGSL statements that compute an expression over values `v_NAME`, each part once, and the result's name."""
    lines: list[str] = []
    known: dict[Expression, str] = {}

    def value(part: Expression) -> str:
        if part not in known:
            match part:
                case Number(number):
                    known[part] = _literal(number)
                case Name(name):
                    known[part] = f"v_{name}"
                case Call(function, arguments):
                    text = _call(function, arguments, value)
                    # Drivers reassociate sums and products across steps; the reference and its bound do not.
                    if function in _INFIX and part != expression:
                        text = f"opaque({text})"
                    known[part] = f"t_{len(lines)}"
                    lines.append(f"let t_{len(lines)} = {text};")
        return known[part]

    result = value(expression)
    return lines, result


def _folded(expression: Expression) -> Expression:
    """The expression with parts that hold constants alone computed, and constants rounded to float32.

    WGSL refuses a constant part that overflows, and drivers fold what is left of it by rules of their own.
    """
    match expression:
        case Number(number):
            return Number(float(np.float32(number)))
        case Call(function, arguments):
            folded = Call(function, tuple(_folded(part) for part in arguments))
            if all(isinstance(part, Number) for part in folded.arguments):
                return Number(float(evaluate(folded, {})))
            return folded
        case Name():
            return expression


_INFIX: Final = {"add": "+", "subtract": "-", "multiply": "*"}
_SWAPPED: Final = {"greater": "less", "greater_equal": "less_equal"}
_RENAMED: Final = {
    name: f"{name}_"
    for name in "exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh erf sign where".split()  # noqa: SIM905
} | {"sqrt": "square_root"}  # fmt: skip
_POWERS_LIMIT: Final = 16


def _call(function: str, arguments: tuple[Expression, ...], value: Callable[[Expression], str]) -> str:
    if function == "power" and isinstance(arguments[1], Number):
        exponent = arguments[1].value
        if exponent == 0.5:
            base = value(arguments[0])
            return f"select(square_root({base}), abs({base}), is_inf({base}) | is_zero({base}))"
        if exponent.is_integer() and 1 <= abs(exponent) <= _POWERS_LIMIT:
            product = _repeated(value(arguments[0]), int(abs(exponent)))
            return product if exponent > 0 else f"reciprocal({product})"
    texts = [value(argument) for argument in arguments]
    if function in _INFIX:
        # x - x is not 0, and 0 · x is not 0, where x is infinite or NaN, nor is 0 + x the same as x where x is -0: hide
        # it from drivers that think so.
        texts = [
            f"opaque({text})" if isinstance(part, Number) and part.value == 0 else text
            for part, text in zip(arguments, texts, strict=True)
        ]
        if arguments[0] == arguments[1]:
            texts[1] = f"opaque({texts[1]})"
        return f"{texts[0]} {_INFIX[function]} {texts[1]}"
    match function:
        case "negative":
            return f"-{texts[0]}"
        case "square":
            return f"{texts[0]} * {texts[0]}"
        case "abs":
            return f"abs({texts[0]})"
        case "floor" | "ceil" | "round":
            return f"keep_nan({function}({texts[0]}), {texts[0]})"
        case "greater" | "greater_equal":
            return f"{_SWAPPED[function]}({texts[1]}, {texts[0]})"
        case _:
            return f"{_RENAMED.get(function, function)}({', '.join(texts)})"


def _repeated(text: str, exponent: int) -> str:
    """X to a whole power by squaring, in an order that is fixed."""
    if exponent == 1:
        return text
    half = _repeated(text, exponent // 2)
    squared = f"({half} * {half})"
    return squared if exponent % 2 == 0 else f"({squared} * {text})"


def _literal(number: float) -> str:
    """A constant as WGSL, rounded to float32 here so that reference and kernel use the same."""
    rounded = float(np.float32(number))
    if math.isnan(rounded):
        return "{{T}}(u.nan)"
    if math.isinf(rounded):
        return "{{T}}(u.infinity)" if rounded > 0 else "{{T}}(-u.infinity)"
    if rounded == 0 and math.copysign(1.0, rounded) < 0:
        return "copy_sign({{T}}(0.0), {{T}}(-1.0))"  # a literal's sign gets lost on the way to some drivers
    return f"{{{{T}}}}({rounded!r})"


def _toml(texts: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"


# ---- chains --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a run, on named tensors.

    `inputs` maps the operation's input names to tensors, `parameters` holds `scalar`, `epilogue`, `epsilon`, and for
    `formula` its `text` (names of the text are inputs) and scalars by name. `expression` is set where it was fused.
    """

    operation: str
    inputs: Mapping[str, str]
    output: str
    parameters: Mapping[str, int | float | str | bool]
    expression: Expression | None = None
    key: StepKey = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inputs = tuple(self.inputs.items())
        # By their digits: 0.0 == -0.0, and no NaN is equal to any.
        parameters = tuple([(n, v.hex() if isinstance(v, float) else v) for n, v in self.parameters.items()])
        object.__setattr__(self, "key", StepKey((self.operation, inputs, self.output, parameters, self.expression)))


class StepKey:
    """All of a step, to look up what was compiled. Its hash is computed once: each run looks up all of its steps."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[Hashable, ...]):
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, StepKey) and self._parts == other._parts)


def step(operation: str, inputs: Mapping[str, str], output: str, **parameters: int | float | str | bool) -> Step:
    """Describe one operation of a run."""
    return Step(operation, dict(inputs), output, parameters)


def expression_of(operation: str, parameters: Mapping[str, int | float | str | bool]) -> Expression | None:
    """The expression of an elementwise operation over its own input names; None for the others."""
    if operation == "formula":
        return parse(str(parameters.get("text", "")))
    return parse(FORMULAS[operation]) if operation in FORMULAS else None


def fuse(steps: Sequence[Step], outputs: Iterable[str], shapes: Mapping[str, tuple[int, ...]]) -> list[Step]:
    """Join elementwise steps whose result only the next elementwise step of the same shape reads.

    `shapes` are those of all tensors, results too. Order and results stay as they were, but for intermediate rounding
    to float16, which a fused chain does not do.
    """
    kept = set(outputs)
    readers: dict[str, int] = {}
    for one in steps:
        for tensor in one.inputs.values():
            readers[tensor] = readers.get(tensor, 0) + 1
    pending: dict[str, Step] = {}
    done: list[Step] = []
    for one in steps:
        expression = one.expression or expression_of(one.operation, one.parameters)
        if expression is None:
            done.append(one)
            continue
        merged = _as_fused(one, expression)
        for name, tensor in list(merged.inputs.items()):
            source = pending.get(tensor)
            if source is None or shapes[source.output] != shapes[one.output]:
                continue
            joined = _join(merged, name, source)
            if joined is not None:
                merged = joined
                done = [each for each in done if each is not source]
                del pending[tensor]
        done.append(merged)
        if readers.get(merged.output, 0) == 1 and merged.output not in kept:
            pending[merged.output] = merged
    return done


def _as_fused(one: Step, expression: Expression) -> Step:
    """Rename an expression's names to the tensors they stand for, and its scalars to values."""
    values: dict[str, Expression] = {}
    inputs: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in names_of(expression):
        if name in one.inputs:
            tensor = one.inputs[name]
            alias = taken.setdefault(tensor, f"x{len(taken)}")
            values[name] = Name(alias)
            inputs[alias] = tensor
        elif name in one.parameters:
            values[name] = Name(f"p{len(values)}_{name}")
    parameters = {
        part.name: one.parameters[name]
        for name, part in values.items()
        if isinstance(part, Name) and name in one.parameters and name not in one.inputs
    }
    return Step("fused", inputs, one.output, parameters, substitute(expression, values))


def _join(merged: Step, name: str, source: Step) -> Step | None:
    """Put `source` in the place of the input `name`; None where the result would be too large."""
    if merged.expression is None or source.expression is None:
        return None
    inputs = {alias: tensor for alias, tensor in merged.inputs.items() if alias != name}
    alias_of = {tensor: alias for alias, tensor in inputs.items()}
    values: dict[str, Expression] = {}
    parameters = dict(merged.parameters)
    free = iter(f"x{number}" for number in range(1000) if f"x{number}" not in merged.inputs)
    for alias, tensor in source.inputs.items():
        target = alias_of.get(tensor)
        if target is None:
            target = alias_of[tensor] = next(free)
            inputs[target] = tensor
        values[alias] = Name(target)
    for number, (key, value) in enumerate(source.parameters.items()):
        fresh = f"q{len(parameters)}_{number}"
        parameters[fresh] = value
        values[key] = Name(fresh)
    expression = substitute(merged.expression, {name: substitute(source.expression, values)})
    if len(inputs) > ARRAYS_LIMIT or sum(1 for _ in walk(expression)) > FUSED_NODES_LIMIT:
        return None
    return Step("fused", inputs, merged.output, parameters, expression)
