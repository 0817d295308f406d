"""Containers that only say where their parts stand. What lies between those is the screen's own ground."""

from __future__ import annotations

from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Bare(Widget):
    """Draws nothing: each layer of blanks under a screen costs as much as what stands on it."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """None: the screen's lines are seen."""
        return []


class Down(Vertical, Bare):
    """Parts under each other."""


class Side(Horizontal, Bare):
    """Parts beside each other."""
