"""The SDK's one connection: requests go out from any thread, one thread hears the answers and passes them on.

It opens with the first request. When it drops while something is open it comes back by itself, for as long as the
patience lasts, and says again what was not answered; with nothing open it stays closed until the next request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from moregpu.client.access import Access
from moregpu.client.exchange import Exchanges, Hear, Heard, error_of
from moregpu.client.patience import Patience
from moregpu.errors import (
    HandshakeFailed,
    MoreGPUError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
    WrongCertificate,
)
from moregpu.wire.api import Problem
from moregpu.wire.link import LINK_SUBPROTOCOL, MAX_FROM_LINK_BYTES, ToLink
from moregpu.wire.retry import retry_after_s

if TYPE_CHECKING:
    from moregpu.client.websocket import WebSocket

OPEN_S = 10.0
PING_S = 20.0
"""A connection whose other end vanished without a word is noticed after two of these."""

NO_LINK_S = 60.0
"""A proxy that let no WebSocket through is not asked again for so long."""

_REVOKED = 1008


class NoLink(MoreGPUError):
    """What answers there does not let WebSockets through: HTTP alone remains."""

    code, title, status, exit_code = "no-link", "WebSockets do not get through", 503, 7


class Link:
    """One WebSocket to one pool. Thread-safe."""

    def __init__(self, access: Access, address: Callable[[], str], patience_s: float):
        self._access = access
        self._address = address
        self._patience_s = patience_s
        self._exchanges = Exchanges()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._socket: WebSocket | None = None
        self._closed = False
        self._without: NoLink | None = None
        self._without_until = 0.0

    def ask(self, make: Callable[[int], ToLink], hear: Hear, patience_s: float = 0.0) -> int:
        """Send a request; `hear` is told its answers, on the link's thread. Returns its id.

        A coordinator that does not answer yet is tried again for `patience_s`. Raises what keeps the connection from
        opening: `Unreachable`, `Unauthorized`, `Forbidden`, `WrongCertificate`, `NoLink`; and `InvalidRequest` for a
        request that no frame holds.
        """
        with self._opening:  # one opens, the others wait for it
            if self._socket is None:
                self._begin(self._open(patience_s))
        with self._lock:
            id, frame = self._exchanges.begin(make, hear)
            socket = self._socket
        if socket is not None:
            self._send(socket, frame)
        else:  # it dropped in between, with nothing open: whoever opens the next one sends this, too
            with self._opening:
                if self._socket is None:
                    self._begin(self._open(patience_s))
        return id

    def ask_if_open(self, make: Callable[[int], ToLink], hear: Hear) -> int | None:
        """Send a request over a connection that is there; None where there is none. Opens nothing, waits for nobody."""
        with self._lock:
            socket = self._socket
            if socket is None:
                return None
            id, frame = self._exchanges.begin(make, hear)
        self._send(socket, frame)
        return id

    def stop(self, id: int) -> None:
        """Hear no more of a request. The job goes on."""
        with self._lock:
            frame = self._exchanges.stop(id)
            socket = self._socket
        if frame is not None and socket is not None:
            self._send(socket, frame)

    def close(self) -> None:
        """Close the connection; what is open ends as unreachable."""
        with self._lock:
            self._closed = True
            socket, self._socket = self._socket, None
            heard = self._exchanges.fail(Unreachable("the connection was closed here", "connect again"))
        if socket is not None:
            socket.close()
        _tell(heard)

    def _begin(self, socket: WebSocket) -> None:
        with self._lock:
            self._socket, self._closed = socket, False
            frames = self._exchanges.again()
        for frame in frames:
            self._send(socket, frame)
        threading.Thread(target=self._read, args=(socket,), name="moregpu-link", daemon=True).start()

    def _send(self, socket: WebSocket, frame: bytes) -> None:
        from moregpu.client.websocket import Closed

        try:
            socket.send(frame)
        except Closed:  # the reading thread sees it too, and says this again
            pass

    def _read(self, socket: WebSocket) -> None:
        """Pass answers on until the link is closed, or dropped with nothing open."""
        current: WebSocket | None = socket
        error: MoreGPUError = Unreachable("the connection broke down here", "connect again")
        try:
            while current is not None:
                current = self._come_back(self._hear_all(current))
        except MoreGPUError as reason:
            error = reason
        finally:  # whatever ended this thread, nobody waits for it for ever
            if current is not None:
                with self._lock:
                    self._socket = None
                    heard = self._exchanges.fail(error)
                _tell(heard)

    def _hear_all(self, socket: WebSocket) -> int:
        """Read one connection to its end; returns the code that closed it."""
        from moregpu.client.websocket import Closed

        try:
            while True:
                frame = socket.receive()
                with self._lock:
                    heard = self._exchanges.received(frame)
                if heard is not None:
                    _tell([heard])
        except Closed as ended:
            return ended.code
        except HandshakeFailed:
            socket.close()
            raise

    def _come_back(self, code: int) -> WebSocket | None:
        """Open the next connection and say again what is open; None where nothing is."""
        with self._lock:
            if self._closed or not len(self._exchanges):
                self._socket = None
                return None
        if code == _REVOKED:
            raise Unauthorized("the coordinator ended the connection: the token no longer holds", "ask for another")
        socket = self._open(self._patience_s)
        with self._lock:
            if self._closed:
                socket.close()
                return None
            self._socket = socket
            frames = self._exchanges.again()
        for frame in frames:
            self._send(socket, frame)
        return socket

    def _open(self, patience_s: float) -> WebSocket:
        """Connect, again and again until the patience is at its end."""
        if self._without is not None and time.monotonic() < self._without_until:
            raise NoLink(self._without.detail, self._without.hint)
        patience = Patience(patience_s)
        while True:
            try:
                socket = self._open_once()
            except NoLink as error:
                self._without, self._without_until = error, time.monotonic() + NO_LINK_S
                raise
            except (Unreachable, Unavailable, TooManyRequests) as error:
                if self._closed:
                    raise
                patience.pause(error)
                continue
            patience.over()
            return socket

    def _open_once(self) -> WebSocket:
        """Connect to the first address that answers."""
        first = self._address()
        failures: list[MoreGPUError] = []
        for address in sorted(self._access.addresses, key=lambda address: address != first):
            try:
                return _connect(address, self._access)
            except (Unreachable, WrongCertificate) as error:
                failures.append(error)
        raise next((error for error in failures if isinstance(error, WrongCertificate)), failures[0])


def _connect(address: str, access: Access) -> WebSocket:
    """One handshake; what goes wrong is a typed error."""
    import ssl

    from websockets.exceptions import InvalidHandshake, InvalidStatus

    from moregpu.client.websocket import WebSocket
    from moregpu.wire.tls import connection_error, context_for, wrong_certificate

    context = context_for(address, access.pin, OPEN_S)
    try:
        return WebSocket.open(
            address,
            "/v1/link",
            context,
            subprotocol=LINK_SUBPROTOCOL,
            headers={"Authorization": f"Bearer {access.token}"},
            max_bytes=MAX_FROM_LINK_BYTES,
            timeout_s=OPEN_S,
            ping_s=PING_S,
        )
    except InvalidStatus as refused:
        response = refused.response
        said = _refusal(response.status_code, bytes(response.body or b""), address)
        said.retry_after_s = retry_after_s(response.headers.get("retry-after"), time.time())
        raise said from refused
    except InvalidHandshake as error:
        raise NoLink(f"{address} does not speak WebSocket: {error}", "a proxy in between?") from error
    except OSError as error:
        if access.pin and isinstance(error, ssl.SSLCertVerificationError):
            raise wrong_certificate(address, access.pin) from error
        raise connection_error(address, error) from error
    except EOFError as error:
        raise Unreachable(f"{address} closed the connection while it was opened", "Is it running?") from error


def _refusal(status: int, body: bytes, address: str) -> MoreGPUError:
    try:
        return error_of(msgspec.json.decode(body, type=Problem))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if status in (502, 503, 504):
            return Unreachable(f"{address} answers {status}", "try again later")
        return NoLink(f"{address} answers {status} to a WebSocket", "a proxy in between?")


def _tell(heard: Iterable[Heard]) -> None:
    for one in heard:
        one.hear(one.answer)
