"""Lines of the log."""

from __future__ import annotations

from moregpu_tui.present.cells import Line
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.time import clock
from moregpu_tui.state.model import LogEntry

_TONES = {"info": "text", "warning": "warn", "error": "bad"}
_SOURCES = {"job": "queue", "worker": "throughput", "invite": "latency", "token": "latency", "pool": "accent"}
PREFIX = 21
"""Cells before the text: time, level, source."""


def log_line(entry: LogEntry, manner: Manner) -> Line:
    """`13:04:59 ▲ worker  anna went offline`."""
    tone = _TONES[entry.level]
    # What happens many times a second stays in the background, so that the rest is seen.
    text = "dim" if entry.source == "task" and entry.level == "info" else tone
    return (
        (f"{clock(entry.at, manner.zone):<8} ", "dim"),
        (f"{manner.glyphs.levels[entry.level]} ", "dim" if entry.level == "info" else tone),
        (f"{entry.source[:8]:<9} ", _SOURCES.get(entry.source, "dim")),
        (entry.text, text),
    )
