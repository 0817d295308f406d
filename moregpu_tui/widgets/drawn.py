"""What all drawn widgets share: where paint comes from, and that a hidden one draws nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.geometry import Region
from textual.screen import ModalScreen
from textual.widget import Widget

if TYPE_CHECKING:
    from moregpu_tui.app import ConsoleApp
    from moregpu_tui.present.manner import Manner
    from moregpu_tui.widgets.paint import Paint


def console_of(widget: Widget) -> ConsoleApp:
    """The application, by its own type."""
    return cast("ConsoleApp", widget.app)


def paint_of(widget: Widget) -> Paint:
    """How tones look now."""
    return console_of(widget).paint


def manner_of(widget: Widget) -> Manner:
    """Signs and zone now."""
    return console_of(widget).manner


def ground_of(widget: Widget) -> str:
    """What a widget stands on: a dialog's box is a little lighter than a screen."""
    return "surface" if isinstance(widget.screen, ModalScreen) else "base"


def refresh_rows(widget: Widget, rows: list[int]) -> None:
    """Draw these rows of the screen again, and no others."""
    width, height = widget.size
    regions = [Region(0, row, width, 1) for row in rows if 0 <= row < height]
    if regions:
        widget.refresh(*regions)
