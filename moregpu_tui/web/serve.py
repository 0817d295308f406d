"""`moregpu-tui --web`: listens on this machine, says where, and runs until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Generator
from pathlib import Path

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from moregpu.errors import PortInUse
from moregpu.platform.paths import state_folder
from moregpu.platform.private import write_private
from moregpu.platform.signals import ending_signals
from moregpu_tui.options import Options
from moregpu_tui.web.door import Door
from moregpu_tui.web.look import look
from moregpu_tui.web.peers import is_ours
from moregpu_tui.web.session import Consoles
from moregpu_tui.web.site import site
from moregpu_tui.web.terminal import END_S

ADDRESS = "127.0.0.1"
MAX_CONSOLES = 8
MAX_CONNECTIONS = 64
MAX_MESSAGE_BYTES = 1 << 20
PING_S = 20.0
"""A page that answers no ping for so long is gone, and its console ends."""


def run_web(options: Options) -> int:
    """Serve until interrupted or told to end; the exit status."""
    door = Door()
    with _listen(options.port) as listener:
        port = int(listener.getsockname()[1])
        # What stands behind `#` is sent nowhere and is in no log; the page takes it out of the address at once.
        link = f"http://{ADDRESS}:{port}/#{door.token}"
        consoles = Consoles(command(options), door.fits, MAX_CONSOLES)
        server = Doorway(site(door, consoles, look, is_ours))
        with _opened(link, port) if options.open and has_desktop() else contextlib.nullcontext():
            return asyncio.run(_serve(server, listener, consoles, link))


def command(options: Options) -> list[str]:
    """How the console of a tab is started: as this program was, but for the web."""
    given = [
        *(["--demo"] if options.demo else []),
        *(["--demo-workers", str(options.demo_workers)] if options.demo else []),
        *(["--demo-churn", str(options.demo_churn)] if options.demo else []),
        *(["--connect", options.connect] if options.connect else []),
        *(["--profile", options.profile] if options.profile else []),
        *(["--readonly"] if options.readonly else []),
        *(["--ascii"] if options.ascii else []),
        *([] if options.mouse else ["--no-mouse"]),
        *(["--replay", options.replay] if options.replay else []),
    ]
    return [sys.executable, "-m", "moregpu_tui", *given]


class Doorway(Server):
    """uvicorn without its ten looks a second, and with its signals left to us."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            Config(
                app,
                http=HttpToolsProtocol,
                ws=WebSocketsSansIOProtocol,
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                ws_max_size=MAX_MESSAGE_BYTES,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PING_S,
                ws_per_message_deflate=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=int(END_S) + 1,
            )
        )
        self._told = asyncio.Event()
        self.status = 0

    def end(self, number: int) -> None:
        """A signal came: the tabs are told, their consoles end."""
        self.status = 0 if number == signal.SIGINT else 128 + number
        self.should_exit = True
        self._told.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Ours are set already."""
        yield

    async def main_loop(self) -> None:
        """Sleep until the end."""
        await self._told.wait()


async def _serve(server: Doorway, listener: socket.socket, consoles: Consoles, link: str) -> int:
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, server.end, number)
    sys.stdout.write(f"the console is at {link} for the first browser that opens it; ctrl+c ends it\n")
    sys.stdout.flush()
    try:
        await server.serve(sockets=[listener])
    finally:
        consoles.kill()
    return server.status


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise PortInUse(
            f"port {port} of {ADDRESS} cannot be had: {error.strerror}", "leave out --port: a free one is found"
        ) from error
    return listener


# ---- the browser -----------------------------------------------------------------------------------------------------


def has_desktop() -> bool:
    """Whether a browser would be seen: text browsers would take this very terminal."""
    if sys.platform != "linux":
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


@contextlib.contextmanager
def _opened(link: str, port: int) -> Generator[None, None, None]:
    """Open the browser while this lasts.

    It is given a file of this user's that leads to the link, not the link: other users of the machine can read what
    programs are started with.
    """
    file = state_folder("console") / f"open-{port}.html"
    write_private(file, _leading_to(link).encode())
    threading.Thread(target=_open, args=(file,), daemon=True).start()  # some wait for the browser to end
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _open(file: Path) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):  # the line is there for whoever has no browser
        webbrowser.open(file.as_uri())


def _leading_to(link: str) -> str:
    to = html.escape(link)
    return (
        "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>MoreGPU</title>"
        f'<meta http-equiv=refresh content="0; url={to}"><p><a href="{to}">The console</a>'
    )
