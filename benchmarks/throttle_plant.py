"""An honest model of a machine shared by its owner and the pool, and the traces its owner leaves.

Steps of 20 ms. The CPU is shared: what both ask for beyond 1 is contention. Sensors have 3 % noise, the load sensor
averages 250 ms and its own-use figure shrinks under contention as a real one does; the idle counter is polled at 10 Hz;
duty is acted on between slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from moregpu.worker.probes.record import Recording
from moregpu.worker.throttle.controller import (
    ACTIVE_DUTY,
    ACTIVE_HOLD_S,
    RISE_PER_S,
    Controller,
    Load,
    Signals,
)

STEP_S = 0.02
LOAD_PERIOD_S = 0.25
POLL_S = 0.1
NOISE = 0.03
TRACES = ("step", "office", "video", "compile", "noise")


class Trace:
    """What an owner does: `use` (share of the CPU) and `input` (events) by step, `busy` where they are at work."""

    def __init__(self, kind: str, seed: int, length_s: float = 180.0) -> None:
        rng = np.random.default_rng(seed)
        count = int(length_s / STEP_S)
        time = np.arange(count) * STEP_S
        use = np.full(count, 0.03) + rng.normal(0, 0.01, count)
        events = np.zeros(count, bool)
        busy = np.zeros(count, bool)

        def inputs(start: float, stop: float, hertz: float) -> None:
            span = (time >= start) & (time < stop)
            events[span] |= rng.random(int(span.sum())) < hertz * STEP_S
            events[int(start / STEP_S)] = True

        def work(start: float, stop: float, share: float) -> None:
            use[(time >= start) & (time < stop)] += share

        begin = 60.0 + rng.uniform(0, POLL_S)
        if kind == "step":
            work(begin, 100, 0.55)
            busy |= (time >= begin) & (time < 100)
            inputs(begin, 100, 4)
        elif kind == "office":
            inputs(begin, 150, 3)
            busy |= (time >= begin) & (time < 150)
            at = begin
            while at < 150:
                length = rng.uniform(0.2, 1.2)
                work(at, at + length, rng.uniform(0.1, 0.5))
                at += length + rng.exponential(2)
        elif kind == "video":
            work(begin, 150, 0.30)
            busy |= (time >= begin) & (time < 150)
            events[int(begin / STEP_S)] = True
        elif kind == "compile":
            work(begin, 120, 0.95)
            busy |= (time >= begin) & (time < 120)
        elif kind == "noise":
            at = 5.0
            while at < length_s:
                length = rng.uniform(0.1, 0.6)
                work(at, at + length, rng.uniform(0.15, 0.5))
                at += length + rng.exponential(10)
        else:
            raise ValueError(f"no trace called {kind!r}")
        self.kind, self.time, self.use, self.events, self.busy = kind, time, np.clip(use, 0, 1), events, busy


def recorded(recording: Recording) -> Trace:
    """A recording as a trace: where others use much, somebody is at work."""
    trace = Trace.__new__(Trace)
    count = int(len(recording.samples) * recording.period_s / STEP_S)
    trace.kind, trace.time = "recorded", np.arange(count) * STEP_S
    places = np.minimum((trace.time / recording.period_s).astype(int), len(recording.samples) - 1)
    trace.use = np.array([sample.others for sample in recording.samples])[places]
    idle = np.array([1e9 if sample.idle_s is None else sample.idle_s for sample in recording.samples])
    before = 1e9 if idle[0] < ACTIVE_HOLD_S else idle[0]  # an input from just before the recording counts still
    fell = np.flatnonzero(np.diff(idle, prepend=before) < 0)
    trace.events = np.zeros(count, bool)
    trace.events[(fell * recording.period_s / STEP_S).astype(int)] = True
    trace.busy = np.zeros(count, bool)
    return trace


def drive(
    trace: Trace, seed: int, decide: Callable[[Signals, float], float], slice_s: float = 0.012
) -> np.ndarray[Any, Any]:
    """Run a controller against a trace; returns duty by step."""
    rng = np.random.default_rng(seed + 10_000)
    count = len(trace.time)
    duty = np.zeros(count)
    load_every, poll_every = round(LOAD_PERIOD_S / STEP_S), round(POLL_S / STEP_S)
    load_phase, poll_phase = int(rng.integers(0, load_every)), int(rng.integers(0, poll_every))
    last_input = -600.0
    pending: list[tuple[float, float]] = []
    current = 0.85
    for step in range(count):
        now = float(trace.time[step])
        if trace.events[step]:
            last_input = now
        load = None
        if step % load_every == load_phase and step >= load_every:
            span = slice(step - load_every, step)
            asked = float(trace.use[span].mean() + duty[span].mean())
            total = min(1.0, asked) + rng.normal(0, NOISE)
            own = float(duty[span].mean()) / max(asked, 1.0) + rng.normal(0, NOISE / 2)
            load = Load(total=max(total, 0.0), own=max(own, 0.0))
        if load is not None or step % poll_every == poll_phase:
            wanted = decide(Signals(idle_s=now - last_input, load=load), now)
            pending.append((now + rng.uniform(0, slice_s), wanted))  # between slices
        while pending and pending[0][0] <= now:
            current = pending.pop(0)[1]
        duty[step] = current
    return duty


def measure(trace: Trace, duty: np.ndarray[Any, Any], ceiling: float = 0.85) -> dict[str, float]:
    """The figures of the bars. A yield that never comes is infinite."""
    figures: dict[str, float] = {}
    settled = int(30 / STEP_S)
    if trace.busy.any():
        start = int(np.argmax(trace.busy))
        limit = np.maximum(ceiling - trace.use + 0.03, 0.05)
        fine = (duty <= limit) | (duty <= 0.16)
        window = int(1 / STEP_S)
        yielded = next((i for i in range(start, len(duty) - window) if fine[i : i + window].mean() > 0.95), None)
        figures["yield_s"] = float("inf") if yielded is None else (yielded - start) * STEP_S
        figures["felt_s"] = float((duty[trace.busy] > 0.2).sum() * STEP_S)
    figures["reversals_per_min"] = reversals(duty[settled :: int(0.5 / STEP_S)]) / float((trace.time[-1] - 30) / 60)
    figures["harvest"] = float(duty[settled:].mean())
    return figures


def free_of(trace: Trace, ceiling: float = 0.85) -> np.ndarray[Any, Any]:
    """What is free to be taken, by step: the ceiling less what others use, and no more than `ACTIVE_DUTY` while an
    input of the owner's counts (`ACTIVE_HOLD_S`): the rest is theirs by the prime rule."""
    free = np.maximum(ceiling - trace.use, 0.0)
    places = np.where(trace.events, np.arange(len(trace.use)), -len(trace.use) * 10)
    since = (np.arange(len(trace.use)) - np.maximum.accumulate(places)) * STEP_S
    return np.where(since < ACTIVE_HOLD_S, np.minimum(free, ACTIVE_DUTY), free)


def perfect(free: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a controller would take whose sensors are perfect and at once, and that keeps to the same two speeds: down
    at once, up at `RISE_PER_S`. No controller of these rules can harvest more."""
    taken, duty = np.zeros(len(free)), 0.0
    for step, most in enumerate(free):
        duty = taken[step] = min(float(most), duty + RISE_PER_S * STEP_S)
    return taken


def reversals(duty: np.ndarray[Any, Any]) -> int:
    """Times that duty, looked at every half second, turned around by moves of more than 0.08."""
    steps = np.diff(duty)
    moves = np.sign(steps[np.abs(steps) > 0.08])
    return int((np.diff(moves) != 0).sum())


def ours(ceiling: float = 0.85) -> Callable[[Signals, float], float]:
    """Our controller, as the plant drives it."""
    controller = Controller(ceiling)
    return lambda signals, now: controller.decide(signals, now).value
