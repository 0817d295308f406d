"""What every way of showing an icon does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from moregpu_tray.menu import Item
from moregpu_tray.view import Mood

STEPS = 16
"""Duty is drawn in sixteenths: finer changes cannot be seen and cost a redraw."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What the icon shows: no more than this, so that it is drawn again only when this changes."""

    mood: Mood
    sixteenths: int = 0


class Face(msgspec.Struct, frozen=True, kw_only=True):
    """All that a panel shows of the worker."""

    picture: Picture
    title: str
    tip: str
    menu: tuple[Item, ...] = ()


class TrayBackend(Protocol):
    """An icon. `run` belongs to the main thread (macOS demands it); the rest may be called from any."""

    name: str

    def run(self, click: Callable[[Item], None], started: Callable[[], None]) -> None:
        """Show the icon until `stop`. `click` gets what was clicked, `started` is called once it can be seen."""
        ...

    def update(self, face: Face) -> None:
        """Show this from now on."""
        ...

    def notify(self, title: str, text: str) -> None:
        """Tell the owner something."""
        ...

    def stop(self) -> None:
        """End `run`."""
        ...
