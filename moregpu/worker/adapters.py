"""Which devices this machine offers: its graphics adapters, found by a process of their own, and its CPU.

A real GPU computes through wgpu. A software adapter (llvmpipe, SwiftShader, WARP) would only be a slower way to the
same cores, so it is left out unless it is asked for. Nothing of a driver is ever loaded into the agent.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from moregpu.wire.messages import Device
from moregpu.wire.text import clean
from moregpu.worker.devices import cpu_device

if TYPE_CHECKING:
    from moregpu_kernels.device import AdapterInfo

_log = logging.getLogger(__name__)

SOFTWARE_VARIABLE = "MOREGPU_SOFTWARE_GPU"
"""1: software adapters count as GPUs, for tests and for the curious."""

EngineChoice = Literal["auto", "gpu", "cpu"]

_NODES = ("/dev/dri", "/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/mali0", "/dev/nvhost-gpu")
"""One of these is there wherever Linux has a GPU; where none is, nobody needs to ask the drivers (a second or two)."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What computes here. `adapters` names the adapter of each GPU by the device's id; `told` says it in a line."""

    devices: tuple[Device, ...]
    adapters: dict[str, str] = {}
    told: str = ""


def find_devices(
    cores: int,
    engine: EngineChoice = "auto",
    adapter: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    look: Callable[[], Sequence[AdapterInfo]] | None = None,
    has_graphics: Callable[[], bool] | None = None,
) -> Found:
    """Find the devices; GPUs first, the CPU always last. Takes a second or two where a GPU may be; never raises.

    Args:
        cores: CPU cores that are lent.
        engine: "cpu" looks for no GPU; "gpu" takes a software adapter, too, where there is no real one.
        adapter: only adapters whose key begins so (`python -m moregpu_kernels info` lists them), software too.
        environment: may hold MOREGPU_SOFTWARE_GPU.
        look: lists the adapters, in a process of its own (`moregpu_kernels.device.probe`). May raise `ProbeFailed`.
        has_graphics: whether a GPU may be here at all.
    """
    cpu = cpu_device(cores)
    software = environment.get(SOFTWARE_VARIABLE, "").lower() in ("1", "on", "true", "yes")
    is_asked = software or engine == "gpu" or bool(adapter)
    if engine == "cpu":
        return Found(devices=(cpu,), told="the CPU alone, as asked")
    if not is_asked and not (has_graphics or _has_graphics)():
        return Found(devices=(cpu,), told="the CPU (no GPU here)")
    if look is None and importlib.util.find_spec("wgpu") is None:
        return Found(devices=(cpu,), told="the CPU (for GPUs: pip install 'moregpu[gpu]')")
    # Not before: most agents never see a GPU, and these modules would stay in their memory for nothing.
    from moregpu_kernels.device import probe
    from moregpu_kernels.errors import ProbeFailed

    try:
        there = [info for info in (look or probe)() if info.key.startswith(adapter)]
    except ProbeFailed as error:
        _log.warning("no GPU: %s. %s %s", error.detail, error.hint, clean(error.output, 500))
        return Found(devices=(cpu,), told=f"the CPU ({clean(error.detail, 200)})")
    real = [info for info in there if not info.is_software]
    chosen = there if software or adapter else real or (there if is_asked else [])
    if not chosen:
        return Found(devices=(cpu,), told=f"the CPU ({_why_none(there, adapter)})")
    gpus = tuple(_gpu_device(number, info) for number, info in enumerate(chosen))
    names = ", ".join(device.name for device in gpus)
    return Found(
        devices=(*gpus, cpu),
        adapters={device.id: info.key for device, info in zip(gpus, chosen, strict=True)},
        told=f"{names} and the CPU",
    )


def _gpu_device(number: int, info: AdapterInfo) -> Device:
    from moregpu_kernels.device import default_budget_bytes

    return Device(
        id=f"gpu{number}",
        kind="gpu",
        name=clean(info.label, 200),
        driver=clean(f"{info.backend} {info.driver}".strip(), 200),
        engine="wgpu",
        memory_bytes=default_budget_bytes(info),
    )


def _why_none(there: Sequence[AdapterInfo], adapter: str) -> str:
    if there:
        return f"only {clean(there[0].label, 100)} draws here, and NumPy is faster on the same cores"
    return f"no adapter here is called {adapter}" if adapter else "no graphics adapter found"


def _has_graphics() -> bool:
    return not sys.platform.startswith("linux") or any(Path(node).exists() for node in _NODES)
