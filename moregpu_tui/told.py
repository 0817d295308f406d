"""What is said in passing: that something worked, that something is not as it should be, what went wrong."""

from __future__ import annotations

from typing import ClassVar
from weakref import WeakKeyDictionary

from textual.app import ScreenStackError
from textual.css.query import NoMatches
from textual.notifications import Notifications
from textual.screen import ModalScreen, Screen
from textual.widgets._toast import ToastRack

from moregpu.errors import MoreGPUError
from moregpu.wire.text import clean
from moregpu_tui.places import Places

LENGTH = 600
"""Characters of it."""


class Told(Places):
    """An application that says things in passing."""

    _told_refused = False
    _before: ClassVar[WeakKeyDictionary[Screen[object], frozenset[str]]] = WeakKeyDictionary()

    def tell(self, text: str, timeout: float = 5.0) -> None:
        """Say that something worked."""
        self.notify(clean(text, LENGTH), timeout=timeout, markup=False)

    def warn(self, text: str) -> None:
        """Say that something is not as it should be."""
        self.notify(clean(text, LENGTH), severity="warning", timeout=8, markup=False)

    def fail(self, error: MoreGPUError) -> None:
        """Say what went wrong, and what to do next. Its words are the coordinator's, or a worker's."""
        said = [clean(part, LENGTH) for part in (error.detail, error.hint) if part]
        self.notify("\n".join(said), severity="error", timeout=12, markup=False)

    def tell_link(self) -> None:
        """Say why the coordinator lets us in no more, once: it stays so until somebody does something."""
        link = self.state.link
        if link.state == "refused" and self.state.loaded and not self._told_refused:
            self.fail(MoreGPUError(f"the coordinator refuses this console: {link.detail}", link.hint))
        self._told_refused = link.state == "refused" or (self._told_refused and link.state != "live")

    def _refresh_notifications(self) -> None:
        """Show what is said; what was said before a dialog came waits under it, for it would stand on its buttons.

        Textual calls this, of every screen that comes and at each word.
        """
        try:
            screen = self.screen
        except ScreenStackError:
            return
        if not isinstance(screen, ModalScreen):
            super()._refresh_notifications()
            return
        before = self._before.setdefault(screen, frozenset(told.identity for told in self._notifications))
        shown = Notifications()
        for told in self._notifications:
            if told.identity not in before:
                shown.add(told)
        try:
            rack = screen.get_child_by_type(ToastRack)
        except NoMatches:
            return
        self.call_later(rack.show, shown)
