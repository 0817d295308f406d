"""The shell around the doors: accepts connections, bounds them, and speaks HTTP and WebSocket by uvicorn.

uvicorn bounds neither how many connections wait for their TLS handshake, nor how long a head may take, nor how large it
may be. So connections are accepted here, one by one, and its HTTP protocol is watched:

- at most `MAX_HANDSHAKES` unfinished TLS handshakes, 10 s each; the oldest gives way to a new one;
- a request's head must be there within 10 s and `MAX_HEAD_BYTES`;
- at most `MAX_CONNECTIONS` together; the one that has been idle longest gives way.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any, cast

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from moregpu.coordinator.cork import Corked
from moregpu.coordinator.framing import BINARY, TEXT, head, whole_messages
from moregpu.coordinator.handover import MAX_UNREAD, MAX_UNSENT_BYTES
from moregpu.coordinator.protocol import WORDS
from moregpu.coordinator.secured import BUFFER_BYTES, Secured
from moregpu.coordinator.threshold import MAX_HEAD_BYTES, WS_MAX_BYTES, FirstWord, WorkerDoor
from moregpu.platform.logs import facts

log = logging.getLogger(__name__)

HEAD_S = 10.0
MAX_HANDSHAKES = 256
"""A handshake holds some 50 KiB of buffers while it lasts."""
MAX_CONNECTIONS = 16_384
"""10,000 workers, and everybody who asks."""
KEEP_ALIVE_S = 75
_RESERVED_FILES = 256
"""Descriptors left for the database, blobs and workers' files."""


