"""Does the owner feel it, and how much is harvested? The controller on an honest model, on recorded machines, and live.

    python -m benchmarks.throttle --check        about four minutes, of which three are the live loop's inputs
    python -m benchmarks.throttle --quick        the model and the recordings alone
    python -m benchmarks.throttle --inputs       the live loop's inputs alone: three minutes
    python -m benchmarks.throttle --noise        the live loop in two minutes of noise; on a calm machine

Model: held-out seeds of five traces, against four other rules, and of ten minutes of noise. Recordings:
`benchmarks/traces/*.json`, made by `moregpu-tray record-load`. Live: a real X server, the real agent and its compute
process, 20 inputs. What the live loop adds to the model in noise (real sensors, real slices) shows in two minutes; ten
minutes of it run in `make acceptance`.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks import report
from benchmarks.report import Result, result
from benchmarks.throttle_plant import (
    LOAD_PERIOD_S,
    STEP_S,
    TRACES,
    Trace,
    drive,
    free_of,
    measure,
    ours,
    perfect,
    recorded,
    reversals,
)
from moregpu.worker.probes.record import Recording
from moregpu.worker.throttle.controller import Signals

HELD_OUT = range(12)
"""The constants were tuned on seeds 100 and up."""

LIVE_INPUTS = 20
LIVE_GPU_INPUTS = 8
NOISE_S = 120.0
LONG_NOISE_S = 600.0

FULL = 0.5
"""Share that others use of a machine that is not to spare."""

CALM = 0.15
"""The same of a machine that a live measure can be trusted on."""

CEILING = 0.85
FOLDER = Path(__file__).parent / "traces"

Rule = Callable[[Signals, float], float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = {"--quick", "--inputs", "--noise"} & set(given)
    report.run("Throttle", lambda: measured(words), [word for word in given if word not in words])


def measured(words: Set[str]) -> list[Result]:
    """All figures that are asked for."""
    parts = {"--quick": lambda: [*on_the_model(), *on_recordings()], "--inputs": live, "--noise": live_noise}
    asked = sorted(words) or ["--quick", "--inputs"]
    return [figure for word in asked for figure in parts[word]()]


# ---- the model -------------------------------------------------------------------------------------------------------


def on_the_model() -> list[Result]:
    """Medians over held-out seeds, and what other rules reach in the same place."""
    names = {"yield_s": "yield", "felt_s": "high duty while the owner works", "reversals_per_min": "reversals"}
    found: list[Result] = []
    for kind in TRACES:
        by_rule = {rule: _runs(kind, make) for rule, make in RULES.items()}
        for figure, unit, better, bar in _bars(kind):
            peers = {rule: float(np.median(runs[figure])) for rule, runs in by_rule.items() if rule != "ours"}
            one = result(f"{kind}: {names.get(figure, figure)}", by_rule["ours"][figure], unit, better, bar)
            one.peers, one.note = peers, ", ".join(f"{rule} {value:.2g}" for rule, value in peers.items())
            found.append(one)
    return [*found, _ten_minutes_of_noise()]


def _ten_minutes_of_noise() -> Result:
    """Does it hunt even once? The worst of all seeds."""
    turned: list[float] = []
    for seed in HELD_OUT:
        trace = Trace("noise", seed, LONG_NOISE_S)
        turned.append(float(reversals(drive(trace, seed, ours())[:: round(0.5 / STEP_S)])))
    return result("noise: reversals in ten minutes, worst", turned, "", "lower", 0.0, of=max)


def _bars(kind: str) -> list[tuple[str, str, str, float | None]]:
    """The bars of `throttle.md`."""
    bars: list[tuple[str, str, str, float | None]] = [("reversals_per_min", "1/min", "lower", 0.0)]
    if kind == "noise":
        return [*bars, ("harvest", "mean duty", "higher", 0.75)]
    bars.append(("yield_s", "s", "lower", 0.8 if kind == "compile" else 0.06))
    return [*bars, ("felt_s", "s", "lower", 0.1 if kind == "step" else None)]


def _runs(kind: str, make: Callable[[], Rule]) -> dict[str, list[float]]:
    runs: dict[str, list[float]] = {}
    for seed in HELD_OUT:
        trace = Trace(kind, seed)
        for name, value in measure(trace, drive(trace, seed, make()), CEILING).items():
            runs.setdefault(name, []).append(value)
    return runs


def _fixed() -> Rule:
    return lambda _signals, _now: CEILING


def _boinc() -> Rule:
    """Suspend when others use more than 25 %; looked at every 10 s."""
    state = {"at": 0.0, "duty": CEILING}

    def decide(signals: Signals, now: float) -> float:
        if signals.load is not None and now - state["at"] >= 10.0:
            state["at"] = now
            state["duty"] = 0.0 if signals.load.total - signals.load.own > 0.25 else CEILING
        return state["duty"]

    return decide


def _from_total() -> Rule:
    """Duty from total load, our own included: it mistakes itself for the owner."""
    state = {"duty": CEILING}

    def decide(signals: Signals, _now: float) -> float:
        if signals.load is not None:
            state["duty"] = 0.05 + (CEILING - 0.05) * max(0.0, CEILING - min(1.0, signals.load.total)) / CEILING
        return state["duty"]

    return decide


def _pi_on_total() -> Rule:
    """A PI controller that holds total load at the ceiling."""
    state = {"sum": 0.0, "duty": CEILING}

    def decide(signals: Signals, _now: float) -> float:
        if signals.load is not None:
            error = CEILING - min(signals.load.total, 1.3)
            state["sum"] = min(max(state["sum"] + 0.8 * error * LOAD_PERIOD_S, 0.0), CEILING)
            state["duty"] = min(max(state["sum"] + 0.3 * error, 0.0), CEILING)
        return state["duty"]

    return decide


RULES: dict[str, Callable[[], Rule]] = {
    "ours": ours, "fixed": _fixed, "BOINC": _boinc, "total load": _from_total, "PI on total": _pi_on_total,
}  # fmt: skip


# ---- recordings ------------------------------------------------------------------------------------------------------


def on_recordings() -> list[Result]:
    """The same controller on what real machines did."""
    found: list[Result] = []
    for file in sorted(FOLDER.glob("*.json")):
        recording = msgspec.json.decode(file.read_bytes(), type=Recording)
        trace = recorded(recording)
        free = free_of(trace, CEILING)
        best = perfect(free)
        duties = [drive(trace, seed, ours()) for seed in range(5)]
        taken = [float(np.minimum(duty, free).sum()) for duty in duties]
        over = [float((np.maximum(trace.use + duty - 1.0, 0.0)).mean()) for duty in duties]
        runs = [measure(trace, duty, CEILING)["reversals_per_min"] for duty in duties]
        others = float(trace.use.mean())
        # A machine that others fill is no machine to lend: what can be had of its gaps is told beside it, not asked.
        bar = 0.80 if others < FULL else None
        note = f"{recording.of}, {len(trace.time) * STEP_S:.0f} s, others {others:.0%}, free {float(free.mean()):.0%}"
        possible = float(best.sum() / free.sum())
        found += [
            result(f"{file.stem}: harvested of what is free", _shares(taken, free), "share", "higher", bar, note),
            result(f"{file.stem}: of what the rules let anyone harvest", _shares(taken, best), "share", "higher", 0.90,
                   f"a perfect sensor would have {possible:.0%} of what is free"),
            result(f"{file.stem}: asked beyond the machine", over, "mean duty", "lower", 0.05),
            result(f"{file.stem}: reversals", runs, "1/min", "lower", 0.0 if others < FULL else None),
        ]  # fmt: skip
    return found


def _shares(taken: list[float], of: np.ndarray[Any, Any]) -> list[float]:
    return [each / float(of.sum()) for each in taken]


# ---- live ------------------------------------------------------------------------------------------------------------


def live() -> list[Result]:
    """A real X server, the real agent and its compute process: inputs."""
    if shutil.which("Xvfb") is None:
        return [Result(name="live: input to cut", value=0.0, unit="s", skipped="Xvfb is not installed")]
    from tests.displays import screen
    from tests.worker.yielding import input_to_cut

    with screen() as x, tempfile.TemporaryDirectory() as folder:
        cuts = asyncio.run(input_to_cut(Path(folder), x.name, LIVE_INPUTS))
    return [
        result("live: input to cut, worst", [cut.decided_s for cut in cuts], "s", "lower", 0.1, of=max),
        result("live: input to cut", [cut.decided_s for cut in cuts], "s"),
        result("live: compute after the cut", [cut.share for cut in cuts], "cores", "lower", 0.25),
        *_live_on_a_gpu(),
    ]


def _live_on_a_gpu() -> list[Result]:
    """The same with a task on whatever adapter there is, software too: until nothing is submitted any more."""
    from moregpu_kernels.device import probe
    from moregpu_kernels.errors import ProbeFailed

    from tests.displays import screen
    from tests.worker.yielding import input_to_cut

    name = "live: input to rest, GPU task"
    try:
        adapters = probe()
    except ProbeFailed as error:
        return [Result(name=name, value=0.0, unit="s", skipped=f"missing: a graphics adapter ({error.detail})")]
    if not adapters:
        return [Result(name=name, value=0.0, unit="s", skipped="missing: a graphics adapter")]
    with screen() as x, tempfile.TemporaryDirectory() as folder:
        cuts = asyncio.run(input_to_cut(Path(folder), x.name, LIVE_GPU_INPUTS, "gpu"))
    return [
        result(name, [cut.rested_s for cut in cuts], "s", "lower", 0.06, adapters[0].label),
        result(f"{name}, worst", [cut.rested_s for cut in cuts], "s", note=adapters[0].label, of=max),
    ]


def live_noise(seconds: float = NOISE_S) -> list[Result]:
    """What the whole loop takes while short bursts come and go, and whether it hunts."""
    if shutil.which("Xvfb") is None:
        return [Result(name="live: reversals in noise", value=0.0, unit="1/min", skipped="Xvfb is not installed")]
    from tests.displays import screen
    from tests.worker.noise import through_noise

    with screen() as x, tempfile.TemporaryDirectory() as folder:
        heard = asyncio.run(through_noise(Path(folder), x.name, seconds))
    note = f"{seconds:.0f} s; everything but the pool used {heard.others:.0%} of the machine"
    # What is computed depends on who else wants the machine: others are before us, and are meant to be.
    is_calm = heard.others < CALM
    return [
        result("live: reversals in noise", [heard.reversals_per_min], "1/min", "lower", 0.0, note),
        result("live: asked of what is free", [heard.harvested], "share", "higher", 0.80, note),
        result("live: computed of what is free", [heard.computed], "share", "higher", 0.80 if is_calm else None,
               note if is_calm else f"{note}: no bar"),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
