"""Which way of showing an icon works here, tried in order; there is always one, if only none."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from moregpu_tray.icon.no_icon import NoIcon
from moregpu_tray.icon.protocol import TrayBackend

_log = logging.getLogger(__name__)


def choose(*, headless: bool = False) -> TrayBackend:
    """The best backend for this desktop."""
    if headless:
        return NoIcon()
    if sys.platform != "linux":
        return _pystray() or NoIcon()
    bus, panel = _session_bus()
    if bus and not panel and _old_tray():
        found = _pystray()
        if found is not None:
            return found
    if bus:
        from moregpu_tray.icon.notifier import NotifierItem

        return NotifierItem()
    return (_pystray() if _old_tray() else None) or NoIcon()


def _pystray() -> TrayBackend | None:
    try:
        from moregpu_tray.icon.pystray_icon import PystrayIcon

        return PystrayIcon()
    except Exception as error:  # noqa: BLE001 — Xlib.error.DisplayNameError, ValueError of gi, ImportError, …
        _log.info("pystray does not work here: %s: %s", type(error).__name__, error)
        return None


def _session_bus() -> tuple[bool, bool]:
    """Whether there is a session bus, and whether a panel that knows our kind of icon is on it."""
    if not os.environ.get("DBUS_SESSION_BUS_ADDRESS") and not os.environ.get("XDG_RUNTIME_DIR"):
        return False, False
    try:
        return True, asyncio.run(_has_watcher())
    except Exception as error:  # noqa: BLE001 — dbus-fast's errors share no base class with OSError
        _log.info("no session bus: %s", error)
        return False, False


async def _has_watcher() -> bool:
    from dbus_fast import BusType, Message
    from dbus_fast.aio import MessageBus

    from moregpu_tray.icon.notifier import WATCHER

    async with asyncio.timeout(3.0):
        bus = await MessageBus(bus_type=BusType.SESSION).connect()
        try:
            answer = await bus.call(
                Message(
                    destination="org.freedesktop.DBus",
                    path="/org/freedesktop/DBus",
                    interface="org.freedesktop.DBus",
                    member="NameHasOwner",
                    signature="s",
                    body=[WATCHER],
                )
            )
            return bool(answer.body[0])
        finally:
            bus.disconnect()


def _old_tray() -> bool:
    """Whether an X11 system tray (XEmbed) is there."""
    name = os.environ.get("DISPLAY")
    if not name or os.environ.get("WAYLAND_DISPLAY"):
        return False
    try:
        from Xlib import display

        shown = display.Display(name)
        try:
            owner = shown.get_selection_owner(shown.intern_atom(f"_NET_SYSTEM_TRAY_S{shown.get_default_screen()}"))
            return bool(owner)
        finally:
            shown.close()
    except Exception as error:  # noqa: BLE001 — Xlib's errors share no base class
        _log.info("no X11 display: %s", error)
        return False
