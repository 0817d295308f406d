"""`python -m moregpu_kernels info | check | bench | tune`: what a person asks this machine's adapters."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from moregpu_kernels.cases import cases
from moregpu_kernels.device import open_device, probe
from moregpu_kernels.errors import KernelError
from moregpu_kernels.executor import Executor
from moregpu_kernels.layout import Request
from moregpu_kernels.plan import plan
from moregpu_kernels.reference_others import expect_any
from moregpu_kernels.tune import TuneCache, default_folder, sample, tune

Array = NDArray[Any]

BENCH_SIZES: Final = (256, 512, 1024)
BENCH_RUNS: Final = 5
LARGEST_SIZE: Final = 16_384
"""Each of a product's three matrices takes 1 GiB then."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 is well, 1 a wrong result, 2 an error that is said."""
    parser = argparse.ArgumentParser(
        prog="python -m moregpu_kernels", description="WGSL kernels on this machine's adapters"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    texts = {
        "info": "list the adapters",
        "check": "hold every operation against its float64 reference",
        "bench": "measure the main operations",
        "tune": "measure variants and keep the best for this device",
    }
    for name, text in texts.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--json", action="store_true", help="print JSON")
        if name != "info":
            command.add_argument("--device", help="an adapter's key, or its beginning (see info)")
        if name in ("bench", "tune"):
            command.add_argument(
                "--size", type=_side, action="append", help="square products of this size, and nothing else"
            )
    options = parser.parse_args(arguments)
    run: dict[str, Callable[[argparse.Namespace], int]] = {
        "info": _info,
        "check": _check,
        "bench": _bench,
        "tune": _tune,
    }
    try:
        return run[options.command](options)
    except KernelError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _info(options: argparse.Namespace) -> int:
    adapters = probe()
    rows: list[dict[str, Any]] = [
        {
            "key": a.key, "name": a.label, "kind": a.kind, "driver": a.driver, "backend": a.backend,
            "binding": a.limits.get("max-storage-buffer-binding-size", 0), "buffer": a.limits.get("max-buffer-size", 0),
            "features": [name for name in ("shader-f16", "subgroup", "timestamp-query") if name in a.features],
        }
        for a in adapters
    ]  # fmt: skip
    if options.json:
        _say(json.dumps({"adapters": rows}, indent=1))
        return 0
    if not rows:
        _say("No graphics adapter: kernels run on the CPU. See docs/gpu.md for drivers.")
    for row in rows:
        _say(f"{row['key']}\n  {row['name']} · {row['kind']} · {row['backend']} · {row['driver']}")
        _say(f"  binds {row['binding']:,} bytes, buffers of {row['buffer']:,} · {', '.join(row['features'])}")
        if row["kind"] == "software":
            _say("  a CPU that plays GPU: right, but NumPy is faster; used only where asked for")
    return 0


def _check(options: argparse.Namespace) -> int:
    executor = Executor(open_device(options.device))
    results: dict[str, float] = {}
    for case in cases(executor.device.traits):
        out = executor.apply(case.operation, case.arrays, case.parameters, variant=case.variant)
        ratio = expect_any(case.operation, case.arrays, case.parameters, case.dtype).ratio(out)
        worst = float(np.max(ratio, initial=0.0))
        results[case.name] = max(results.get(case.name, 0.0), worst)
    wrong = [name for name, worst in results.items() if not worst <= 1.0]
    if options.json:
        _say(json.dumps({"device": executor.device.info.label, "worst": results, "wrong": wrong}))
    else:
        _say(f"{executor.device.info.label}: largest |error| / bound of each operation; at most 1 is right")
        for name, worst in sorted(results.items()):
            _say(f"  {name:<42} {worst:8.3f}  {'ok' if worst <= 1.0 else 'WRONG'}")
    return 1 if wrong else 0


def _bench(options: argparse.Namespace) -> int:
    executor = _tuned_executor(options)
    results: list[dict[str, Any]] = []
    for request in _requests(options):
        planned = plan(request, executor.device.traits, executor.choices)
        arrays = sample(request)
        executor.apply(request.operation, arrays, request.parameters)
        times: list[float] = []
        for _ in range(BENCH_RUNS):
            started = time.perf_counter()
            executor.apply(request.operation, arrays, request.parameters)
            times.append(time.perf_counter() - started)
        seconds = float(np.median(times))
        results.append(
            {
                "name": _name(request), "variant": planned.variant, "ms": seconds * 1e3,
                "gflops": planned.flops / seconds / 1e9, "gbytes": planned.moved_bytes / seconds / 1e9,
            }
        )  # fmt: skip
    if options.json:
        _say(json.dumps({"device": executor.device.info.label, "results": results}))
        return 0
    _say(f"{executor.device.info.label}, with upload and download, medians of {BENCH_RUNS}")
    for row in results:
        _say(
            f"  {row['name']:<32} {row['variant']:<22} {row['ms']:9.2f} ms "
            f"{row['gflops']:8.2f} GFLOP/s {row['gbytes']:7.2f} GB/s"
        )
    return 0


def _tune(options: argparse.Namespace) -> int:
    executor = Executor(open_device(options.device))
    cache = TuneCache(default_folder(), executor.device.info.identity)
    chosen: dict[str, str] = {}
    for request in _requests(options):
        lines: list[str] = []
        best = tune(
            executor,
            cache,
            request,
            progress=lambda name, s, into=lines: into.append(f"    {name:<24} {s * 1e3:9.2f} ms"),
        )
        chosen[_name(request)] = best
        if not options.json:
            _say(f"  {_name(request)}: {best}\n" + "\n".join(lines))
    if options.json:
        _say(json.dumps({"device": executor.device.info.label, "choices": chosen, "folder": str(cache.folder)}))
    else:
        _say(f"{executor.device.info.label}: choices kept in {cache.folder}")
    return 0


def _tuned_executor(options: argparse.Namespace) -> Executor:
    device = open_device(options.device)
    return Executor(device, choices=TuneCache(default_folder(), device.info.identity).choices())


def _requests(options: argparse.Namespace) -> Iterator[Request]:
    for size in options.size or BENCH_SIZES:
        yield Request("matmul", {"a": (size, size), "b": (size, size)})
    if options.size:
        return
    yield Request("matmul", {"a": (4096, 1024), "b": (1024, 1)})
    yield Request("vector_add", {"a": (1 << 20,), "b": (1 << 20,)})
    yield Request("softmax", {"a": (4096, 128)})
    yield Request("layernorm", {"a": (1024, 768)})
    yield Request("gemv_q4_0", {"quants": (1024, 32 * 4), "scales": (1024, 32), "x": (1024,)})


def _side(text: str) -> int:
    """The side of a product's matrices; argparse says what is wrong with others."""
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= LARGEST_SIZE):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give a whole number from 1 to {LARGEST_SIZE:,}")
    return int(text)


def _name(request: Request) -> str:
    return f"{request.operation} " + " ".join("×".join(str(n) for n in shape) for shape in request.shapes.values())


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
