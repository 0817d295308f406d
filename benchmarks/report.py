"""What a benchmark prints: a table for people, one object for programs, an exit status for CI."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks import memory

ROOT = Path(__file__).parent.parent


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One figure: the median of its runs."""

    name: str
    value: float
    unit: str
    better: Literal["lower", "higher", "neither"] = "neither"
    bar: float | None = None
    ok: bool = True
    peers: dict[str, float] = {}
    runs: int = 1
    note: str = ""
    skipped: str = ""


class Report(msgspec.Struct, kw_only=True):
    """All of one call."""

    machine: str
    memory: str
    date: str
    commit: str
    results: list[Result]


def result(
    name: str,
    values: Sequence[float],
    unit: str,
    better: Literal["lower", "higher", "neither"] = "neither",
    bar: float | None = None,
    note: str = "",
    of: Callable[[Sequence[float]], float] = statistics.median,
) -> Result:
    """Make a figure of its runs and compare it with its bar; NaN never passes."""
    value = of(values)
    ok = bar is None or (value <= bar if better == "lower" else value >= bar)
    return Result(name=name, value=value, unit=unit, better=better, bar=bar, ok=ok, runs=len(values), note=note)


def percentile(share: float) -> Callable[[Sequence[float]], float]:
    """The value that `share` of the runs do not exceed."""

    def pick(values: Sequence[float]) -> float:
        ordered = sorted(values)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return pick


def fsync_seconds(folder: Path, times: int = 50) -> list[float]:
    """What one durable 4 KiB append costs on the disk of `folder`: it stands beside every speed figure."""
    spent: list[float] = []
    path = folder / ".fsync"
    sync = getattr(os, "fdatasync", os.fsync)
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(times):
                file.write(bytes(4096))
                begun = time.perf_counter()
                sync(file.fileno())
                spent.append(time.perf_counter() - begun)
    finally:
        path.unlink(missing_ok=True)
    return spent


def run(
    title: str, measure: Callable[..., list[Result]], arguments: Sequence[str] | None = None, **numbers: int
) -> None:
    """Run a benchmark's command line; `numbers` become options with these defaults, and arguments of `measure`."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    chosen = parser.parse_args(arguments)
    given = {name: getattr(chosen, name) for name in numbers}
    report = Report(
        machine=machine(),
        memory=memory.told(memory.reads()),
        date=time.strftime("%Y-%m-%d %H:%M %Z"),
        commit=commit(),
        results=measure(**given),
    )
    if chosen.json:
        print(msgspec.json.encode(report).decode())
    else:
        _table(title, report)
    if chosen.check and not all(one.ok for one in report.results):
        sys.exit(1)


def machine() -> str:
    """The machine, in a line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return f"{os.cpu_count()} × {model}, {platform.system()}, Python {platform.python_version()}"


def commit() -> str:
    """The commit that is measured."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def tell(*found: Result) -> list[Result]:
    """Say each figure on standard error as soon as it is known: a long run tells how far it is."""
    for one in found:
        bar = "" if one.bar is None else f" ({_bar(one)}{'' if one.ok else ', missed'})"
        say(f"{one.name.strip()}: {one.value:.4g} {one.unit}{bar}")
    return list(found)


def say(words: str) -> None:
    """One line on standard error, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def _bar(one: Result) -> str:
    return f"{'≤' if one.better == 'lower' else '≥'} {one.bar:.4g}"


def _table(title: str, report: Report) -> None:
    """Fits 80 columns: what it is and what came out; bar and remarks stand where there are any."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, pad_edge=False, padding=(0, 1, 0, 0), box=None, title_justify="left")
    table.add_column("what", ratio=1)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in report.results:
        bar = "" if one.bar is None else _bar(one)
        verdict = "" if one.bar is None else ("[green]ok[/]" if one.ok else "[red]missed[/]")
        value = "-" if one.skipped else f"{one.value:.4g}"
        table.add_row(one.name, value, one.unit, bar, verdict)
        peers = [f"{name}: {peer:.4g}" for name, peer in one.peers.items()]
        runs = [f"{one.runs} runs"] if one.runs > 1 and one.bar is not None else []
        about = "; ".join([*([one.skipped] if one.skipped else []), *([one.note] if one.note else []), *peers, *runs])
        if about:
            table.add_row(f"[dim]    {escape(about)}[/]")
    console = Console()
    console = Console(width=min(max(console.width, 80), 100))
    console.print(table)
    console.print(f"{report.machine}\n{report.memory}\n{report.date} · {report.commit}", style="dim", highlight=False)
