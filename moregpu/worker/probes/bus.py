"""A connection to D-Bus that blocks: for the thread that looks at the seat, and lives there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from dbus_fast import BusType, Message, MessageFlag, MessageType
from dbus_fast.aio import MessageBus

ASK_S = 0.5
"""An answer that takes longer is none."""


class Bus:
    """A bus, with a loop of its own. Raises whatever connecting raises: dbus-fast's errors share no base class."""

    def __init__(self, kind: BusType, address: str | None = None):
        """`address`: of another bus than the usual one of this kind."""
        self._loop = asyncio.new_event_loop()
        try:
            self._bus = self._loop.run_until_complete(self._connect(kind, address))
        except BaseException:
            self._loop.close()
            raise

    def ask(self, name: str, path: str, interface: str, member: str, *texts: str) -> list[Any] | None:
        """Call a method whose arguments are texts; None for an error or no answer in time. Starts no service."""
        message = Message(
            destination=name, path=path, interface=interface, member=member, signature="s" * len(texts),
            body=list(texts), flags=MessageFlag.NO_AUTOSTART,
        )  # fmt: skip
        answer = self._loop.run_until_complete(self._answer(message))
        return None if answer is None or answer.message_type != MessageType.METHOD_RETURN else answer.body

    def close(self) -> None:
        """Disconnect."""
        self._loop.run_until_complete(self._leave())
        self._loop.close()

    async def _connect(self, kind: BusType, address: str | None) -> MessageBus:
        async with asyncio.timeout(ASK_S):
            return await MessageBus(bus_address=address, bus_type=kind).connect()

    async def _answer(self, message: Message) -> Message | None:
        try:
            async with asyncio.timeout(ASK_S):
                return await self._bus.call(message)
        except TimeoutError:
            return None

    async def _leave(self) -> None:
        self._bus.disconnect()
        with suppress(Exception):  # it was lost before: nothing is left to wait for
            async with asyncio.timeout(ASK_S):
                await self._bus.wait_for_disconnect()
