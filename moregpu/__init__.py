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
    from moregpu.client.job import JobHandle, Progress
    from moregpu.client.pool import Pool, connect
    from moregpu.errors import MoreGPUError
    from moregpu.workloads.kernel.spec import KernelSpec

__version__ = "2.0.0.dev0"

__all__ = ["Access", "JobHandle", "KernelSpec", "MoreGPUError", "Pool", "Progress", "__version__", "connect"]

_HOMES = {
    "Access": "moregpu.client.access",
    "JobHandle": "moregpu.client.job",
    "KernelSpec": "moregpu.workloads.kernel.spec",
    "MoreGPUError": "moregpu.errors",
    "Pool": "moregpu.client.pool",
    "Progress": "moregpu.client.job",
    "connect": "moregpu.client.pool",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'moregpu' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
