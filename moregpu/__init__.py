"""MoreGPU: idle GPUs and CPUs become one private compute pool.

    import moregpu

    with moregpu.connect() as pool:
        C = pool.matmul(A, B)
        squares = list(pool.map(lambda x: x * x, range(1000)))

Everything loads on first use: `import moregpu` costs milliseconds and needs no NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moregpu.client.access import Access
    from moregpu.client.aio import AsyncPool, connect_async
    from moregpu.client.functions.accelerate import accelerate
    from moregpu.client.functions.distributing import results_to_dataframe
    from moregpu.client.functions.joblib_backend import register_joblib
    from moregpu.client.functions.jupyter import load_ipython_extension
    from moregpu.client.functions.shared import Shared
    from moregpu.client.functions.started import add_worker, start_coordinator
    from moregpu.client.job import JobHandle, Part, Progress
    from moregpu.client.old import MoreGPU
    from moregpu.client.pool import Pool, connect
    from moregpu.encoding.failures import RemoteError
    from moregpu.errors import MoreGPUError
    from moregpu.workloads.function.spec import FunctionSpec
    from moregpu.workloads.kernel.spec import KERNELS, KernelSpec

__version__ = "2.0.0.dev0"

__all__ = [
    "KERNELS",
    "Access",
    "AsyncPool",
    "FunctionSpec",
    "JobHandle",
    "KernelSpec",
    "MoreGPU",
    "MoreGPUError",
    "Part",
    "Pool",
    "Progress",
    "RemoteError",
    "Shared",
    "__version__",
    "accelerate",
    "add_worker",
    "connect",
    "connect_async",
    "load_ipython_extension",
    "register_joblib",
    "results_to_dataframe",
    "start_coordinator",
]

_HOMES = {
    "Access": "moregpu.client.access",
    "AsyncPool": "moregpu.client.aio",
    "FunctionSpec": "moregpu.workloads.function.spec",
    "JobHandle": "moregpu.client.job",
    "KERNELS": "moregpu.workloads.kernel.spec",
    "KernelSpec": "moregpu.workloads.kernel.spec",
    "MoreGPU": "moregpu.client.old",
    "MoreGPUError": "moregpu.errors",
    "Part": "moregpu.client.job",
    "Pool": "moregpu.client.pool",
    "Progress": "moregpu.client.job",
    "RemoteError": "moregpu.encoding.failures",
    "Shared": "moregpu.client.functions.shared",
    "accelerate": "moregpu.client.functions.accelerate",
    "add_worker": "moregpu.client.functions.started",
    "connect": "moregpu.client.pool",
    "connect_async": "moregpu.client.aio",
    "load_ipython_extension": "moregpu.client.functions.jupyter",
    "register_joblib": "moregpu.client.functions.joblib_backend",
    "results_to_dataframe": "moregpu.client.functions.distributing",
    "start_coordinator": "moregpu.client.functions.started",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'moregpu' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
