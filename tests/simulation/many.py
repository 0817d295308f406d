"""Many histories, on all cores: how fast, and what was found."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.simulation.history import History, Outcome, slow_world
from tests.simulation.script import Script, script_of
from tests.simulation.shrink import kind_of, shortest

BATCH = 50
REPORT_S = 60.0


class Totals(NamedTuple):
    """What was done."""

    histories: int
    findings: int
    seconds: float
    commits: int
    accepted: int
    crashes: int
    simulated_s: float


def run(script: Script, *, verbose: bool = False) -> Outcome:
    """One history in the slow world. Whatever is raised inside is a problem of it."""
    return History(script, verbose=verbose).run()


def shrunk(script: Script, problems: tuple[str, ...]) -> Script:
    """The shortest script that fails with one of the same problems."""
    kinds = {kind_of(problem) for problem in problems}
    return shortest(script, lambda shorter: any(kind_of(problem) in kinds for problem in run(shorter).problems))


def told(outcome: Outcome) -> str:
    """A finding in words, with its shortest history and the way to see it again."""
    script = shrunk(script_of(outcome.seed), outcome.problems)
    lines = [f"seed {outcome.seed}:", *(f"  {problem}" for problem in outcome.problems[:5]), "  shortest history:"]
    lines += [f"    {part}" for part in (*script.machines, *script.works, *script.faults)]
    lines.append(f"  replay: {script.replay} --verbose")
    return "\n".join(lines)


def simulate(first: int, count: int, jobs: int, say: Callable[[str], None] = print) -> Totals:
    """Run `count` histories from seed `first` on; findings are said as they come, each with its shortest history."""
    began = said = time.monotonic()
    histories = findings = commits = accepted = crashes = 0
    simulated_s = 0.0
    for outcome in _outcomes(range(first, first + count), jobs):
        histories += 1
        commits += outcome.commits
        accepted += outcome.accepted
        crashes += outcome.lives - 1
        simulated_s += outcome.ended_s
        if outcome.problems:
            findings += 1
            with slow_world():
                say(told(outcome))
        now = time.monotonic()
        if now - said > REPORT_S:
            said = now
            say(f"{histories:,} of {count:,} histories, {histories / (now - began):.0f} a second, {findings} findings")
            sys.stdout.flush()
    return Totals(histories, findings, time.monotonic() - began, commits, accepted, crashes, simulated_s)


def _outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    if jobs == 1:
        for batch in batches:
            yield from _batch(batch)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=40) as pool:
        for outcomes in pool.imap_unordered(_batch, batches):
            yield from outcomes


def _batch(seeds: range) -> list[Outcome]:
    with slow_world(), _seldom_collecting():
        return [run(script_of(seed)) for seed in seeds]


@contextmanager
def _seldom_collecting() -> Generator[None]:
    """A history is one large circle of objects that lives for an instant: looking through it early is in vain."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
