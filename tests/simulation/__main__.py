"""`python -m tests.simulation --seeds 100000`: many histories. `--seed N`: one, told step by step with `--verbose`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack

from tests.simulation.history import slow_world
from tests.simulation.many import run, simulate
from tests.simulation.planted import PLANTED
from tests.simulation.script import script_of


def main() -> int:
    """Run what the command line says; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--faults", help="with --seed: keep only these faults (places in the script, or none)")
    parser.add_argument("--works", help="with --seed: keep only these jobs")
    parser.add_argument("--bug", choices=sorted(PLANTED), help="with --seed: plant a bug")
    parser.add_argument("--verbose", action="store_true", help="with --seed: tell what happens")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options)
    totals = simulate(options.first, options.seeds, options.jobs, lambda text: print(text, flush=True))
    print(
        f"{totals.histories:,} histories in {totals.seconds:.0f} s: {totals.histories / totals.seconds:.0f} a second "
        f"on {options.jobs} cores, {totals.findings} findings"
    )
    print(
        f"{totals.simulated_s / 86400.0:.1f} simulated days, {totals.commits:,} commits, {totals.accepted:,} accepted "
        f"results, {totals.crashes:,} coordinators killed or restarted"
    )
    return 1 if totals.findings else 0


def _one(options: argparse.Namespace) -> int:
    script = script_of(options.seed).with_parts(_places(options.faults), _places(options.works))
    with ExitStack() as stack:
        stack.enter_context(slow_world())
        if options.bug:
            stack.enter_context(PLANTED[options.bug]())
        outcome = run(script, verbose=options.verbose)
    for part in (*script.machines, *script.works, *script.faults):
        print(part)
    for line in outcome.trace:
        print(line)
    for problem in outcome.problems:
        print(f"PROBLEM {problem}")
    print(f"{outcome.digest}: {outcome.handled} callbacks, {outcome.commits} commits, {outcome.ended_s:.1f} s")
    return 1 if outcome.problems else 0


def _places(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return () if text == "none" else tuple(int(place) for place in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
