"""The bar at the top: pool, connection, figures, role."""

from __future__ import annotations

from moregpu_tui.present.cells import Line, Piece
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.units import per_second, seconds
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.selectors import fleet_counts, job_counts, link_word


def bar(
    state: PoolState, manner: Manner, now: float, *, readonly: bool, kind: str = "", narrow: bool = False
) -> tuple[Line, Line]:
    """(left end, right end). `now` is our own clock; `kind` says demo or replay; `narrow`: below 100 columns."""
    name = state.pool.name if state.pool else "MoreGPU"
    left: list[Piece] = [(f" {name} ", "strong")]
    if kind:
        left.append((f" {kind} ", "pending"))
    left.append(connection(state, manner, now))
    workers, total = fleet_counts(state)
    queued, running = job_counts(state)
    rate = state.history.get("throughput", (0.0,))[-1] if state.history else 0.0
    if narrow:
        return tuple(left), (
            (f"{workers:,}/{total:,}", "text"), (" workers  ", "dim"), (f"{queued:,}+{running:,}", "text"),
            (" jobs  ", "dim"), (per_second(rate), "text"), ("  ", "dim"),
            ("read only" if readonly else state.role, "accent"), (" ", "dim"),
        )  # fmt: skip
    right: list[Piece] = [
        ("workers ", "dim"), (f"{workers:,}/{total:,}", "text"),
        ("   queue ", "dim"), (f"{queued:,}", "text"), (" + ", "dim"), (f"{running:,}", "text"), (" running", "dim"),
        ("   ", "dim"), (f"{per_second(rate, 'grains'):>14}", "text"),
        ("   ", "dim"), ("read only" if readonly else state.role, "accent"), (" ", "dim"),
    ]  # fmt: skip
    return tuple(left), tuple(right)


def connection(state: PoolState, manner: Manner, now: float) -> Piece:
    """`● live 0.2 s`, `◐ stale 12 s`, `✕ offline, retry in 8 s`."""
    link, glyphs = state.link, manner.glyphs
    match link_word(link, now):
        case "live":
            return (f" {glyphs.live} live {seconds(link.lag_s)}" if link.lag_s else f" {glyphs.live} live", "good")
        case "stale":
            return (f" {glyphs.stale} stale {now - link.heard_at:.0f} s", "warn")
        case "offline":
            wait = max(0.0, link.retry_at - now)
            return (f" {glyphs.offline} offline, retry in {wait:.0f} s" if wait >= 0.5
                    else f" {glyphs.offline} offline, trying", "bad")  # fmt: skip
        case "refused":
            return (f" {glyphs.offline} refused", "bad")
        case _:
            return (f" {glyphs.stale} connecting", "warn")
