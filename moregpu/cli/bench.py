"""`moregpu bench`: what this pool gives this client, now."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, print_facts, print_json, seconds

TINY_ELEMENTS = 16


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What `moregpu bench --json` prints. Medians."""

    workers: int
    tiny_job_s: float
    tiny_job_p95_s: float
    product_size: int
    product_s: float  # data up, product down
    product_gflops: float
    benchmark_s: float  # the same size, the pool making the data
    checked: bool


def bench(
    size: Annotated[int, typer.Option(min=16, max=16384, help="Rows and columns of the product.")] = 1024,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Runs of each, of which the median counts.")] = 5,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Measure a tiny job, a product of your data, and a benchmark product, each checked and signed."""
    import numpy as np

    rng = np.random.default_rng(1)
    tiny = np.ones(TINY_ELEMENTS, np.float32)
    A, B = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    checked: list[bool] = []

    def benchmark() -> None:
        checked.append(pool.benchmark("matmul", size).wait().checked)

    with reach(profile) as pool:
        workers = pool.info().workers_online
        pool.relu(tiny)  # opens the connection
        small = sorted(_timed(lambda: pool.relu(tiny)) for _ in range(runs * 4))
        data = statistics.median(_timed(lambda: pool.matmul(A, B)) for _ in range(runs))
        own = statistics.median(_timed(benchmark) for _ in range(runs))
    found = Bench(
        workers=workers,
        tiny_job_s=statistics.median(small),
        tiny_job_p95_s=small[min(len(small) - 1, int(0.95 * len(small)))],
        product_size=size,
        product_s=data,
        product_gflops=2.0 * size**3 / data / 1e9,
        benchmark_s=own,
        checked=all(checked),
    )
    if as_json:
        print_json(found)
        return
    print_facts(
        [
            ("workers", found.workers),
            ("tiny job", f"{seconds(found.tiny_job_s)}, 95 % within {seconds(found.tiny_job_p95_s)}"),
            (f"{size} × {size}", f"{seconds(found.product_s)} with the data there and back"),
            ("", f"{found.product_gflops:.3g} GFLOP/s in all"),
            ("benchmark", f"{seconds(found.benchmark_s)} where the pool makes the data"),
            ("checked", "yes" if found.checked else "NO"),
        ]
    )


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
