"""What this machine offers to the pool."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import psutil

from moregpu.wire.messages import Device


def usable_cores() -> int:
    """Cores that this process may run on (containers and `taskset` lower it)."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def lent_cores(asked: int) -> int:
    """Cores to lend: what was asked, at most what there is; 0 = all but one, which stays with the owner."""
    there = usable_cores()
    return min(asked, there) if asked else max(1, there - 1)


def cpu_device(cores: int) -> Device:
    """The CPU, as far as it is lent. Half of the memory may be used."""
    return Device(
        id="cpu",
        kind="cpu",
        name=_cpu_name(),
        driver=f"numpy {metadata.version('numpy')}",
        engine="numpy",
        memory_bytes=psutil.virtual_memory().total // 2,
        cores=cores,
    )


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def system_text() -> str:
    """The system in a few words."""
    return f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}"


def machine_name() -> str:
    """The machine's name, without its domain."""
    return platform.node().partition(".")[0] or "worker"


def version() -> str:
    """Of MoreGPU."""
    return metadata.version("moregpu")
