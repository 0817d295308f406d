"""A desktop for the tray: an X server, a session bus, a panel's watcher, and the tray itself as a person starts it."""

# ruff: noqa: F821, F722, UP037 — dbus-fast reads D-Bus signatures from annotations
from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from dbus_fast.service import ServiceInterface, method

from tests.displays import Screen, screen, session_bus

WATCHER = "org.kde.StatusNotifierWatcher"
DEADLINE_S = 60.0
T = TypeVar("T")


def until(met: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """Wait for something true; returns it."""
    end = time.monotonic() + deadline_s
    while True:
        found = met()
        if found:
            return found
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


class _Watcher(ServiceInterface):
    def __init__(self, items: list[str]):
        super().__init__(WATCHER)
        self._items = items

    @method()
    def RegisterStatusNotifierItem(self, name: "s"):
        self._items.append(name)


class _Notifications(ServiceInterface):
    def __init__(self, heard: list[tuple[str, str]]):
        super().__init__("org.freedesktop.Notifications")
        self._heard = heard

    @method()
    def Notify(
        self, app: "s", old: "u", icon: "s", title: "s", text: "s", actions: "as", hints: "a{sv}", wait: "i"
    ) -> "u":
        self._heard.append((title, text))
        return 1


class Panel:
    """A panel: watches for icons, reads them, clicks in their menus."""

    def __init__(self, address: str, *, watching: bool = True):
        self.items: list[str] = []
        self.notified: list[tuple[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._bus: MessageBus = self._do(self._connect(address))
        if watching:
            self.appear()

    async def _connect(self, address: str) -> MessageBus:
        bus = await MessageBus(bus_address=address).connect()
        bus.export("/StatusNotifierWatcher", _Watcher(self.items))
        bus.export("/org/freedesktop/Notifications", _Notifications(self.notified))
        await bus.request_name("org.freedesktop.Notifications")
        return bus

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def appear(self) -> None:
        self._do(self._bus.request_name(WATCHER))

    def vanish(self) -> None:
        self.items.clear()
        self._do(self._bus.release_name(WATCHER))

    def icon(self) -> str:
        """The icon's name on the bus, as soon as there is one."""
        return until(lambda: self.items[-1] if self.items else "")

    def call(self, path: str, interface: str, member: str, signature: str = "", *body: Any) -> list[Any]:
        message = Message(
            destination=self.icon(), path=path, interface=interface, member=member, signature=signature, body=list(body)
        )
        answer = self._do(self._call(message))
        assert answer.message_type == MessageType.METHOD_RETURN, answer.body
        return answer.body

    async def _call(self, message: Message) -> Message:
        return await self._bus.call(message)

    def property(self, name: str) -> Any:
        (value,) = self.call(
            "/StatusNotifierItem", "org.freedesktop.DBus.Properties", "Get", "ss", "org.kde.StatusNotifierItem", name
        )
        return value.value

    def menu(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """Every entry by its label: id and properties."""
        _, root = self.call("/MenuBar", "com.canonical.dbusmenu", "GetLayout", "iias", 0, -1, [])
        found: dict[str, tuple[int, dict[str, Any]]] = {}

        def walk(node: list[Any]) -> None:
            number, properties, children = node
            plain = {name: value.value for name, value in properties.items()}
            if "label" in plain:
                found[plain["label"]] = (number, plain)
            for child in children:
                walk(child.value)

        walk(root)
        return found

    def click(self, label: str) -> None:
        number, _ = self.menu()[label]
        from dbus_fast import Variant

        self.call("/MenuBar", "com.canonical.dbusmenu", "Event", "isvu", number, "clicked", Variant("i", 0), 0)

    def close(self) -> None:
        async def leave() -> None:
            self._bus.disconnect()
            await self._bus.wait_for_disconnect()

        self._do(leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Tray:
    """`moregpu-tray`, as a person starts it."""

    def __init__(self, home: Path, environment: Mapping[str, str], command: list[str] | None = None):
        self.home = home
        self.environment = {**environment, "MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file"}
        self.command = command or [sys.executable, "-m", "moregpu_tray"]
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str, given: str = "") -> subprocess.Popen[str]:
        self.home.mkdir(mode=0o700, exist_ok=True)
        with (self.home / "output.log").open("a") as output:
            self.process = subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.PIPE, stdout=output, stderr=output, text=True, env=self.environment,
                start_new_session=True,
            )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(given)
        self.process.stdin.close()
        return self.process

    def say(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Another launch; its output."""
        return subprocess.run(
            [*self.command, *arguments], env=self.environment, input=given, capture_output=True, text=True, check=False,
            timeout=DEADLINE_S,
        )  # fmt: skip

    def status(self) -> dict[str, Any]:
        done = self.say("status", "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def until(self, met: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait for a status."""
        last: list[dict[str, Any]] = []

        def look() -> bool:
            last[:] = [self.status()]
            return "view" in last[0] and bool(met(last[0]))

        try:
            until(look)
        except AssertionError:
            raise AssertionError(f"never came; last: {last}; said: {self.output()}") from None
        return last[0]

    def output(self) -> str:
        return (self.home / "output.log").read_text() if (self.home / "output.log").exists() else ""

    def log(self) -> str:
        file = self.home / "logs" / "tray.log"
        return file.read_text() if file.exists() else ""

    def end(self) -> None:
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()


class Desktop:
    """All of it."""

    def __init__(self, x: Screen, address: str, panel: Panel, tray: Tray):
        self.screen, self.address, self.panel, self.tray = x, address, panel, tray


def plain_environment() -> dict[str, str]:
    """This process's environment without what belongs to a desktop or to MoreGPU."""
    desktops = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "XDG_SESSION_TYPE")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in desktops and not name.startswith(("MOREGPU_", "XDG_"))
    }


@contextmanager
def desktop(
    folder: Path, *, watching: bool = True, command: list[str] | None = None, **more: str
) -> Generator[Desktop]:
    """A desktop whose panel shows icons; the tray is not started yet."""
    with screen() as x, session_bus(folder / "bus") as address:
        panel = Panel(address, watching=watching)
        environment = {
            **plain_environment(), "DISPLAY": x.name, "DBUS_SESSION_BUS_ADDRESS": address,
            "XDG_CONFIG_HOME": str(folder / "config"), **more,
        }  # fmt: skip
        tray = Tray(folder / "tray", environment, command)
        try:
            yield Desktop(x, address, panel, tray)
        finally:
            tray.end()
            panel.close()


def compute_processes(pid: int) -> list[psutil.Process]:
    """The compute processes below a tray."""
    return [
        child
        for child in psutil.Process(pid).children(recursive=True)
        if "moregpu.worker.child" in " ".join(child.cmdline())
    ]


def spent(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)
