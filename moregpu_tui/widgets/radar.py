"""The fleet as a scope: distance is latency (log), direction a fixed hash of the worker, colour its state.

A worker's blip is re-read only when the beam crosses its sector, which is what a radar does and costs nothing between;
what went offline or was throttled shows at once. Above 300 workers a blip is an owner's machines, sized by their count.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from moregpu_tui.present.glyphs import plain
from moregpu_tui.state.model import Worker
from moregpu_tui.widgets.drawn import Drawn, paint_of, refresh_rows

STEPS = 36
RINGS_MS = (10.0, 50.0, 250.0)
FARTHEST_MS = 400.0
NEAREST_MS = 0.8
NAMED = 24
"""Up to so many workers, blips have their names beside them."""

ALONE = 300
"""Up to so many workers, each has a blip of its own."""

_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_RANK = {look: rank for rank, look in enumerate(
    ("revoked", "ready", "paused", "draining", "busy", "pending", "throttled", "offline", "suspect"))}  # fmt: skip
_TAIL = 3


class _Blip(NamedTuple):
    x: int
    y: int
    look: str
    size: int


class Radar(Drawn):
    """Give it workers by `put`; `set_pace` says how often the beam moves a step (0: it rests)."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._workers: Mapping[str, Worker] = {}
        self._sectors: list[list[str]] = [[] for _ in range(STEPS)]
        self._members = -1
        self._blips: dict[str, _Blip] = {}
        self._cells: dict[tuple[int, int], dict[str, _Blip]] = {}
        self._groups: dict[str, list[str]] = {}
        self._step = 0
        self._pace = 0.0
        self._timer: Timer | None = None
        self._rings: list[list[int]] = []
        self._labels: dict[tuple[int, int], str] = {}
        self._beam: list[dict[int, list[int]]] = []
        self._cache: dict[int, Strip] = {}
        self._radius = self._cx = self._cy = 0.0
        self.faded = False

    # ---- content

    def put(self, workers: Mapping[str, Worker], urgent: Iterable[str] = (), *, members: bool = False) -> None:
        """The fleet as it is now. What changed is read by the beam; `urgent` ones, and who came or went, at once."""
        self._workers = workers
        if members or self._members != len(workers):
            self._members = len(workers)
            self._regroup()
            self._place_all()
        else:
            self._place({self._key(id) for id in urgent if id in workers})

    def set_pace(self, steps_per_s: float) -> None:
        """How often the beam moves."""
        if steps_per_s == self._pace:
            return
        self._pace = steps_per_s
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if steps_per_s > 0 and self.is_mounted:
            self._timer = self.set_interval(1 / steps_per_s, self._sweep)

    def fade(self, faded: bool) -> None:
        """Show it dimmed: it is old."""
        if faded != self.faded:
            self.faded = faded
            self.touch_all()

    def touch_all(self) -> None:
        """Draw again: another theme."""
        self._cache.clear()
        self.refresh()

    def on_mount(self) -> None:
        """Start the beam."""
        pace, self._pace = self._pace, -1.0
        self.set_pace(pace)

    def on_resize(self) -> None:
        """Another size: build anew, and say so."""
        self._build()
        self._place_all()
        self.refresh()

    # ---- the scene that does not move

    def _build(self) -> None:
        width, height = self.size
        self._cache.clear()
        self._cx, self._cy = (width * 2 - 1) / 2, (height * 4 - 1) / 2
        self._radius = max(1.0, min(self._cx, self._cy) - 1)
        self._rings = [[0] * width for _ in range(height)]
        self._labels = {}
        for ring in RINGS_MS:
            self._draw_ring(self._distance(ring / 1e3), f"{ring:.0f} ms")
        self._beam = [{} for _ in range(STEPS)]
        for y in range(height):
            for x in range(width):
                dx, dy = x * 2 + 0.5 - self._cx, y * 4 + 1.5 - self._cy
                if dx * dx + dy * dy <= self._radius * self._radius:
                    self._beam[_sector(math.atan2(dy, dx))].setdefault(y, []).append(x)

    def _draw_ring(self, distance: float, label: str) -> None:
        width, height = self.size
        dots = int(2 * math.pi * distance / 2.2) + 1
        for dot in range(dots):
            angle = 2 * math.pi * dot / dots
            x, y = round(self._cx + distance * math.cos(angle)), round(self._cy + distance * math.sin(angle))
            if 0 <= x < width * 2 and 0 <= y < height * 4:
                self._rings[y >> 2][x >> 1] |= _BITS[x & 1][y & 3]
        row, column = int(self._cy - distance) >> 2, (int(self._cx) >> 1) + 1
        if 0 <= row < height and column + len(label) < width:
            for place, character in enumerate(label):
                self._labels[row, column + place] = character

    def _distance(self, trip_s: float) -> float:
        """Dots from the middle: logarithmic from 0.8 to 400 ms."""
        ms = min(FARTHEST_MS, max(NEAREST_MS, trip_s * 1e3))
        return self._radius * (0.08 + 0.92 * math.log(ms / NEAREST_MS) / math.log(FARTHEST_MS / NEAREST_MS))

    # ---- blips

    def _key(self, id: str) -> str:
        """What a worker's blip stands for: itself, or its owner's machines."""
        if len(self._workers) <= ALONE:
            return id
        worker = self._workers[id]
        return worker.owner or "?"

    def _regroup(self) -> None:
        self._groups = {}
        for id in self._workers:
            self._groups.setdefault(self._key(id), []).append(id)
        if len(self._groups) < 24 < ALONE < len(self._workers):
            # Few owners with very many machines: a blip for each owner's machines of one device says more.
            self._groups = {}
            for id, worker in self._workers.items():
                device = worker.devices[0].name if worker.devices else ""
                self._groups.setdefault(f"{worker.owner}/{device}", []).append(id)
        self._sectors = [[] for _ in range(STEPS)]
        for key in self._groups:
            self._sectors[_sector(_angle(key))].append(key)

    def _place_all(self) -> None:
        self._blips, self._cells = {}, {}
        self._cache.clear()
        self._place(self._groups)
        self.refresh()

    def _place(self, keys: Iterable[str]) -> None:
        """Put blips where their workers are now; refresh the rows that changed."""
        if not self._rings:
            return
        rows: set[int] = set()
        for key in keys:
            fresh = self._blip(key)
            old = self._blips.get(key)
            if fresh == old:
                continue
            if old is not None:
                self._cells[old.y >> 2, old.x >> 1].pop(key, None)
                rows.add(old.y >> 2)
            if fresh is None:
                self._blips.pop(key, None)
                continue
            self._blips[key] = fresh
            self._cells.setdefault((fresh.y >> 2, fresh.x >> 1), {})[key] = fresh
            rows.add(fresh.y >> 2)
        self._redraw(rows)

    def _blip(self, key: str) -> _Blip | None:
        workers = [self._workers[id] for id in self._groups.get(key, ()) if id in self._workers]
        shown = [worker for worker in workers if worker.look != "revoked"]
        if not shown:
            return None
        trips = sorted(worker.round_trip_s for worker in shown if worker.round_trip_s)
        trip = trips[len(trips) // 2] if trips else FARTHEST_MS / 1e3
        distance, angle = self._distance(trip), _angle(key)
        looks = [worker.look for worker in shown]
        look = max(set(looks), key=lambda each: (looks.count(each), _RANK[each])) if len(looks) > 1 else looks[0]
        return _Blip(
            round(self._cx + distance * math.cos(angle)), round(self._cy + distance * math.sin(angle)), look, len(shown)
        )

    # ---- the beam

    def _sweep(self) -> None:
        if not self._rings or not self.is_on_screen or not console_shows(self):
            return
        old = self._step
        self._step = (old + 1) % STEPS
        rows: set[int] = set()
        for back in range(-1, _TAIL):
            rows.update(self._beam[(old - back) % STEPS])
        self._redraw(rows)
        self._place(self._sectors[self._step])

    def _redraw(self, rows: set[int]) -> None:
        for row in rows:
            self._cache.pop(row, None)
        refresh_rows(self, sorted(rows))

    # ---- drawing

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        if not self._rings:
            self._build()
            self._regroup()
            self._place_all()
        hit = self._cache.get(y)
        if hit is None:
            hit = self._cache[y] = self._drawn(y)
        return hit

    def _drawn(self, y: int) -> Strip:
        paint = paint_of(self)
        width = self.size.width
        if y >= len(self._rings):
            return paint.blank(width)
        ground = self._grounds(y) if self._pace > 0 and not self.faded else {}
        segments: list[Segment] = []
        names = self._names(y)
        for x, dots in enumerate(self._rings[y]):
            cell = self._cells.get((y, x))
            if cell:
                text, tone = self._sign([*cell.values()])
            elif x in names:
                text, tone = names[x], "dim"
            elif (y, x) in self._labels:
                text, tone = self._labels[y, x], "dim"
            else:
                text, tone = (self._dots(dots) if dots else " "), "rule"
            style = paint.style("dim" if self.faded and tone != "rule" else tone)
            beam = ground.get(x)
            segments.append(Segment(text, style + beam if beam else style))
        return Strip(segments, width).simplify()

    def _names(self, y: int) -> dict[int, str]:
        """Names beside the blips of a row, where the fleet is small enough to read them."""
        if len(self._workers) > NAMED:
            return {}
        width = self.size.width
        taken = {x for (row, x), blips in self._cells.items() if row == y and blips}
        taken |= {x for row, x in self._labels if row == y}
        found: dict[int, str] = {}
        for x in sorted(x for (row, x), blips in self._cells.items() if row == y and blips):
            worker = self._workers.get(next(iter(self._cells[y, x])))
            name = plain(worker.name[:18], paint_of(self).glyphs) if worker is not None else ""
            if not name or not name.isascii():
                continue
            for start in (x + 2, x - 1 - len(name)):  # to the right, else to the left
                room = {*range(start - 1, start + len(name) + 1)} - {x}
                if start < 0 or start + len(name) > width or room & (taken | found.keys()):
                    continue
                found |= dict(enumerate(name, start)) | {start - 1 if start > x else start + len(name): " "}
                break
        return found

    def _grounds(self, y: int) -> dict[int, Style]:
        found: dict[int, Style] = {}
        colours = paint_of(self).palette.beam
        for back in range(_TAIL):
            colour = colours[_TAIL - 1 - back]
            if colour:
                style = Style(bgcolor=colour)
                for x in self._beam[(self._step - back) % STEPS].get(y, ()):
                    found[x] = style
        return found

    def _sign(self, blips: list[_Blip]) -> tuple[str, str]:
        worst = max(blips, key=lambda blip: _RANK[blip.look])
        glyphs = paint_of(self).glyphs
        count = sum(blip.size for blip in blips)
        if glyphs.ascii or len(self._workers) <= 60 or worst.look in ("suspect", "offline"):
            return glyphs.looks[worst.look], worst.look
        if count > 1 and len(self._workers) > ALONE:
            return ("•" if count < 8 else "●" if count < 40 else "◉"), worst.look
        mask = 0
        for blip in blips:
            mask |= _BITS[blip.x & 1][blip.y & 3]
        return chr(0x2800 | mask), worst.look

    def _dots(self, dots: int) -> str:
        return "." if paint_of(self).glyphs.ascii else chr(0x2800 | dots)


def console_shows(widget: Widget) -> bool:
    """Whether the widget's screen is the one that is shown: what is hidden draws nothing."""
    return widget.screen in widget.app.screen_stack


def _angle(key: str) -> float:
    return (zlib.crc32(key.encode()) % 36_000) / 36_000 * 2 * math.pi


def _sector(angle: float) -> int:
    return int(angle % (2 * math.pi) / (2 * math.pi) * STEPS) % STEPS
