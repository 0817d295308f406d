"""Kernels that others write: one WGSL file whose front matter says what it computes, planned like our own.

The `[operation]` part of the front matter names the inputs in the order of the bindings (the output comes last), what
a slice runs along, how many workgroups it takes, and the values of its uniforms. A reference may be given as a formula
over inputs and parameters; then results are judged by the bound that the formula's own arithmetic has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from moregpu_kernels.errors import BadKernel, BadShape
from moregpu_kernels.formula import Expression, names_of, parse
from moregpu_kernels.layout import ITEM_BYTES, OUT, Dispatch, Plan, Request, Shape, Traits, part, row_slices
from moregpu_kernels.plan import OPERATIONS
from moregpu_kernels.reference import Array, Expected
from moregpu_kernels.reference_formula import expect_formula
from moregpu_kernels.template import Kernel, Value, evaluate, parse_kernel

Along = Literal["elements", "rows", "whole"]
Judge = Callable[[Mapping[str, Array], Mapping[str, Value], str], Expected]

_SIZES: Final = ("count", "rows", "columns")
"""What expressions call the sizes of a slice: a parameter of such a name would be lost."""

_KNOWN: Final = {"inputs", "along", "groups", "uniforms", "reference", "flops"}
_WHOLE: Final = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1)}
_SLICE_ELEMENTS: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class CustomOperation:
    """A registered kernel. `digest` names exactly this text; the output has the shape of the first input."""

    name: str
    digest: str
    kernel: Kernel
    inputs: tuple[str, ...]
    along: Along
    groups: str
    uniforms: tuple[str, ...]
    reference: Expression | None
    flops: float


class Catalogue:
    """Custom operations by name."""

    def __init__(self) -> None:
        self._operations: dict[str, CustomOperation] = {}
        self._judges: dict[str, Judge] = {}

    def __iter__(self) -> Iterator[CustomOperation]:
        return iter(self._operations.values())

    def __contains__(self, name: object) -> bool:
        return name in self._operations

    def register(self, text: str, judge: Judge | None = None, file: str = "kernel") -> CustomOperation:
        """Add a kernel's text. `judge` gives reference and bound where no formula can.

        Raises
        ------
        BadKernel
            The front matter does not describe an operation, the name is taken, or there is no way to check it.

        """
        operation = read_operation(text, file)
        refuse_unsound(operation)
        if operation.name in OPERATIONS:
            raise BadKernel(
                f"{operation.name!r} is an operation of the library itself", file=file, hint="Choose another name"
            )
        known = self._operations.get(operation.name)
        if known is not None and known.digest != operation.digest:
            raise BadKernel(
                f"Another kernel is registered as {operation.name!r}", file=file, hint="Choose another name"
            )
        if operation.reference is None and judge is None:
            raise BadKernel(
                f"{operation.name} has no reference to be checked against", file=file,
                hint='Give `reference = "formula"` in [operation], or a function',
            )  # fmt: skip
        self._operations[operation.name] = operation
        if judge is not None:
            self._judges[operation.name] = judge
        return operation

    def keep(self, name: str, operation: CustomOperation) -> None:
        """Know an operation under a name of the caller's choice, with no reference of its own."""
        self._operations[name] = operation

    def plan(self, request: Request, traits: Traits) -> Plan:
        """Plan a registered operation. Raises BadShape as `moregpu_kernels.plan.plan` does."""
        return plan_custom(self._operations[request.operation], request, traits)

    def expect(self, name: str, arrays: Mapping[str, Array], parameters: Mapping[str, Value], dtype: str) -> Expected:
        """Reference and bound of a registered operation."""
        if name in self._judges:
            return self._judges[name](arrays, parameters, dtype)
        reference = self._operations[name].reference
        if reference is None:
            raise BadKernel(f"{name} has no reference")
        scalars = {key: float(value) for key, value in parameters.items() if not isinstance(value, str)}
        return expect_formula(reference, {**scalars, **arrays}, dtype)


