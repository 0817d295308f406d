"""From a KernelSpec to the one shape that everything after it works with; refuses what cannot run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
from moregpu_kernels.operations import OPERATIONS, Operation

from moregpu.errors import InvalidJob, TooLarge
from moregpu.jobs import ITEM_BYTES, Blob, DType
from moregpu.workloads.kernel.custom import CUSTOM, numbers_of, read_kernel
from moregpu.workloads.kernel.formulas import FORMULA, FormulaForm, flat_form, formula_form

if TYPE_CHECKING:
    from moregpu.workloads.kernel.spec import KernelSpec

ELEMENTS_LIMIT = 10**12
"""No input and no output of a job may have this many elements."""

BENCHMARK_COLUMNS = 128
"""Columns of softmax and layernorm in benchmark mode."""

FLOAT32_MAX = (2 - 2**-23) * 2.0**127


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A job's arrays in the two axes that it is cut along.

    product: the output is rows × columns, the sums run over `inner`. rows: rows × columns, each row on its own.
    elements: `rows` elements in a line, columns 1. A row-major array of any shape is the same bytes as its flat form.
    """

    operation: str
    dtype: DType
    rows: int
    columns: int
    inner: int
    shape: tuple[int, ...]  # of the job's output
    benchmark: bool
    formula: FormulaForm | None = None

    @property
    def about(self) -> Operation:
        """What is known of the operation."""
        return OPERATIONS[self.operation] if self.formula is None else self.formula.about

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]

    def operand_shape(self, name: str, rows: int, columns: int) -> tuple[int, ...]:
        """Shape of the part of input `name` (or of the output) that a rows × columns part of the output needs."""
        if self.formula is not None:
            return self.formula.operand_shape(name, rows)
        if self.about.form == "elements":
            return (rows,)
        if self.about.form == "product" and name == "a":
            return (rows, self.inner)
        if self.about.form == "product" and name == "b":
            return (self.inner, columns)
        return (rows, columns)

    def tile_bytes(self, rows: int, columns: int) -> int:
        """Bytes of inputs and output of a rows × columns part of the output."""
        names = (*self.about.inputs, "out")
        return self.item_bytes * sum(math.prod(self.operand_shape(name, rows, columns)) for name in names)

    def tile_flops(self, rows: int, columns: int) -> float:
        """Float operations of such a part."""
        each = 2.0 * self.inner if self.about.form == "product" else self.about.flops
        return each * rows * columns

    def tile_amount(self, rows: int, columns: int) -> float:
        """Its cost in the unit that bounds the operation."""
        flops = self.about.bound_by == "flops"
        return self.tile_flops(rows, columns) if flops else float(self.tile_bytes(rows, columns))


_latest: tuple[KernelSpec | None, Form | None] = (None, None)
"""A job is validated, then planned: worked out once. Specs are never changed."""


def form_of(spec: KernelSpec) -> Form:
    """Work out the form of a job, in Python integers alone: nothing is allocated.

    Raises `InvalidJob` for shapes, dtypes or parameters that do not fit, `TooLarge` from 10¹² elements on.
    """
    global _latest
    known, form = _latest
    if known is not spec or form is None:
        form = _worked_out(spec)
        _latest = spec, form
    return form


def _worked_out(spec: KernelSpec) -> Form:
    about = OPERATIONS.get(spec.operation)
    if about is None and spec.operation not in (FORMULA, CUSTOM):
        raise InvalidJob(f"there is no kernel called {spec.operation!r}", f"Kernels: {', '.join(OPERATIONS)}, formula")
    if spec.operation != CUSTOM and (spec.kernel or spec.numbers or spec.source):
        raise InvalidJob(f"{spec.operation} names no registered kernel", 'Leave it out, or ask for "custom"')
    if spec.dtype not in ("float32", "float16"):
        raise InvalidJob(f"kernels do not compute in {spec.dtype}", "Convert the arrays to float32 or float16")
    if about is None:
        return _of_formula(spec) if spec.operation == FORMULA else _of_custom(spec)
    if spec.formula:
        raise InvalidJob(f"{spec.operation} takes no formula", 'Leave it out, or name the operation "formula"')
    if about.takes_scalar and not abs(spec.scalar) <= FLOAT32_MAX:
        raise InvalidJob(f"the scalar {spec.scalar!r} is not a finite float32", "Scale the array on your side")
    form = _of_inputs(spec, about) if spec.size is None else _of_size(spec, about, spec.size)
    sizes = [math.prod(form.operand_shape(name, form.rows, form.columns)) for name in (*about.inputs, "out")]
    if max(sizes) >= ELEMENTS_LIMIT:
        raise TooLarge(
            f"{spec.operation} would hold an array of {max(sizes):,} elements",
            f"Stay under {ELEMENTS_LIMIT:,}: split the job",
        )
    return form


