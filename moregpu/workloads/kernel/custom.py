"""Kernels that an admin registered: WGSL for GPUs, and a formula that CPUs compute and results are judged by.

The kernel's text is data: its front matter names inputs, workgroups and the reference (`docs/kernels.md`). The
coordinator puts the registered text into a job; a task's program names it by its digest, and workers refuse any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from moregpu_kernels.catalogue import CustomOperation, plan_custom, read_operation, refuse_unsound
from moregpu_kernels.errors import BadFormula, KernelError
from moregpu_kernels.formula import names_of
from moregpu_kernels.layout import Request, Traits
from moregpu_kernels.operations import OPERATIONS

from moregpu.errors import InvalidJob
from moregpu.workloads.kernel.formulas import ARRAYS_LIMIT, FORMULA

CUSTOM = "custom"
"""The operation's name; a task's program is this, a colon, and the kernel's digest."""

SOURCE_LIMIT = 6_144
"""Bytes of a kernel's text: it travels with every task, its reference twice, beside 48 KiB of inline inputs in one
record."""

_TRIED = 1000
"""Elements of the work that a kernel is planned for when it is registered."""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel as it is registered: all that is needed to run and to check it."""

    name: str
    digest: str
    source: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]  # numbers that a job gives
    reference: str
    summary: str = ""


@lru_cache(maxsize=64)
def read_kernel(source: str) -> Registered:
    """Read a kernel's text; raises `InvalidJob` that names the line.

    It must run along elements, take at most seven arrays of one shape, and have a reference formula over its inputs
    and parameters.
    """
    size_bytes = len(source.encode())
    if size_bytes > SOURCE_LIMIT:
        raise InvalidJob(f"a kernel has at most {SOURCE_LIMIT:,} bytes, this one has {size_bytes:,}")
    try:
        operation = read_operation(source)
        return _checked(operation, source)
    except (KernelError, BadFormula) as error:
        raise InvalidJob(error.detail, error.hint) from None


def refuse_new(source: str) -> None:
    """Raise `InvalidJob` for a text that nobody should register any more: see `catalogue.refuse_unsound`."""
    try:
        refuse_unsound(read_operation(source))
    except (KernelError, BadFormula) as error:
        raise InvalidJob(error.detail, error.hint) from None


def _checked(operation: CustomOperation, source: str) -> Registered:
    if operation.name in OPERATIONS or operation.name in (FORMULA, CUSTOM):
        raise InvalidJob(f"{operation.name!r} is an operation of the pool itself", "Choose another name")
    if operation.reference is None:
        raise InvalidJob(
            f"{operation.name} has no reference to be checked against", 'Give `reference = "formula"` in [operation]'
        )
    if operation.along != "elements":
        raise InvalidJob(f"{operation.name} runs along {operation.along}", "On a pool kernels run along elements")
    if len(operation.inputs) > ARRAYS_LIMIT:
        raise InvalidJob(f"{operation.name} takes {len(operation.inputs)} arrays", f"At most {ARRAYS_LIMIT}")
    parameters = tuple(name for name in names_of(operation.reference) if name not in operation.inputs)
    # Planned once for a small array: what its expressions name must be there.
    shapes = dict.fromkeys(operation.inputs, (_TRIED,))
    plan_custom(operation, Request(operation.name, shapes, "float32", dict.fromkeys(parameters, 1.0)), Traits())
    return Registered(
        name=operation.name,
        digest=operation.digest,
        source=source,
        inputs=operation.inputs,
        parameters=parameters,
        reference=str(operation.kernel.operation["reference"]),
        summary=operation.kernel.summary,
    )


def numbers_of(registered: Registered, given: Mapping[str, float]) -> dict[str, float]:
    """The numbers that a job gives, exactly those that the kernel takes. Raises `InvalidJob`."""
    if set(given) != set(registered.parameters):
        wanted, found = (", ".join(sorted(names)) or "none" for names in (registered.parameters, given))
        raise InvalidJob(f"{registered.name} takes the numbers {wanted}; given: {found}", "Give exactly those")
    return {name: float(given[name]) for name in registered.parameters}
