"""Pictures: a ring that is filled to the duty, and a glyph for the mood. Drawn, never loaded.

Drawn four times as large and scaled down. At 22 pixels and less the ring is thicker and the glyph simpler: finer lines
are lost there.
"""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image, ImageDraw

from moregpu_tray.icon.protocol import STEPS, Picture
from moregpu_tray.view import Mood

Colour = tuple[int, int, int]

OVERSAMPLED = 4
SMALL = 22
SIZES = (16, 22, 24, 32, 48)
"""What panels ask for."""

COLOURS: dict[Mood, tuple[Colour, Colour]] = {
    # on a dark panel, on a light one
    Mood.NO_POOL: ((150, 158, 170), (96, 104, 116)),
    Mood.OFFLINE: ((150, 158, 170), (96, 104, 116)),
    Mood.WAITING: ((235, 180, 60), (166, 112, 0)),
    Mood.IDLE: ((92, 200, 140), (20, 128, 74)),
    Mood.WORKING: ((64, 214, 128), (10, 138, 72)),
    Mood.YIELDING: ((104, 166, 250), (30, 92, 190)),
    Mood.PAUSED: ((235, 180, 60), (166, 112, 0)),
    Mood.TROUBLE: ((240, 96, 96), (192, 36, 36)),
}


def draw(picture: Picture, size: int = 64, *, dark: bool = True) -> Image.Image:
    """The icon, RGBA, `size` pixels square; `dark`: for a dark panel."""
    side = size * OVERSAMPLED
    image = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    canvas = ImageDraw.Draw(image)
    colour = COLOURS[picture.mood][0 if dark else 1]
    _ring(canvas, side, colour, picture.sixteenths, small=size <= SMALL)
    _GLYPHS[picture.mood](canvas, side, (*colour, 255), size <= SMALL)
    return image.resize((size, size), Image.Resampling.LANCZOS)


def _ring(canvas: ImageDraw.ImageDraw, side: int, colour: Colour, sixteenths: int, *, small: bool) -> None:
    width = side // 6 if small else side // 9
    margin = side // 32 + (0 if small else side // 32)
    box = (margin, margin, side - margin - 1, side - margin - 1)
    canvas.arc(box, 0, 360, fill=(*colour, 80), width=width)
    if sixteenths > 0:
        canvas.arc(box, -90, -90 + 360 * min(sixteenths, STEPS) / STEPS, fill=(*colour, 255), width=width)


Paint = tuple[int, int, int, int]
_Glyph = Callable[[ImageDraw.ImageDraw, int, Paint, bool], None]


def _at(side: int, *points: tuple[float, float]) -> list[tuple[float, float]]:
    return [(x * side, y * side) for x, y in points]


def _bolt(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    if small:
        canvas.polygon(
            _at(side, (0.56, 0.26), (0.32, 0.56), (0.48, 0.56), (0.44, 0.76), (0.68, 0.44), (0.52, 0.44)), paint
        )
        return
    canvas.polygon(_at(side, (0.55, 0.25), (0.34, 0.55), (0.48, 0.55), (0.45, 0.76), (0.66, 0.45), (0.52, 0.45)), paint)


def _dot(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    r = 0.15 if small else 0.12
    canvas.ellipse(_at(side, (0.5 - r, 0.5 - r), (0.5 + r, 0.5 + r)), paint)


def _bars(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    top, bottom = (0.32, 0.68) if small else (0.33, 0.67)
    for left, right in ((0.35, 0.46), (0.54, 0.65)):
        canvas.rectangle(_at(side, (left, top), (right, bottom)), paint)


def _hand(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    """Stepping back: a chevron that points down."""
    width = max(1, int(side * (0.11 if small else 0.085)))
    canvas.line(_at(side, (0.33, 0.43), (0.5, 0.62), (0.67, 0.43)), paint, width, joint="curve")


def _plus(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    half = 0.06 if small else 0.045
    canvas.rectangle(_at(side, (0.5 - half, 0.32), (0.5 + half, 0.68)), paint)
    canvas.rectangle(_at(side, (0.32, 0.5 - half), (0.68, 0.5 + half)), paint)


def _slash(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    width = max(1, int(side * (0.11 if small else 0.085)))
    canvas.line(_at(side, (0.36, 0.36), (0.64, 0.64)), paint, width)
    canvas.line(_at(side, (0.64, 0.36), (0.36, 0.64)), paint, width)


def _clock(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    width = max(1, int(side * (0.10 if small else 0.08)))
    canvas.line(_at(side, (0.5, 0.30), (0.5, 0.53), (0.65, 0.62)), paint, width, joint="curve")


def _mark(canvas: ImageDraw.ImageDraw, side: int, paint: Paint, small: bool) -> None:
    half = 0.07 if small else 0.055
    canvas.rectangle(_at(side, (0.5 - half, 0.28), (0.5 + half, 0.56)), paint)
    canvas.ellipse(_at(side, (0.5 - half, 0.62), (0.5 + half, 0.62 + 2 * half)), paint)


_GLYPHS: dict[Mood, _Glyph] = {
    Mood.NO_POOL: _plus,
    Mood.OFFLINE: _slash,
    Mood.WAITING: _clock,
    Mood.IDLE: _dot,
    Mood.WORKING: _bolt,
    Mood.YIELDING: _hand,
    Mood.PAUSED: _bars,
    Mood.TROUBLE: _mark,
}
