"""Which device gets what: real GPUs compute, software adapters only where they are asked for, the CPU always stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from moregpu_kernels.device import AdapterInfo, describe
from moregpu_kernels.errors import ProbeFailed

from moregpu.worker.adapters import Found, find_devices


def adapters(*named: tuple[str, str]) -> tuple[AdapterInfo, ...]:
    return describe(
        (
            {"device": name, "adapter_type": kind, "backend_type": "Vulkan", "device_id": 7, "description": "driver 1"},
            (),
            {"max-buffer-size": 1 << 31},
        )
        for name, kind in named
    )


REAL = ("NVIDIA GeForce RTX 3060", "DiscreteGPU")
SMALL = ("Intel UHD 620", "IntegratedGPU")
SOFTWARE = ("llvmpipe", "CPU")


def found(*named: tuple[str, str], there: bool = True, **asked: Any) -> Found:
    return find_devices(2, look=lambda: adapters(*named), has_graphics=lambda: there, **{"environment": {}, **asked})


def ids(found: Found) -> list[str]:
    return [device.id for device in found.devices]


def test_a_real_gpu_computes_and_the_cpu_stays() -> None:
    offered = found(REAL, SOFTWARE)
    assert ids(offered) == ["gpu0", "cpu"]
    gpu = offered.devices[0]
    assert (gpu.kind, gpu.engine, gpu.name, gpu.driver) == ("gpu", "wgpu", REAL[0], "Vulkan driver 1")
    assert offered.adapters == {"gpu0": "vulkan:nvidia-geforce-rtx-3060"}
    assert offered.told == "NVIDIA GeForce RTX 3060 and the CPU"


def test_several_gpus_are_several_devices_the_fastest_kind_first() -> None:
    offered = found(SMALL, REAL, REAL)
    assert ids(offered) == ["gpu0", "gpu1", "gpu2", "cpu"]
    assert offered.adapters["gpu0"].endswith("#0") and offered.adapters["gpu1"].endswith("#1")
    assert offered.devices[2].name == SMALL[0]


def test_a_software_adapter_is_left_out_with_the_reason() -> None:
    offered = found(SOFTWARE)
    assert ids(offered) == ["cpu"]
    assert "llvmpipe (software)" in offered.told and "NumPy is faster" in offered.told


@pytest.mark.parametrize(
    "asked",
    [{"engine": "gpu"}, {"adapter": "vulkan:llvm"}, {"environment": {"MOREGPU_SOFTWARE_GPU": "1"}}],
)
def test_a_software_adapter_that_is_asked_for_computes(asked: dict[str, Any]) -> None:
    offered = found(SOFTWARE, there=False, **asked)
    assert ids(offered) == ["gpu0", "cpu"]
    assert offered.devices[0].name == "llvmpipe (software)"


def test_beside_a_real_gpu_a_software_adapter_computes_only_where_it_is_named() -> None:
    assert len(found(REAL, SOFTWARE, engine="gpu").adapters) == 1
    assert len(found(REAL, SOFTWARE, environment={"MOREGPU_SOFTWARE_GPU": "1"}).adapters) == 2
    assert list(found(REAL, SOFTWARE, adapter="vulkan:llvm").adapters.values()) == ["vulkan:llvmpipe"]


def test_an_adapter_that_is_not_there_is_said_so() -> None:
    offered = found(REAL, adapter="metal:")
    assert ids(offered) == ["cpu"]
    assert "no adapter here is called metal:" in offered.told


def never(_reason: str) -> Callable[[], Sequence[AdapterInfo]]:
    def look() -> Sequence[AdapterInfo]:
        raise AssertionError(_reason)

    return look


def test_nobody_asks_the_drivers_where_no_gpu_can_be() -> None:
    look = never("the drivers were asked")
    assert find_devices(1, look=look, has_graphics=lambda: False, environment={}).told == "the CPU (no GPU here)"
    assert (
        find_devices(1, "cpu", look=look, has_graphics=lambda: True, environment={}).told == "the CPU alone, as asked"
    )


def test_drivers_that_crash_or_hang_leave_the_cpu_and_one_clear_line() -> None:
    def look() -> Sequence[AdapterInfo]:
        raise ProbeFailed("Listing the graphics adapters took longer than 30 s", "try `vulkaninfo`", "\x1b[31mnoise")

    offered = find_devices(1, look=look, has_graphics=lambda: True, environment={})
    assert ids(offered) == ["cpu"]
    assert offered.told == "the CPU (Listing the graphics adapters took longer than 30 s)"
