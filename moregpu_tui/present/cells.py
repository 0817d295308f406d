"""Pieces of text with a tone, and lines of them cut to a width. Widths are terminal cells: CJK takes two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec
from rich.cells import cell_len, set_cell_size

Piece = tuple[str, str]
"""(text, tone)."""

Line = tuple[Piece, ...]

Align = str
"""`left` or `right`."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table."""

    key: str
    title: str
    width: int
    right: bool = False
    grow: int = 0  # weight in the share of what is left
    rank: int = 0  # the highest go first when there is no room


def width_of(text: str) -> int:
    """Cells that a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, right: bool = False, dots: str = "…") -> str:
    """Exactly `width` cells: padded, or cut with dots."""
    if width <= 0:
        return ""
    length = width_of(text)
    if length > width:
        return set_cell_size(text, width - 1) + dots if width > 1 else dots
    return " " * (width - length) + text if right else text + " " * (width - length)


def length(line: Iterable[Piece]) -> int:
    """Cells of a line."""
    return sum(width_of(text) for text, _ in line)


def cut(line: Iterable[Piece], width: int, dots: str = "…") -> Line:
    """At most `width` cells of a line."""
    out: list[Piece] = []
    left = width
    for text, tone in line:
        size = width_of(text)
        if size <= left:
            out.append((text, tone))
            left -= size
            continue
        if left > 0:
            out.append((fit(text, left, dots=dots), tone))
        break
    return tuple(out)


def fill(line: Iterable[Piece], width: int, right: bool = False, dots: str = "…") -> Line:
    """Exactly `width` cells of a line."""
    pieces = cut(line, width, dots)
    left = width - length(pieces)
    if left <= 0:
        return pieces
    space = (" " * left, "text")
    return (space, *pieces) if right else (*pieces, space)


def split(left: Iterable[Piece], right: Iterable[Piece], width: int, dots: str = "…") -> Line:
    """One line with something at both ends; the right end wins the room."""
    tail = cut(right, width, dots)
    return (*fill(left, width - length(tail), dots=dots), *tail)


def widths(columns: Sequence[Column], room: int, gap: int = 2) -> dict[str, int]:
    """Widths of the columns that fit, in their order: those of the highest rank go, what is left is shared."""
    shown = list(columns)
    while len(shown) > 1 and sum(column.width for column in shown) + gap * (len(shown) - 1) > room:
        shown.remove(max(shown, key=lambda column: column.rank))
    left = room - sum(column.width for column in shown) - gap * (len(shown) - 1)
    weights = sum(column.grow for column in shown)
    found = {column.key: column.width for column in shown}
    if left > 0 and weights:
        growing = [column for column in shown if column.grow]
        for column in growing:
            found[column.key] += left * column.grow // weights
        found[growing[-1].key] += room - gap * (len(shown) - 1) - sum(found.values())
    elif left < 0:
        found[shown[0].key] = max(1, room)
    return found


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at spaces where there are any."""
    if width < 2:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        while width_of(word) > width:
            if line:
                lines.append(line)
                line = ""
            lines.append(set_cell_size(word, width))
            word = word[len(set_cell_size(word, width).rstrip(" ")) :]
        if line and width_of(line) + 1 + width_of(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def flowed(line: Iterable[Piece], width: int) -> list[Line]:
    """The lines of at most `width` cells that a line takes, broken between words; each piece keeps its tone."""
    pieces = tuple(line)
    text = "".join(part for part, _ in pieces)
    if width < 2 or width_of(text) <= width:
        return [pieces]
    tones = [tone for part, tone in pieces for _ in part]
    lines: list[Line] = []
    at = 0
    for part in wrapped(text, width):
        at = text.index(part.rstrip(" "), at)
        own = zip(part, tones[at:], strict=False)
        lines.append(tuple(("".join(sign for sign, _ in same), tone) for tone, same in groupby(own, itemgetter(1))))
        at += len(part.rstrip(" "))
    return lines


def meter(value: float, cells: int, bar: tuple[str, str, str], tone: str) -> Line:
    """A thin bar of `cells` cells, filled by a share 0–1, to half a cell."""
    halves = round(max(0.0, min(1.0, value if value == value else 0.0)) * cells * 2)
    whole, rest = divmod(halves, 2)
    full, half, empty = bar
    filled = full * whole + half * rest
    return ((filled, tone), (empty * (cells - len(filled)), "rule"))


def sparkline(values: Sequence[float], cells: int, rise: Sequence[str], top: float = 0.0) -> str:
    """The newest values as a line of columns."""
    shown = list(values[-cells:])
    highest = max([top, *shown]) if shown else 0.0
    line = "".join(rise[round(8 * max(0.0, value) / highest)] if highest > 0 else rise[0] for value in shown)
    return line.rjust(cells)
