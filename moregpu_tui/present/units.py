"""Figures as people read them; units always shown, three digits at most."""

from __future__ import annotations

NOTHING = "–"


def share(value: float | None) -> str:
    """0.62 → `62 %`."""
    return NOTHING if value is None else f"{100 * value:.0f} %"


def seconds(value: float | None) -> str:
    """A duration."""
    if value is None or value != value:
        return NOTHING
    if value < 0.0005:
        return f"{value * 1e6:.0f} µs" if value > 0 else "0 s"
    if value < 0.9995:
        return f"{three(value * 1e3)} ms"
    if value < 100:
        return f"{three(value)} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.0f} h" if value < 48 * 3600 else f"{value / 86400:.0f} d"


def count(value: float) -> str:
    """`950`, `12.3k`, `4.56M`."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{three(value / (1e3 if unit == 'k' else limit))}{unit}"
    return f"{value:.0f}"


def size(value: float | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return NOTHING
    for limit, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{three(value / limit)} {unit}"
    return f"{value:.0f} B"


def speed(value: float, key: str = "matmul") -> str:
    """Operations or bytes a second, by what the key measures."""
    unit = "FLOP/s" if "matmul" in key else "B/s"
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{three(value / limit)} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def flops(value: float) -> str:
    """A number of operations."""
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{three(value / limit)} {prefix}FLOP"
    return f"{value:.0f} FLOP"


def per_second(value: float, what: str = "") -> str:
    """A rate."""
    return f"{count(value) if value >= 100 else three(value)} {what}/s"


def plural(number: int, word: str, many: str = "") -> str:
    """`1 worker`, `2 workers`."""
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def three(value: float) -> str:
    """Three digits: 1.23, 12.3, 123."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def short_id(id: str) -> str:
    """Enough of an id to tell it apart; a job's time part says little, so its end stands for it."""
    head, dash, tail = id.partition("-")
    if not dash or len(tail) <= 10:
        return id
    return f"{head}-{tail[-8:]}" if head == "j" else f"{head}-{tail[:8]}"
