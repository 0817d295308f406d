"""Does this machine pay for its network by the byte? NetworkManager knows, where there is one."""

from __future__ import annotations

import asyncio
import sys

YES, GUESSED_YES = 1, 3
"""NMMetered."""

ASK_S = 2.0
_NAME = "org.freedesktop.NetworkManager"


def is_metered(bus_address: str | None = None) -> bool:
    """Ask; False when nobody knows. Blocks for at most 2 s; `bus_address`: another bus than the system's."""
    if sys.platform != "linux":
        return False
    try:
        return asyncio.run(_ask(bus_address))
    except (ImportError, OSError, EOFError, ValueError, TimeoutError):
        return False
    except Exception as error:
        if type(error).__module__.startswith("dbus_fast"):  # its errors share no base class
            return False
        raise


async def _ask(bus_address: str | None) -> bool:
    from dbus_fast import BusType, Message, MessageFlag, MessageType
    from dbus_fast.aio import MessageBus

    async with asyncio.timeout(ASK_S):
        bus = await MessageBus(bus_address=bus_address, bus_type=BusType.SYSTEM).connect()
        try:
            answer = await bus.call(
                Message(
                    destination=_NAME,
                    path="/org/freedesktop/NetworkManager",
                    interface="org.freedesktop.DBus.Properties",
                    member="Get",
                    signature="ss",
                    body=[_NAME, "Metered"],
                    flags=MessageFlag.NO_AUTOSTART,
                )
            )
        finally:
            bus.disconnect()
    if answer.message_type != MessageType.METHOD_RETURN:
        return False
    return answer.body[0].value in (YES, GUESSED_YES)
