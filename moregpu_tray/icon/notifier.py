"""A StatusNotifierItem on the session bus: what Xfce, KDE, Cinnamon, MATE, LXQt and Ubuntu's GNOME show.

Spoken directly, since the usual libraries lose the menu, the click or the alpha channel. Without a panel it waits on
the bus until one appears; when a panel starts again it registers again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from moregpu_tray.icon.bus_menu import INTERFACE as MENU
from moregpu_tray.icon.bus_menu import PATH as MENU_PATH
from moregpu_tray.icon.bus_menu import PROPERTIES as MENU_PROPERTIES
from moregpu_tray.icon.bus_menu import BusMenu
from moregpu_tray.icon.pictures import argb
from moregpu_tray.icon.protocol import Face, Picture
from moregpu_tray.menu import Do, Item
from moregpu_tray.view import Mood

_log = logging.getLogger(__name__)

ITEM = "org.kde.StatusNotifierItem"
ITEM_PATH = "/StatusNotifierItem"
WATCHER = "org.kde.StatusNotifierWatcher"
_WATCHER_PATH = "/StatusNotifierWatcher"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"
CALL_S = 3.0


class NotifierItem:
    """The icon, on a loop of the thread that calls `run`."""

    name = "StatusNotifierItem"

    def __init__(self):
        self.registered = False
        """Whether a panel shows it now."""
        self._face = Face(picture=Picture(mood=Mood.OFFLINE), title="MoreGPU", tip="starting")
        self._pixels: list[list[Any]] = []
        self._drawn: Picture | None = None
        self._dark = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bus: MessageBus | None = None
        self._stop: asyncio.Event | None = None
        self._stopped = False
        self._own_name = f"{ITEM}-{os.getpid()}-1"
        self._menu = BusMenu(lambda _item: None, self._menu_changed)
        self._untold: list[tuple[str, str]] = []  # before the bus was there
        self._calls: set[asyncio.Task[None]] = set()

    # -- from any thread

    def run(self, click: Callable[[Item], None], started: Callable[[], None]) -> None:
        """Show it until `stop`. Raises `OSError` when the bus cannot be reached."""
        self._click = click
        self._menu = BusMenu(click, self._menu_changed)
        self._menu.show(self._face.menu)
        asyncio.run(self._serve(started))

    def update(self, face: Face) -> None:
        """Show this from now on."""
        self._on_loop(lambda: self._update(face))
        if self._loop is None:
            self._face = face

    def notify(self, title: str, text: str) -> None:
        """Show a notification, where the desktop has them."""
        if self._loop is None and not self._stopped:
            self._untold.append((title, text))
        self._on_loop(lambda: self._start(self._notify(title, text)))

    def stop(self) -> None:
        """End `run`."""
        self._stopped = True
        self._on_loop(lambda: self._stop.set() if self._stop is not None else None)

    def _on_loop(self, work: Callable[[], Any]) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(work)
            except RuntimeError:
                pass  # it has just ended

    # -- on the loop

    async def _serve(self, started: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._bus = bus = await MessageBus(bus_type=BusType.SESSION).connect()
        try:
            self._dark = await self._prefers_dark()
            self._paint()
            bus.add_message_handler(self._answer)
            await bus.request_name(self._own_name)
            rule = f"type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{WATCHER}'"
            await self._call(
                "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch", "s", rule
            )
            await self._register()
            started()
            for title, text in self._untold:
                self._start(self._notify(title, text))
            lost = asyncio.ensure_future(bus.wait_for_disconnect())
            stop = asyncio.ensure_future(self._stop.wait())
            if self._stopped:
                return
            await asyncio.wait([lost, stop], return_when=asyncio.FIRST_COMPLETED)
            if lost.done() and not self._stopped:
                raise ConnectionResetError("the session bus is gone")
            lost.cancel()
        finally:
            self._loop, self._bus = None, None
            for call in list(self._calls):
                call.cancel()
            if bus.connected:
                bus.disconnect()

    async def _register(self) -> None:
        answer = await self._call(WATCHER, _WATCHER_PATH, WATCHER, "RegisterStatusNotifierItem", "s", self._own_name)
        self.registered = answer is not None
        _log.info("the panel shows the icon" if self.registered else "no panel yet; the icon waits for one")

    async def _prefers_dark(self) -> bool:
        """The desktop's own word on dark or light, where it says one; panels are dark mostly."""
        answer = await self._call(
            "org.freedesktop.portal.Desktop", "/org/freedesktop/portal/desktop", "org.freedesktop.portal.Settings",
            "Read", "ss", "org.freedesktop.appearance", "color-scheme",
        )  # fmt: skip
        value: Any = answer[0] if answer else None
        while isinstance(value, Variant):
            value = value.value
        return value != 2

    async def _notify(self, title: str, text: str) -> None:
        await self._call(
            "org.freedesktop.Notifications", "/org/freedesktop/Notifications", "org.freedesktop.Notifications",
            "Notify", "susssasa{sv}i", "MoreGPU", 0, "", title, _without_markup(text), [], {}, -1,
        )  # fmt: skip

    async def _call(
        self, name: str, path: str, interface: str, member: str, signature: str, *body: Any
    ) -> list[Any] | None:
        """A call's answer; None when nobody answers."""
        if self._bus is None:
            return None
        message = Message(
            destination=name, path=path, interface=interface, member=member, signature=signature, body=list(body)
        )
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._bus.call(message)
        except (TimeoutError, EOFError, OSError):
            return None
        return answer.body if answer.message_type == MessageType.METHOD_RETURN else None

    def _start(self, work: Any) -> None:
        """Run a call beside the loop; its task is held until it is done."""
        task = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _update(self, face: Face) -> None:
        before, self._face = self._face, face
        if face.picture != before.picture:
            self._paint()
            self._signal("NewIcon")
        if face.title != before.title:
            self._signal("NewTitle")
        if (face.title, face.tip) != (before.title, before.tip):
            self._signal("NewToolTip")
        self._menu.show(face.menu)

    def _paint(self) -> None:
        if self._drawn != self._face.picture:
            self._drawn = self._face.picture
            self._pixels = [[size, size, pixels] for size, pixels in argb(self._drawn, self._dark)]

    def _signal(self, member: str) -> None:
        if self._bus is not None and self._bus.connected:
            self._bus.send(Message.new_signal(ITEM_PATH, ITEM, member))

    def _menu_changed(self, revision: int) -> None:
        if self._bus is not None and self._bus.connected:
            self._bus.send(Message.new_signal(MENU_PATH, MENU, "LayoutUpdated", "ui", [revision, 0]))

    # -- what others ask

    def _answer(self, message: Message) -> Message | bool | None:
        if message.message_type == MessageType.SIGNAL:
            if message.member == "NameOwnerChanged" and message.body[0] == WATCHER:
                self.registered = False
                if message.body[2]:
                    self._start(self._register())
            return None
        if message.message_type != MessageType.METHOD_CALL or message.path not in (ITEM_PATH, MENU_PATH):
            return None
        answer = self._reply(message)
        return None if answer is None else Message.new_method_return(message, *answer)

    def _reply(self, message: Message) -> tuple[str, list[Any]] | None:
        properties = self._properties() if message.path == ITEM_PATH else MENU_PROPERTIES
        match (message.interface, message.member):
            case (str() as name, "Get") if name == _PROPERTIES:
                value = properties.get(message.body[1])
                return None if value is None else ("v", [value])
            case (str() as name, "GetAll") if name == _PROPERTIES:
                return "a{sv}", [properties]
            case (str() as name, "Introspect") if name == _INTROSPECTABLE:
                return "s", [_description(ITEM if message.path == ITEM_PATH else MENU, properties)]
            case (_, member) if message.path == MENU_PATH:
                return self._menu.answer(member or "", message.body)
            case (_, "Activate" | "SecondaryActivate"):
                self._click(Item(label="status", do=Do.SHOW))
                return "", []
            case (_, "ContextMenu" | "Scroll"):
                return "", []
            case _:
                return None

    def _properties(self) -> dict[str, Variant]:
        face = self._face
        return {
            "Category": Variant("s", "ApplicationStatus"),
            "Id": Variant("s", "moregpu"),
            "Title": Variant("s", face.title),
            "Status": Variant("s", "NeedsAttention" if face.picture.mood is Mood.TROUBLE else "Active"),
            "WindowId": Variant("i", 0),
            "IconName": Variant("s", ""),
            "IconPixmap": Variant("a(iiay)", self._pixels),
            "AttentionIconName": Variant("s", ""),
            "AttentionIconPixmap": Variant("a(iiay)", self._pixels),
            "OverlayIconName": Variant("s", ""),
            "ToolTip": Variant("(sa(iiay)ss)", ["", [], face.title, _without_markup(face.tip)]),
            "ItemIsMenu": Variant("b", False),
            "Menu": Variant("o", MENU_PATH),
        }


def _description(interface: str, properties: dict[str, Variant]) -> str:
    """What D-Bus viewers show."""
    lines = "".join(
        f'<property name="{name}" type="{value.signature}" access="read"/>' for name, value in properties.items()
    )
    return f'<node><interface name="{interface}">{lines}</interface></node>'


def _without_markup(text: str) -> str:
    """Notifications and tool tips may be read as HTML; names come from strangers."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
