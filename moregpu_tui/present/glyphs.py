"""Signs for states, bars and frames: in Unicode, and in ASCII for terminals that have nothing else.

Textual does not look at the locale, so we do: a console of Linux, a `dumb` terminal and LANG=C get ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from rich.cells import cell_len


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """One set of signs; each is one cell wide."""

    ascii: bool
    looks: dict[str, str]
    jobs: dict[str, str]
    tasks: dict[str, str]
    levels: dict[str, str]
    live: str
    stale: str
    offline: str
    bar: tuple[str, str, str]  # of a meter: full, half, empty
    rise: tuple[str, ...]  # the same from below
    empty: str
    cursor: str
    mark: str
    line: str
    up: str
    down: str
    dots: str
    check: str
    cross: str
    arrow: str
    left: str
    right: str


UNICODE = Glyphs(
    ascii=False,
    looks={
        "ready": "○", "busy": "●", "throttled": "◐", "draining": "▽", "offline": "✕", "paused": "◇",
        "suspect": "!", "pending": "?", "revoked": "–",
    },
    jobs={"queued": "○", "running": "●", "done": "✓", "failed": "✕", "cancelled": "–"},
    tasks={"waiting": "□", "leased": "▣", "done": "■", "failed": "✕", "cancelled": "–", "none": "·"},
    levels={"info": "·", "warning": "▲", "error": "✕"},
    live="●",
    stale="◐",
    offline="✕",
    bar=("━", "╸", "─"),
    rise=(" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"),
    empty="·",
    cursor="▌",
    mark="◆",
    line="─",
    up="▲",
    down="▼",
    dots="…",
    check="✓",
    cross="✕",
    arrow="→",
    left="‹",
    right="›",
)  # fmt: skip

ASCII = Glyphs(
    ascii=True,
    looks={
        "ready": "o", "busy": "*", "throttled": "~", "draining": "v", "offline": "x", "paused": "=",
        "suspect": "!", "pending": "?", "revoked": "-",
    },
    jobs={"queued": "o", "running": "*", "done": "+", "failed": "x", "cancelled": "-"},
    tasks={"waiting": ":", "leased": "~", "done": "#", "failed": "x", "cancelled": "-", "none": "."},
    levels={"info": ".", "warning": "!", "error": "x"},
    live="*",
    stale="~",
    offline="x",
    bar=("=", "-", "."),
    rise=(" ", ".", ".", ":", ":", "|", "|", "#", "#"),
    empty=".",
    cursor=">",
    mark="+",
    line="-",
    up="^",
    down="v",
    dots="~",
    check="+",
    cross="x",
    arrow=">",
    left="<",
    right=">",
)  # fmt: skip


def glyphs(wish: str, environment: Mapping[str, str], encoding: str) -> Glyphs:
    """The signs for a terminal. `wish`: auto, unicode or ascii."""
    if wish in ("ascii", "unicode"):
        return ASCII if wish == "ascii" else UNICODE
    plain = environment.get("TERM", "") in ("linux", "dumb", "vt100", "vt220", "")
    return ASCII if plain or "utf" not in encoding.lower() else UNICODE


def plain(text: str, glyphs: Glyphs) -> str:
    """Text as this terminal can show it: what has no sign of its own in ASCII becomes `?`.

    It takes as many cells as before: columns were made for them, and what is short of them leaves old signs behind.
    """
    if not glyphs.ascii or text.isascii():
        return text
    shown = ""
    for end, sign in enumerate(text, 1):
        own = sign if sign.isascii() else _TO_ASCII.get(sign, "?")
        cells = cell_len(text[:end]) - len(shown)  # none for what joins the sign before it
        shown += own if cells == 1 else own[0] * max(0, cells)
    return shown


_TO_ASCII = {
    "·": "-", "…": "~", "–": "-", "—": "-", "×": "x", "→": ">", "≤": "<", "≥": ">", "●": "*", "○": "o", "✓": "+",
    "µ": "u", "◐": "~", "✕": "x", "│": "|", "─": "-", "’": "'", "‹": "<", "›": ">", "▸": ">",
    "■": "#", "▣": "~", "□": ":", "▲": "^", "▼": "v", "◇": "=", "▽": "v", "◆": "+",
}  # fmt: skip
