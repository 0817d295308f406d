"""How answers look: one JSON object for programs, aligned columns for people. The one table printer.

Everything that a stranger named passes `wire.text.clean` before it reaches a terminal.
"""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from moregpu.wire.text import UNSAFE, clean

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]

_LEAST_ROOM = 20
"""Cells of a column that goes on in further lines, however narrow the terminal is."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def say(words: str, *values: object, err: bool = False) -> None:
    """Print our own words, each `{}` in them a value that somebody else may have named."""
    typer.echo(words.format(*(clean(str(value)) for value in values)), err=err)


def print_json(value: Any) -> None:
    """Print one value on one line. What a terminal would obey, or not show, is written as JSON's own escapes."""
    typer.echo(UNSAFE.sub(_escaped, msgspec.json.encode(value).decode()))


def _escaped(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    empty: str,
    *,
    longest: int = 200,
    whole: bool = False,
) -> None:
    """Print columns as wide as they need to be.

    Where a terminal has an edge, lines are cut at it; of a `whole` table the last column goes on in the next line.
    """
    if not rows:
        typer.echo(empty)
        return
    cells = [[clean(str(cell), longest) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(headings), *cells]) for column in range(len(headings))]
    limit = typer.get_terminal_size()[0] if sys.stdout.isatty() else None
    for index, row in enumerate([list(headings), *cells]):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if whole and limit is not None and len(line) > limit:
            for part in _wrapped(line, sum(widths[:-1]) + 2 * (len(widths) - 1), limit):
                typer.echo(part)
            continue
        if limit is not None and len(line) > limit:
            line = line[: limit - 1] + "…"
        typer.echo(typer.style(line, bold=True) if index == 0 and sys.stdout.isatty() else line)


def _wrapped(line: str, indent: int, limit: int) -> list[str]:
    """A line that is too long, as several; those after the first begin at the indent."""
    room = max(limit - indent, _LEAST_ROOM)
    parts = textwrap.wrap(line[indent:], room, break_on_hyphens=False) or [""]
    return [line[:indent] + parts[0], *(" " * indent + part for part in parts[1:])]


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one a line; empty values are left out."""
    shown = [(name, clean(str(value), 1000)) for name, value in facts if value not in ("", None)]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        typer.echo(f"{name.ljust(width)}  {value}")


def seconds(value: float | None) -> str:
    """A duration as people read it."""
    if value is None:
        return "–"
    if value < 1.0:
        return f"{value * 1000:.3g} ms"
    if value < 120.0:
        return f"{value:.3g} s"
    return f"{value / 60:.0f} min" if value < 7200.0 else f"{value / 3600:.1f} h"


def ago(wall: float | None) -> str:
    """How long ago a wall time was."""
    return "–" if not wall else f"{seconds(max(0.0, time.time() - wall))} ago"


def left(wall: float | None) -> str:
    """How long it is until a wall time."""
    return "–" if wall is None else f"{seconds(max(0.0, wall - time.time()))} more"


def counted(count: int, singular: str, plural: str = "") -> str:
    """Write `1 task`, `2 tasks`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def size(count: float | None) -> str:
    """Bytes as people read them."""
    if count is None:
        return "no limit"
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} {_UNITS[-1]}"


def progress_line() -> Callable[[str], None] | None:
    """Rewrite one line on stderr; None where stderr is no terminal, so that logs stay clean."""
    if not sys.stderr.isatty():
        return None

    def show(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{clean(text, 200)}" if text else "\r\x1b[K")
        sys.stderr.flush()

    return show
