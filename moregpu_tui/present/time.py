"""Times of day and ages, in the zone that settings name."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from moregpu_tui.present.units import NOTHING, seconds


def zone_of(name: str) -> tzinfo | None:
    """`utc`, or None: this machine's own."""
    return UTC if name == "utc" else None


def clock(at: float | None, zone: tzinfo | None = None) -> str:
    """13:04:59."""
    return NOTHING if not at else _local(at, zone).strftime("%H:%M:%S")


def moment(at: float | None, zone: tzinfo | None = None) -> str:
    """2026-01-31 13:04."""
    return NOTHING if not at else _local(at, zone).strftime("%Y-%m-%d %H:%M")


def ago(at: float | None, now: float) -> str:
    """`12 s ago`; what is about to be is `now`."""
    if not at:
        return NOTHING
    age = max(0.0, now - at)
    return "now" if age < 1.5 else f"{seconds(float(int(age)))} ago".replace(".00", "").replace(".0 ", " ")


def until(at: float | None, now: float) -> str:
    """`in 40 min`; `expired`."""
    if not at:
        return "never"
    return f"in {seconds(float(int(at - now)))}".replace(".00", "").replace(".0 ", " ") if at > now else "expired"


def _local(at: float, zone: tzinfo | None) -> datetime:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.astimezone(zone)
