"""Who plays in the demo pool: machines, owners, jobs."""

from __future__ import annotations

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of machine."""

    host: str
    kind: str
    device: str
    driver: str
    system: str
    memory_bytes: int
    cores: int
    flops: float
    trip_s: float


def _gpu(host: str, device: str, gib: int, tflops: float, trip_ms: float, system: str, driver: str) -> Machine:
    return Machine(
        host=host, kind="gpu", device=device, driver=driver, system=system, memory_bytes=gib << 30, cores=0,
        flops=tflops * 1e12, trip_s=trip_ms / 1e3,
    )  # fmt: skip


def _cpu(host: str, device: str, cores: int, gflops: float, trip_ms: float, system: str) -> Machine:
    return Machine(
        host=host, kind="cpu", device=device, driver="", system=system, memory_bytes=cores << 31, cores=cores,
        flops=gflops * 1e9, trip_s=trip_ms / 1e3,
    )  # fmt: skip


MACHINES: tuple[Machine, ...] = (
    _gpu("workstation", "RTX 4090", 24, 9.1, 2.1, "Linux 6.12", "Vulkan 550.90"),
    _gpu("studio", "Apple M2 Ultra", 64, 6.2, 9.0, "macOS 15.1", "Metal 3"),
    _cpu("nas", "Ryzen 9 7950X", 16, 840, 1.4, "Debian 12"),
    _gpu("gaming", "RTX 3060", 12, 4.0, 14.0, "Windows 11", "D3D12 551.8"),
    _gpu("laptop", "Radeon 780M", 8, 1.6, 38.0, "Fedora 41", "Vulkan RADV 24"),
    _cpu("rack", "EPYC 7402", 24, 960, 6.0, "Debian 12"),
    _gpu("tower", "Arc A770", 16, 5.4, 22.0, "Ubuntu 24.04", "Vulkan 24.2"),
    _cpu("mini", "Intel N100", 4, 92, 65.0, "Alpine 3.20"),
    _gpu("render", "RTX 4070", 12, 6.8, 4.5, "Windows 11", "D3D12 551.8"),
    _cpu("office", "Core i7-13700", 16, 610, 120.0, "Windows 11"),
    _gpu("attic", "GTX 1080 Ti", 11, 3.1, 180.0, "Linux 6.8", "Vulkan 535.2"),
    _cpu("cottage", "Ryzen 5 5600G", 6, 310, 45.0, "Arch"),
)

OWNERS = ("anna", "ben", "chen", "dora", "emil", "fay", "gus")

JOBS: tuple[tuple[str, str, int, float], ...] = (
    ("embeddings", "matmul 16384 × 4096 × 4096, float16", 512, 42.0),
    ("attention scores", "softmax of 131072 rows of 128, float32", 64, 18.0),
    ("nightly benchmark", "matmul 8192 × 8192 × 8192, float32", 256, 55.0),
    ("", "layernorm of 65536 rows of 128, float32", 32, 9.0),
    ("needs an H100", "matmul 32768 × 32768 × 32768, float16", 4096, 400.0),
    ("activations", "gelu of 100,000,000, float32", 96, 14.0),
    ("covariance", "matmul 6000 × 50000 × 6000, float32", 188, 33.0),
    ("", "vector_add of 10,000,000, float32", 40, 6.0),
    ("residuals", "saxpy of 50,000,000, float32", 48, 8.0),
)
"""(name, summary, grains, seconds)."""

SCRIPT = ("sweep.py:train", "sweep.py:train, 48 calls", 48, 60.0)
"""A function that people run: it prints while it works."""

PRINTED = (
    "rate {rate:.4f}, layers {layers}: 20,000 rows from {source}",
    "epoch 1: loss {first:.4f}",
    "epoch 2: loss {second:.4f}",
    "epoch 3: loss {third:.4f}",
)
"""What each of its calls prints."""
