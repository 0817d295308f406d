"""The icon through pystray: Windows and macOS; on Linux where only an old X11 tray exists (icon, no menu).

pystray is imported inside: without a display its import itself raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from moregpu_tray.icon.draw import draw
from moregpu_tray.icon.protocol import Face, Picture
from moregpu_tray.menu import Do, Item
from moregpu_tray.view import Mood

SIZE = 64


class PystrayIcon:
    """Raises, when made, whatever pystray raises where it cannot work."""

    name = "pystray"

    def __init__(self):
        import pystray

        self._pystray: Any = pystray
        self._face = Face(picture=Picture(mood=Mood.OFFLINE), title="MoreGPU", tip="starting")
        self._click: Callable[[Item], None] = lambda _item: None
        self._ready = threading.Event()
        self._icon: Any = pystray.Icon(
            "moregpu", draw(self._face.picture, SIZE), "MoreGPU", pystray.Menu(lambda: self._entries(self._face.menu))
        )

    def run(self, click: Callable[[Item], None], started: Callable[[], None]) -> None:
        """Show it until `stop`."""
        self._click = click

        def set_up(icon: Any) -> None:
            icon.visible = True
            self._ready.set()
            self._apply(None, self._face)
            started()

        self._icon.run(set_up)

    def update(self, face: Face) -> None:
        """Show this; setting a picture takes 2–17 ms, on the caller's thread."""
        before, self._face = self._face, face
        if self._ready.is_set():
            self._apply(before, face)

    def notify(self, title: str, text: str) -> None:
        """Show a notification, where this backend has them."""
        if self._ready.is_set() and self._icon.HAS_NOTIFICATION:
            self._icon.notify(text, title)

    def stop(self) -> None:
        """End `run`. The X11 backend may hang here: whoever quits watches."""
        self._icon.stop()

    def _apply(self, before: Face | None, face: Face) -> None:
        if before is None or face.picture != before.picture:
            self._icon.icon = draw(face.picture, SIZE)
        if before is None or (face.title, face.tip) != (before.title, before.tip):
            self._icon.title = f"{face.title}: {face.tip}"[:127]  # Windows takes no more
        if before is None or face.menu != before.menu:
            self._icon.update_menu()

    def _entries(self, items: tuple[Item, ...]) -> tuple[Any, ...]:
        return tuple(self._entry(item) for item in items)

    def _entry(self, item: Item) -> Any:
        if not item.label:
            return self._pystray.Menu.SEPARATOR
        if item.children:
            return self._pystray.MenuItem(item.label, self._pystray.Menu(*self._entries(item.children)))
        return self._pystray.MenuItem(
            item.label,
            self._clicked(item),
            checked=_tick(item),
            radio=item.radio,
            enabled=item.enabled,
            default=item.do is Do.SHOW,
        )

    def _clicked(self, item: Item) -> Callable[[Any, Any], None]:
        return lambda _icon, _entry: self._click(item)


def _tick(item: Item) -> Callable[[Any], bool] | None:
    if item.ticked is None:
        return None

    def is_ticked(_entry: Any) -> bool:
        return bool(item.ticked)

    return is_ticked