class Doorway(Server):
    """A uvicorn server that accepts by itself, leaves signals to its caller, and ends when it is told to.

    Without a `context` it speaks without TLS: only ever on loopback. Workers come by `workers`, where that is given.
    """

    def __init__(
        self,
        app: ASGIApp,
        context: ssl.SSLContext | None,
        listeners: list[socket.socket],
        workers: WorkerDoor | None = None,
    ):
        super().__init__(
            Config(
                app,
                http=WatchedHttp,
                ws=WatchedSocket,
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,  # whoever connects is who connects; a forwarding header proves nothing
                server_header=False,
                ws_max_size=WS_MAX_BYTES,
                ws_ping_interval=None,  # workers have heartbeats, events their quiet sign
                ws_per_message_deflate=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=5,
                interface="asgi3",
                ssl_context_factory=None if context is None else lambda config, default: context,
            )
        )
        self.config.load()
        self._context = context
        self._buffer = memoryview(bytearray(0 if context is None else BUFFER_BYTES))
        self._listeners = listeners
        self._workers = workers
        self._idle: dict[WatchedHttp | FirstWord, None] = {}  # in the order they fell idle
        self._coming: set[asyncio.Task[None]] = set()
        self._handshakes: dict[Secured, asyncio.TimerHandle] = {}  # the oldest first
        self._ending = asyncio.Event()
        self._closed = False
        self._acceptors: list[asyncio.Task[None]] = []
        self._max_connections = min(MAX_CONNECTIONS, _files_allowed() - _RESERVED_FILES)

    def end(self) -> None:
        """Stop: no new connections, running requests get 5 s."""
        self.close_listeners()
        self.should_exit = True
        self._ending.set()

    def close_listeners(self) -> None:
        """Nobody new comes in from now on; who is inside is served."""
        self._closed = True
        for acceptor in self._acceptors:
            acceptor.cancel()  # each closes its listener

    async def run_doors(self) -> None:
        """Serve until `end`."""
        self._acceptors = [asyncio.create_task(self._accept(listener)) for listener in self._listeners]
        try:
            await self.serve()
        finally:
            waiting = [*self._acceptors, *self._coming]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for secured in list(self._handshakes):
                secured.abort()

    # what uvicorn's server does otherwise

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the caller: a coordinator is not always alone in its process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen already; connections come through `_accept`."""
        self.servers: list[asyncio.base_events.Server] = []
        self.started = True

    async def main_loop(self) -> None:
        """Sleep until the end, but for the Date header once a second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._ending.wait()

    # accepting

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._closed:
                try:
                    connection = await _next_of(listener, loop)
                except OSError as error:
                    log.warning("a connection could not be accepted", extra=facts(why=str(error)))
                    await asyncio.sleep(0.1)  # out of descriptors: let some go first
                    continue
                self._make_room()
                task = loop.create_task(self._take_in(connection))
                self._coming.add(task)
                task.add_done_callback(functools.partial(self._taken_in, connection))
                await asyncio.sleep(0)  # a crowd at the door must not keep the loop from those inside
        finally:
            listener.close()

    async def _take_in(self, connection: socket.socket) -> None:
        """From here on the connection is a transport's, and its protocol's."""
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made = self._protocol if self._context is None else functools.partial(self._secured, self._context)
            await asyncio.get_running_loop().connect_accepted_socket(made, connection)
        except OSError as error:  # gone already
            log.debug("a connection came to nothing", extra=facts(why=str(error)))
            connection.close()

    def _taken_in(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._coming.discard(task)
        if task.cancelled():
            # Only now: a transport that was made has let go of the descriptor, whose number may be used again. A task
            # that was cancelled before it began made none, and nobody else closes the socket.
            connection.close()
        elif (error := task.exception()) is not None:
            log.error("a connection failed", exc_info=error)

    def _secured(self, context: ssl.SSLContext) -> asyncio.Protocol:
        """TLS; what it protects is a protocol of ours once the handshake has passed."""
        secured = Secured(context, self._buffer, self._protocol, self._shaken)
        self._handshakes[secured] = asyncio.get_running_loop().call_later(HEAD_S, secured.abort)
        return secured

    def _shaken(self, secured: Secured, error: Exception | None) -> None:
        """A handshake ended: well, or with plain HTTP, TLS 1.2, silence, a connection that is gone."""
        self._handshakes.pop(secured).cancel()
        if error is not None:
            log.debug("a TLS handshake failed", extra=facts(why=str(error)))

    def _make_room(self) -> None:
        """The oldest unfinished handshake, or the connection idle longest, gives way to a new one."""
        if len(self._handshakes) >= MAX_HANDSHAKES:
            next(iter(self._handshakes)).abort()
        if len(self.server_state.connections) + len(self._handshakes) >= self._max_connections and self._idle:
            next(iter(self._idle)).let_go()

    def _protocol(self) -> asyncio.Protocol:
        return self.server() if self._workers is None else FirstWord(self, self._workers)

    # what the protocols ask and report

    def server(self, head_until: float | None = None) -> asyncio.Protocol:
        """Who answers all but workers. `head_until`: when its first head should be there, by the loop's clock."""
        return WatchedHttp(self.config, self.server_state, {}, doorway=self, head_until=head_until)

    def head_until(self) -> float:
        """When a head that begins now should be there."""
        return asyncio.get_running_loop().time() + HEAD_S

    def when_late(self, late: Callable[[], None], until: float) -> asyncio.TimerHandle:
        """Call it then."""
        return asyncio.get_running_loop().call_at(until, late)

    def fell_idle(self, protocol: WatchedHttp | FirstWord) -> None:
        """Nothing is asked on this connection now."""
        self._idle[protocol] = None

    def busy(self, protocol: WatchedHttp | FirstWord) -> None:
        """Asked, upgraded, or gone."""
        self._idle.pop(protocol, None)


async def _next_of(listener: socket.socket, loop: asyncio.AbstractEventLoop) -> socket.socket:
    """The next connection. Where many wait already, to be woken for each would cost more than to take it."""
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        connection, _ = await loop.sock_accept(listener)
    return connection


class WatchedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol, whose heads come in time and in bounds."""

    def __init__(
        self,
        config: Config,
        server_state: Any,
        app_state: dict[str, Any],
        *,
        doorway: Doorway,
        head_until: float | None,
    ):
        super().__init__(config, server_state, app_state)
        self._doorway = doorway
        self._first_until = head_until
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a head that has 10 s."""
        super().connection_made(cast("asyncio.Transport", Corked(transport, self.loop)))
        self._doorway.fell_idle(self)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._head_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head."""
        if self._in_head:
            if self._head_timer is None:
                self._time_head()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        """The head is there: the rest is the handlers'."""
        self._in_head = False
        self._head_bytes = 0
        self._head_there()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """What follows is the next head."""
        self._in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Idle until the next head begins."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._doorway.fell_idle(self)

    def let_go(self) -> None:
        """Make room for another connection."""
        self._head_there()
        self.transport.abort()

    def _time_head(self) -> None:
        until, self._first_until = self._first_until, None
        self._head_timer = self._doorway.when_late(self._head_late, until or self._doorway.head_until())

    def _head_there(self) -> None:
        self._doorway.busy(self)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.abort()


class WatchedSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, which lets little lie unread and answers no flood of pings.

    A route may `listen`: then it is told each message in the turn of the loop in which its bytes came, and says what
    it has to say by `say`; of the queue between server and route only the end comes.
    """

    def __init__(self, config: Config, server_state: Any, app_state: dict[str, Any]):
        super().__init__(config, server_state, app_state)
        self._hear: Callable[[bytes | str], None] | None = None
        self._reads = 0
        self._plain = False  # whether nothing but whole messages came so far
        self._begun = b""

    # what a route asks

    def listen(self, hear: Callable[[bytes | str], None]) -> None:
        """From now on `hear` is told each message; it may not raise."""
        self._hear = hear
        self._plain = self._reads == 1  # the opening request, and nothing that the library has read in part

    @property
    def has_room(self) -> bool:
        """Whether `say` may be called: the other end reads, and the socket is open."""
        return self.writable.is_set() and not self.close_sent and not self.disconnected

    def say(self, message: bytes | str, *, at_once: bool) -> None:
        """Write a message: `at_once`, or with what else is said in this turn of the loop."""
        data = message if isinstance(message, bytes) else message.encode()
        frame = head(len(data), BINARY if isinstance(message, bytes) else TEXT) + data
        transport = cast("Corked", self.transport)
        if at_once:
            transport.flush()
            transport.inner.write(frame)
        else:
            transport.write(frame)

    # what the server does otherwise

    def handle_connect(self, event: Request) -> None:
        """Let the route find its socket."""
        super().handle_connect(event)
        if not self.close_sent:
            cast("dict[str, Any]", self.scope)["extensions"][WORDS] = self

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The route is through: nothing holds on to itself any more."""
        super().on_task_complete(task)
        self._hear = None
        cast("dict[str, Any]", self.scope)["extensions"].pop(WORDS, None)

    def data_received(self, data: bytes) -> None:
        """Take whole messages off the front, as nearly all that comes is; from the first other one on, the library."""
        self._reads += 1
        if self._plain and self._hear is not None:
            messages, data, is_other = whole_messages(self._begun + data if self._begun else data)
            self._plain, self._begun = not is_other, b"" if is_other else data
            for message in messages:
                if not self.close_sent:
                    self._hear(message)
            if not is_other:
                return
        super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        """Pass a message on. What lies unread stops the reading, but not each message: that costs two system calls."""
        if self._hear is not None:
            self._tell(self._hear)
            return
        paused, has_room = self.read_paused, self.queue.qsize() < MAX_UNREAD
        self.read_paused = paused or has_room  # what is paused is not paused again
        super().send_receive_event_to_app()
        if has_room:
            self.read_paused = paused

    def _tell(self, hear: Callable[[bytes | str], None]) -> None:
        data, self.frames = b"".join(self.frames), []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "bytes":
            hear(data)
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.conn.send_close(1007)
            self.handle_parser_exception()
        else:
            hear(text)

    def handle_ping(self) -> None:
        """Answer, unless the other end pings and does not read: its answers would fill the memory."""
        if self.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.conn.data_to_send()
        else:
            super().handle_ping()


def _files_allowed() -> int:
    """Raise this process's soft limit of open files to the hard one; returns what it is."""
    try:
        import resource
    except ImportError:  # Windows: sockets are no files there
        return MAX_CONNECTIONS + _RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, MAX_CONNECTIONS + _RESERVED_FILES) if hard != resource.RLIM_INFINITY else MAX_CONNECTIONS + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError):
            pass
    return wanted if soft == resource.RLIM_INFINITY else soft
