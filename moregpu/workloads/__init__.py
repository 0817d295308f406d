"""The kinds of jobs. Importing this loads only their `spec` modules; plan, run, check and combine load on first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, cast

from moregpu.errors import InvalidJob
from moregpu.workloads.function.spec import FunctionSpec
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu.workloads.protocol import Workload

JobSpec = KernelSpec | FunctionSpec
"""The union of all kinds. Decode with `msgspec`; the field `kind` tells them apart."""

KINDS: dict[str, str] = {"kernel": "moregpu.workloads.kernel", "function": "moregpu.workloads.function"}
"""Kind → package whose module `workload` holds `WORKLOAD`."""


@cache
def workload(kind: str) -> Workload[Any]:
    """Load the workload of a kind; raises `InvalidJob` for a kind that does not exist."""
    if kind not in KINDS:
        raise InvalidJob(f"there is no kind of job called {kind!r}", f"kinds: {', '.join(KINDS)}")
    return cast("Workload[Any]", import_module(KINDS[kind] + ".workload").WORKLOAD)


def kind_of(spec: JobSpec) -> str:
    """The kind of a spec: its tag."""
    return str(spec.__struct_config__.tag)
