"""The owner at a Wayland desktop, through the session bus: GNOME's idle monitor, else `org.freedesktop.ScreenSaver`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from dbus_fast import BusType, Message, MessageType
from dbus_fast.aio import MessageBus

from moregpu.worker.probes.presence import Presence

ASK_S = 0.5
"""An answer that takes longer is none."""

_MUTTER = ("org.gnome.Mutter.IdleMonitor", "/org/gnome/Mutter/IdleMonitor/Core", "GetIdletime", 0.001)
_SCREEN_SAVER = ("org.freedesktop.ScreenSaver", "/org/freedesktop/ScreenSaver", "GetSessionIdleTime", 1.0)


class SessionBusSeat:
    """A connection to the session bus, with a loop of its own: it lives on the thread that looks."""

    def __init__(self):
        """Connect and find who counts idle time; raises `OSError` when nobody does."""
        self._loop = asyncio.new_event_loop()
        try:
            self._bus = self._loop.run_until_complete(self._connect())
            self._way = next((way for way in (_MUTTER, _SCREEN_SAVER) if self._ask(way) is not None), None)
        except BaseException:
            self._loop.close()
            raise
        if self._way is None:
            self.close()
            raise OSError("this desktop does not tell since when it is idle")

    def presence(self) -> Presence:
        """Look; raises `OSError` when the desktop no longer answers."""
        idle_s = None if self._way is None else self._ask(self._way)
        if idle_s is None:
            raise OSError("the desktop no longer tells since when it is idle")
        return Presence(idle_s=idle_s)

    def close(self) -> None:
        """Disconnect."""
        self._loop.run_until_complete(self._leave())
        self._loop.close()

    async def _leave(self) -> None:
        self._bus.disconnect()
        with suppress(Exception):  # it was lost before: nothing is left to wait for
            async with asyncio.timeout(ASK_S):
                await self._bus.wait_for_disconnect()

    async def _connect(self) -> MessageBus:
        async with asyncio.timeout(ASK_S):
            return await MessageBus(bus_type=BusType.SESSION).connect()

    def _ask(self, way: tuple[str, str, str, float]) -> float | None:
        """Idle seconds, or None."""
        name, path, member, unit_s = way
        message = Message(destination=name, path=path, interface=name, member=member)

        async def ask() -> Any:
            try:
                async with asyncio.timeout(ASK_S):
                    return await self._bus.call(message)
            except TimeoutError:
                return None

        answer = self._loop.run_until_complete(ask())
        if answer is None or answer.message_type != MessageType.METHOD_RETURN or not answer.body:
            return None
        return float(answer.body[0]) * unit_s
