"""An old X11 tray and no session bus: pystray docks the icon there."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from Xlib import X, display
from Xlib.protocol import event

from tests.displays import Screen, screen
from tests.tray.desktop import DEADLINE_S, Tray, plain_environment

pytestmark = pytest.mark.slow


class OldTray:
    """The least of an XEmbed system tray: owns the selection, and takes in who asks to be docked."""

    def __init__(self, name: str):
        self.display = display.Display(name)
        self._screen = self.display.screen()
        self.window = self._screen.root.create_window(
            0, 0, 64, 64, 0, self._screen.root_depth, event_mask=X.StructureNotifyMask
        )
        self.window.map()
        selection = self.display.intern_atom("_NET_SYSTEM_TRAY_S0")
        self.window.set_selection_owner(selection, X.CurrentTime)
        manager = event.ClientMessage(
            window=self._screen.root,
            client_type=self.display.intern_atom("MANAGER"),
            data=(32, [X.CurrentTime, selection, self.window.id, 0, 0]),
        )
        self._screen.root.send_event(manager, event_mask=X.StructureNotifyMask)
        self.display.sync()

    def docked(self) -> int:
        """The window that asked to be docked; it is taken in."""
        end = time.monotonic() + DEADLINE_S
        opcode = self.display.intern_atom("_NET_SYSTEM_TRAY_OPCODE")
        while time.monotonic() < end:
            select.select([self.display], [], [], 0.2)
            while self.display.pending_events():
                seen = self.display.next_event()
                if seen.type == X.ClientMessage and seen.client_type == opcode:
                    number = int(seen.data[1][2])
                    icon = self.display.create_resource_object("window", number)
                    icon.reparent(self.window, 0, 0)
                    icon.map()
                    self.display.sync()
                    return number
        raise AssertionError("nobody asked to be docked")


@pytest.fixture
def x() -> Iterator[Screen]:
    with screen() as found:
        yield found


def test_the_icon_is_docked_and_quitting_takes_it_away(x: Screen, tmp_path: Path) -> None:
    old = OldTray(x.name)
    tray = Tray(tmp_path / "tray", {**plain_environment(), "DISPLAY": x.name, "MOREGPU_YIELD": "off"})
    try:
        process = tray.start()
        assert old.docked()
        assert tray.status()["icon"] == "pystray"
        assert tray.say("quit").returncode == 0
        assert process.wait(20) == 0, "a backend that hangs is ended by the watchdog"
        assert "Traceback" not in tray.output() + tray.log()
    finally:
        tray.end()
        old.display.close()
