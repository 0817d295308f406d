"""MoreGPU: idle GPUs and CPUs become one private compute pool.

    import moregpu

    with moregpu.connect() as pool:
        C = pool.matmul(A, B)

Everything loads on first use: `import moregpu` costs milliseconds and needs no NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moregpu.client.access import Access
    from moregpu.client.aio import AsyncPool, connect_async
    from moregpu.client.job import JobHandle, Part, Progress
    from moregpu.client.old import MoreGPU
    from moregpu.client.pool import Pool, connect
    from moregpu.errors import MoreGPUError
    from moregpu.workloads.kernel.spec import KernelSpec

__version__ = "2.0.0.dev0"

__all__ = [
    "Access",
    "AsyncPool",
    "JobHandle",
    "KernelSpec",
    "MoreGPU",
    "MoreGPUError",
    "Part",
    "Pool",
    "Progress",
    "__version__",
    "connect",
    "connect_async",
]

_HOMES = {
    "Access": "moregpu.client.access",
    "AsyncPool": "moregpu.client.aio",
    "JobHandle": "moregpu.client.job",
    "KernelSpec": "moregpu.workloads.kernel.spec",
    "MoreGPU": "moregpu.client.old",
    "MoreGPUError": "moregpu.errors",
    "Part": "moregpu.client.job",
    "Pool": "moregpu.client.pool",
    "Progress": "moregpu.client.job",
    "connect": "moregpu.client.pool",
    "connect_async": "moregpu.client.aio",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'moregpu' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