def _of_size(spec: KernelSpec, about: Operation, size: int) -> Form:
    if spec.inputs:
        raise InvalidJob("a job has either `size` or `inputs`, not both", "Leave out `size` to compute on your arrays")
    if size < 0:
        raise InvalidJob(f"size is {size}", "It counts rows or elements: 0 or more")
    columns = {"product": size, "rows": BENCHMARK_COLUMNS, "elements": 1}[about.form]
    shape = (size,) if about.form == "elements" else (size, columns)
    inner = size if about.form == "product" else 0
    return Form(
        operation=spec.operation, dtype=spec.dtype, rows=size, columns=columns, inner=inner, shape=shape, benchmark=True
    )


def _of_inputs(spec: KernelSpec, about: Operation) -> Form:
    if set(spec.inputs) != set(about.inputs):
        names = " and ".join(about.inputs)
        found = ", ".join(sorted(spec.inputs)) or "none"
        raise InvalidJob(
            f"{spec.operation} takes {names}; inputs given: {found}",
            "Give exactly those, or `size` alone for a benchmark",
        )
    for name in about.inputs:
        _refuse_misfit(spec, name)
    a = spec.inputs["a"].shape
    if about.form == "product":
        b = spec.inputs["b"].shape
        if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
            raise InvalidJob(
                f"matmul of shapes {a} and {b} is not possible", "It takes (M, K) and (K, N): reshape vectors to 2 axes"
            )
        rows, columns, inner, shape = a[0], b[1], a[1], (a[0], b[1])
    elif about.form == "rows":
        if not a:
            raise InvalidJob(f"{spec.operation} works along the last axis; a has none", "Give at least one axis")
        rows, columns, inner, shape = math.prod(a[:-1]), a[-1], 0, a
    else:
        if "b" in about.inputs and spec.inputs["b"].shape != a:
            raise InvalidJob(
                f"{spec.operation} takes two arrays of one shape, not {a} and {spec.inputs['b'].shape}",
                "Broadcast the smaller one first",
            )
        rows, columns, inner, shape = math.prod(a), 1, 0, a
    return Form(
        operation=spec.operation,
        dtype=spec.dtype,
        rows=rows,
        columns=columns,
        inner=inner,
        shape=shape,
        benchmark=False,
    )


def _of_formula(spec: KernelSpec) -> Form:
    if spec.size is not None:
        raise InvalidJob("a formula has no benchmark", "Give its inputs instead of `size`")
    for name in spec.inputs:
        _refuse_misfit(spec, name)
    formula, shape = formula_form(spec.formula, {name: tensor.shape for name, tensor in spec.inputs.items()})
    if math.prod(shape) >= ELEMENTS_LIMIT:
        raise TooLarge(
            f"the formula would give an array of {math.prod(shape):,} elements",
            f"Stay under {ELEMENTS_LIMIT:,}: split the job",
        )
    return Form(
        operation=FORMULA,
        dtype=spec.dtype,
        rows=formula.rows(shape),
        columns=math.prod(formula.rest),
        inner=0,
        shape=shape,
        benchmark=False,
        formula=formula,
    )


def _of_custom(spec: KernelSpec) -> Form:
    if spec.size is not None or spec.formula:
        raise InvalidJob("a registered kernel takes inputs and numbers alone", "Leave out `size` and `formula`")
    registered = read_kernel(spec.source)
    numbers_of(registered, spec.numbers)
    if set(spec.inputs) != set(registered.inputs):
        names, found = (", ".join(sorted(each)) or "none" for each in (registered.inputs, spec.inputs))
        raise InvalidJob(f"{registered.name} takes the arrays {names}; given: {found}", "Give exactly those")
    for name in spec.inputs:
        _refuse_misfit(spec, name)
    shapes = {tensor.shape for tensor in spec.inputs.values()}
    if len(shapes) > 1:
        raise InvalidJob(f"{registered.name} takes arrays of one shape, not {sorted(shapes)}", "Broadcast them first")
    shape = shapes.pop()
    formula = flat_form(registered.inputs, math.prod(shape))
    return Form(
        operation=CUSTOM,
        dtype=spec.dtype,
        rows=math.prod(shape),
        columns=1,
        inner=0,
        shape=shape,
        benchmark=False,
        formula=formula,
    )


def _refuse_misfit(spec: KernelSpec, name: str) -> None:
    tensor = spec.inputs[name]
    if tensor.dtype != spec.dtype:
        raise InvalidJob(
            f"{name} is {tensor.dtype}, the job computes in {spec.dtype}", f"Convert {name} to {spec.dtype}"
        )
    if tensor.region is not None:
        raise InvalidJob(f"{name} names a region of a larger array", "Send that part as an array of its own")
    if any(length < 0 for length in tensor.shape):
        raise InvalidJob(f"{name} has shape {tensor.shape}", "Lengths are 0 or more")
    if math.prod(tensor.shape) >= ELEMENTS_LIMIT:
        raise TooLarge(f"{name} has {math.prod(tensor.shape):,} elements", f"Stay under {ELEMENTS_LIMIT:,}")
    held = tensor.data.size_bytes if isinstance(tensor.data, Blob) else len(tensor.data)
    if held != tensor.whole_bytes:
        raise InvalidJob(
            f"{name} holds {held:,} bytes; {tensor.dtype} of shape {tensor.shape} takes {tensor.whole_bytes:,}",
            "Shape, type and data must belong together",
        )
