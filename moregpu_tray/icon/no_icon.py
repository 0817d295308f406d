"""No icon: headless machines, and desktops that show none. The worker is all the same."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from moregpu_tray.icon.protocol import Face
from moregpu_tray.menu import Item

_log = logging.getLogger(__name__)


class NoIcon:
    """Waits."""

    name = "none"

    def __init__(self):
        self._stop = threading.Event()

    def run(self, click: Callable[[Item], None], started: Callable[[], None]) -> None:
        """Until `stop`."""
        del click
        started()
        while not self._stop.wait(3600.0):  # a wait without end would keep signals out
            pass

    def update(self, face: Face) -> None:
        """Nothing shows it; `moregpu-tray status` does."""
        del face

    def notify(self, title: str, text: str) -> None:
        """Into the log."""
        _log.info("%s: %s", title, text)

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()
