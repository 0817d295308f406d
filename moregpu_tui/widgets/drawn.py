"""What all drawn widgets share: where paint comes from, and lines that are kept until they change."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self, cast

from textual.geometry import Region, Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from moregpu_tui.app import ConsoleApp
    from moregpu_tui.present.manner import Manner
    from moregpu_tui.widgets.paint import Paint


class Drawn(Widget):
    """Draws its own lines from edge to edge, in the palette's own colours: it has no border, padding, tint or filter.

    So its lines go to the compositor as they are. Textual's way builds four strips for one and looks up forty styles
    for each line: it was half of what a console cost that shows much news.
    """

    _kept: list[Strip | None] = []
    _kept_width = 0

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Draw again: everything, or these regions."""
        if repaint and self._kept:
            if regions:
                kept = self._kept
                for region in regions:
                    for y in range(max(0, region.y), min(region.bottom, len(kept))):
                        kept[y] = None
            else:
                self._kept = []
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a part that is seen. What is right of them a scrollbar has, or what lies below."""
        width, height = self.size
        kept = self._kept
        if len(kept) != height or width != self._kept_width:
            fresh: list[Strip | None] = [None] * height
            kept = self._kept = fresh
            self._kept_width = width
        lines: list[Strip] = []
        for y in range(crop.y, min(crop.bottom, height)):
            line = kept[y]
            if line is None:
                line = kept[y] = self.render_line(y)
            lines.append(line)
        if crop.x or crop.right < width:
            return [line.crop(crop.x, min(crop.right, width)) for line in lines]
        return lines

    @cached_property
    def ground(self) -> str:
        """What it stands on: a dialog's box is a little lighter than a screen."""
        return "surface" if isinstance(self.screen, ModalScreen) else "base"


class Scrolled(ScrollView, Drawn):  # pyright: ignore[reportIncompatibleMethodOverride] — Textual's own, of scroll_to
    """Lines of which a part is in view."""

    _bar: tuple[int, int, bool] | None = None

    @property
    def room(self) -> int:
        """Cells of a line that nothing covers: a scrollbar stands on the last one."""
        return self.size.width - int(self.show_vertical_scrollbar)

    def measure(self, lines: int) -> None:
        """There are so many lines now. Nothing is laid out anew where everything stays in its place.

        It is as high as its lines, not as its place: a place that becomes lower would be too low for it until it was
        measured again, and be drawn with a scrollbar and nothing else meanwhile.
        """
        width, height = self.size
        if self.styles.is_auto_height:
            self.virtual_size = Size(width, lines)
            return
        size = Size(width, lines)
        if size == self.virtual_size:
            return
        if width == self.virtual_size.width and self.show_vertical_scrollbar == (lines > height):
            self.set_reactive(Scrolled.virtual_size, size)  # pyright: ignore[reportArgumentType] — of a class: the reactive
            self.scroll_y = self.scroll_y  # no further than there are lines
            self._move_bar()
        else:
            self._bar = None
            self.virtual_size = size

    def bring(self, line: float) -> None:
        """Show from this line on, or as far down as there are lines.

        By force: Textual scrolls nothing before a layout has shown the bar, so a key right after a filter was closed
        would be lost.
        """
        self.scroll_to(y=line, animate=False, immediate=True, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Another part is in view."""
        self._move_bar()
        if round(old_value) != round(new_value):
            self.refresh(self.size.region)

    def _move_bar(self) -> None:
        """Draw the scrollbar again once its thumb would look different: it has eight steps a cell."""
        if not self.show_vertical_scrollbar:
            return
        height, lines = self.size.height, max(1, self.virtual_size.height)
        steps = 8 * height / lines
        looks = (int(steps * self.scroll_y), int(steps * height), self.scroll_y in (0, self.max_scroll_y))
        if looks != self._bar:
            self._bar = looks
            self.vertical_scrollbar.window_virtual_size = lines
            self.vertical_scrollbar.position = self.scroll_y


def console_of(widget: Widget) -> ConsoleApp:
    """The application, by its own type."""
    return cast("ConsoleApp", widget.app)


def paint_of(widget: Widget) -> Paint:
    """How tones look now."""
    return console_of(widget).paint


def manner_of(widget: Widget) -> Manner:
    """Signs and zone now."""
    return console_of(widget).manner


def refresh_rows(widget: Widget, rows: list[int]) -> None:
    """Draw these rows of the screen again, and no others."""
    width, height = widget.size
    regions = [Region(0, row, width, 1) for row in rows if 0 <= row < height]
    if regions:
        widget.refresh(*regions)