def read_operation(text: str, file: str = "kernel") -> CustomOperation:
    """Read a kernel's text and its `[operation]`. Raises BadKernel."""
    kernel = parse_kernel(text, file)
    said = dict(kernel.operation)
    unknown = set(said) - _KNOWN
    if unknown:
        raise BadKernel(f"[operation] has unknown entries {sorted(unknown)}", file=file)
    inputs = tuple(str(name) for name in said.get("inputs", ()))
    names = tuple(binding.name for binding in kernel.bindings)
    if not inputs or names != (*inputs, OUT):
        raise BadKernel(
            f"The bindings must be the inputs {list(inputs)} and then {OUT!r}, not {list(names)}", file=file
        )
    along = said.get("along", "elements")
    if along not in ("elements", "rows", "whole"):
        raise BadKernel(f"[operation] runs along {along!r}; known are elements, rows and whole", file=file)
    uniforms = tuple(str(value) for value in said.get("uniforms", (name for name, _ in kernel.uniforms)))
    if len(uniforms) != len(kernel.uniforms) or not isinstance(said.get("groups"), str):
        raise BadKernel("[operation] needs `groups`, and a value for each uniform", file=file)
    flops = said.get("flops", 1.0)
    if not (isinstance(flops, int | float) and 0.0 <= flops < math.inf):
        raise BadKernel(f"[operation] flops = {flops!r} is no number of operations for each element", file=file)
    reference = parse(str(said["reference"])) if "reference" in said else None
    return CustomOperation(
        kernel.name,
        kernel.digest,
        kernel,
        inputs,
        along,
        said["groups"],
        uniforms,
        reference,
        float(flops),
    )


def refuse_unsound(operation: CustomOperation) -> None:
    """Raise BadKernel for what reads well and computes something else, when a kernel is registered.

    Not when one is read: what was registered before may still be listed, removed and computed on CPUs.
    """
    kernel, reference = operation.kernel, operation.reference
    if kernel.options.get("vector", 4) not in (1, 4):
        said = kernel.options["vector"]
        raise BadKernel(f"[options] vector = {said!r}: a lane takes 1 element or 4", file=kernel.file)
    if taken := [name for name in _SIZES if reference is not None and name in names_of(reference)]:
        said = ", ".join(taken)
        raise BadKernel(f"{said} in the reference: sizes of what is computed are called so", file=kernel.file)


def plan_custom(operation: CustomOperation, request: Request, traits: Traits) -> Plan:
    """Plan a custom operation: slices along what it runs along, workgroups and uniforms by its expressions."""
    shape = request.shape(operation.inputs[0])
    for name in operation.inputs:
        request.shape(name)
    count, item = math.prod(shape), ITEM_BYTES[request.dtype]
    if count == 0:
        return Plan("custom", shape, request.dtype, ())
    rows, columns = (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
    widths = {"elements": (count, 1, _SLICE_ELEMENTS), "rows": (rows, columns, 1), "whole": (1, count, 1)}
    total, width, multiple = widths[operation.along]
    sliced = [name for name in operation.inputs if request.shapes[name] == shape]
    others = [name for name in operation.inputs if name not in sliced]
    if others and operation.along == "elements":
        raise BadShape(f"{operation.name} takes arrays of one shape, not {dict(request.shapes)}")
    dispatches: list[Dispatch] = []
    for first, last in row_slices(total, (width * item,), traits.limits, operation.name, multiple):
        scope: dict[str, Value] = {**operation.kernel.options, **request.parameters}
        scope |= dict(zip(_SIZES, ((last - first) * width, rows, columns), strict=True))
        if operation.along == "rows":
            scope["rows"] = last - first
        groups = _whole(operation, operation.groups, scope)
        uniforms = tuple(_number(operation, text, scope, kind) for text, (_, kind) in zip(
            operation.uniforms, operation.kernel.uniforms, strict=True))  # fmt: skip
        spans = tuple(
            part(name, first, last, width * item)
            if name in sliced
            else part(name, 0, math.prod(request.shapes[name]), item)
            for name in operation.inputs
        )
        spans = (*spans, part(OUT, first, last, width * item))
        work = (operation.flops + 4.0 * item * (len(sliced) + 1)) * (last - first) * width
        dispatches.append(Dispatch(operation.kernel, (("dtype", request.dtype),), spans, uniforms, groups, work))
    flops = operation.flops * count
    moved = float(item * count * (len(sliced) + 1))
    out_shape: Shape = shape
    return Plan("custom", out_shape, request.dtype, tuple(dispatches), (), flops, moved)


def _whole(operation: CustomOperation, text: str, scope: Mapping[str, Value]) -> int:
    value = evaluate(text, scope)
    if isinstance(value, str) or not 0 < int(value) < 2**32:
        raise BadKernel(f"{operation.name}: `groups` gives {value!r}", file=operation.kernel.file)
    return int(value)


def _number(operation: CustomOperation, text: str, scope: Mapping[str, Value], kind: str) -> int | float:
    value: Any = evaluate(text, scope)
    if isinstance(value, str):
        raise BadKernel(f"{operation.name}: the uniform {text!r} is no number", file=operation.kernel.file)
    if kind == "f32":
        return float(np.float32(value))
    least, most = _WHOLE[kind]
    if not least <= value <= most:
        raise BadKernel(f"{operation.name}: the uniform {text!r} is {value!r}, no {kind}", file=operation.kernel.file)
    return int(value)
