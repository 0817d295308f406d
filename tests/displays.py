"""Real X servers and real session buses for tests: each its own, gone when the test is."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dbus_fast.aio import MessageBus
from dbus_fast.service import ServiceInterface


def need(program: str, package: str) -> str:
    """The program's path; the test is skipped where it is missing."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"missing: {program}; mend: apt-get install {package}")
    return found


class Screen:
    """An X server."""

    def __init__(self, name: str, process: subprocess.Popen[Any]):
        self.name = name
        self.process = process

    def move_mouse(self, x: int = 3, y: int = 2) -> None:
        """Real input, through XTEST."""
        subprocess.run(
            [need("xdotool", "xdotool"), "mousemove_relative", "--", str(x), str(y)],
            env=os.environ | {"DISPLAY": self.name},
            check=True,
        )

    def hang(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def screen(size: str = "640x480x24") -> Generator[Screen]:
    """An X server of its own."""
    need("Xvfb", "xvfb")
    read, write = os.pipe()
    process = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", size, "-nolisten", "tcp", "-ac"],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    try:
        with os.fdopen(read) as told:
            number = told.readline().strip()
        assert number, "Xvfb did not start"
        yield Screen(f":{number}", process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@contextmanager
def session_bus(folder: Path, *, activates: bool = False) -> Generator[str]:
    """A session bus of its own; yields its address. `activates`: it starts the services that are installed here."""
    need("dbus-daemon", "dbus-daemon")
    config = folder / "bus.conf"
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(
        "<!DOCTYPE busconfig PUBLIC '-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN'"
        " 'http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd'>"
        f"<busconfig><type>session</type><listen>unix:dir={folder}</listen><auth>EXTERNAL</auth>"
        f"{'<standard_session_servicedirs/>' if activates else ''}"
        "<policy context='default'><allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/>"
        "<allow own='*'/></policy></busconfig>"
    )
    read, write = os.pipe()
    process = subprocess.Popen(
        ["dbus-daemon", f"--config-file={config}", f"--print-address={write}", "--nofork", "--nopidfile"],
        pass_fds=[write],
    )
    os.close(write)
    try:
        with os.fdopen(read) as told:
            address = told.readline().strip()
        assert address, "dbus-daemon did not start"
        yield address
    finally:
        process.kill()
        process.wait()


@contextmanager
def served(address: str, name: str, objects: Mapping[str, ServiceInterface]) -> Generator[None]:
    """Another program on the bus, that owns `name` and serves these objects by their paths."""
    loop = asyncio.new_event_loop()
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        bus = await MessageBus(bus_address=address).connect()
        for path, interface in objects.items():
            bus.export(path, interface)
        await bus.request_name(name)
        ready.set()
        await over.wait()
        bus.disconnect()
        await bus.wait_for_disconnect()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(20)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
