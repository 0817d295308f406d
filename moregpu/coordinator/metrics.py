"""Figures in Prometheus' text format: counters, gauges and histograms with their HELP and TYPE.

Format: the exposition format 0.0.4 of Prometheus. No library: what is needed is one page, and a registry of ours costs
nothing to import.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Labels = Mapping[str, str]
Kind = Literal["counter", "gauge"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bounds of histograms of times: from a tiny job to a long task."""


class Histogram:
    """Counts of observations up to each bound, their sum and number, for each set of labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS):
        self.name = name
        self.help = help
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._series: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}
        if not labels:
            self._of(())  # a histogram that saw nothing yet is there, with zeros

    def observe(self, value: float, *labels: str) -> None:
        """Count one observation; what is no number is left out."""
        if not math.isfinite(value):
            return
        counts, total = self._of(labels)
        counts[bisect_left(self._bounds, value)] += 1
        total[0] += value

    def lines(self) -> Iterable[str]:
        """HELP, TYPE and samples."""
        yield from _head(self.name, self.help, "histogram")
        for labels, (counts, total) in sorted(self._series.items()):
            named = dict(zip(self._labels, labels, strict=True))
            seen = 0
            for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
                seen += count
                yield _sample(f"{self.name}_bucket", named | {"le": _number(bound)}, seen)
            yield _sample(f"{self.name}_sum", named, total[0])
            yield _sample(f"{self.name}_count", named, seen)

    def _of(self, labels: tuple[str, ...]) -> tuple[list[int], list[float]]:
        return self._series.setdefault(labels, ([0] * (len(self._bounds) + 1), [0.0]))


class Counter:
    """A figure that only grows, for each set of labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()):
        self.name = name
        self.help = help
        self._labels = tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, amount: float, *labels: str) -> None:
        """Count on."""
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def value(self, *labels: str) -> float:
        """What was counted."""
        return self._values.get(labels, 0.0)

    def subjects(self) -> list[str]:
        """The first label of each series."""
        return [labels[0] for labels in self._values]

    def forget(self, *labels: str) -> None:
        """Let a series go whose subject is gone."""
        self._values.pop(labels, None)

    def lines(self) -> Iterable[str]:
        """HELP, TYPE and samples."""
        named = [
            (dict(zip(self._labels, labels, strict=True)), value) for labels, value in sorted(self._values.items())
        ]
        yield from family(self.name, self.help, "counter", named)


def family(name: str, help: str, kind: Kind, samples: Iterable[tuple[Labels, float]]) -> Iterable[str]:
    """HELP, TYPE and samples of figures that are known at the moment of asking."""
    yield from _head(name, help, kind)
    for labels, value in samples:
        yield _sample(name, labels, value)


def _head(name: str, help: str, kind: str) -> Iterable[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
