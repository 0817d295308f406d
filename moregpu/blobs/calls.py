"""HTTPS calls to one coordinator that outlive broken connections: one keep-alive connection a thread, one retry policy.

The bearer token goes out only over a verified connection, in a header.
"""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import TypeVar

import msgspec

from moregpu.errors import MoreGPUError, NotFound, TooManyRequests, Unavailable, Unreachable, from_code
from moregpu.wire.api import Problem
from moregpu.wire.connection import open_http
from moregpu.wire.retry import AWAY, BACK, delays, retry_after_s

log = logging.getLogger(__name__)

TRIES = 6
"""Connections in a row without any progress, before giving up: two seconds, or as long as the caller's patience."""

MOST_ASKED_S = 5.0
"""A coordinator may ask for so long a wait between tries, or for as long as the caller's patience."""

PROBLEM_BYTES = 1 << 16
"""More of a refusal, or of a short answer, is not read."""

_BROKEN = (OSError, http.client.HTTPException)

Answer = TypeVar("Answer")
Send = Callable[[memoryview], None]


def pause(closed: threading.Event, seconds: float) -> None:
    """Wait before the next try, but not when this end is closed."""
    closed.wait(seconds)


class Calls:
    """Requests and answers, a thread at a time; `retrying` is what they run under."""

    def __init__(
        self, address: str, pin: bytes | None, bearer: Callable[[], str], timeout_s: float, patience_s: float = 0.0
    ) -> None:
        self._patience_s = patience_s
        self._address = address
        self._pin = pin
        self._bearer = bearer
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: dict[http.client.HTTPSConnection, threading.Thread] = {}
        self._closed = threading.Event()

    def close(self) -> None:
        """Close all connections, those of other threads too; transfers under way end with `Unreachable`."""
        self._closed.set()
        with self._lock:
            connections = list(self._connections.items())
        for connection, owner in connections:
            if owner.is_alive():
                _break(connection)
            else:
                connection.close()
        self.drop()

    def request(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: Callable[[Send], None] | None = None,
    ) -> None:
        """Send a request: its head, then what `body` sends. A refusal in mid-body is left for `answer`."""
        connection = self._connection()
        connection.putrequest(method, path, skip_accept_encoding=True)
        connection.putheader("Authorization", f"Bearer {self._bearer()}")
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        if body is None:
            return
        try:
            body(connection.send)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            # Perhaps it was refused early, and the reason is waiting to be read.
            if connection.sock is None:
                raise

    def answer(self, passing: Sequence[int] = ()) -> http.client.HTTPResponse:
        """The answer to this thread's request; a refusal is raised as its typed error, unless its status is passing."""
        connection = self._connection()
        answer = connection.getresponse()
        if answer.status < 400 or answer.status in passing:
            return answer
        error = _problem(answer)
        self.drop()  # a body may have been cut short: this connection is in no known state
        raise error

    def drop(self) -> None:
        """Close this thread's connection; the next request opens another."""
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None
            with self._lock:
                self._connections.pop(connection, None)

    def retrying(self, attempt: Callable[[], Answer], progress: Callable[[], int] = lambda: 0) -> Answer:
        """Try again over fresh connections until `TRIES` in a row made no progress, and patience is at its end."""
        waits, tries, reached, since = delays(), 0, progress(), monotonic()
        said = False
        reused = getattr(self._local, "connection", None) is not None
        while True:
            try:
                answer = attempt()
            except (Unreachable, Unavailable, TooManyRequests, *_BROKEN) as error:
                self.drop()
                if self._closed.is_set():
                    raise Unreachable("The transfer was broken off: this end closed its connections") from error
                if progress() != reached:
                    waits, tries, reached, since = delays(), 0, progress(), monotonic()
                if reused:  # the other end may simply have closed an idle connection: no try, no wait
                    reused = False
                    continue
                tries += 1
                left_s = since + self._patience_s - monotonic()
                asked_s = error.retry_after_s if isinstance(error, MoreGPUError) else 0.0
                if asked_s >= max(left_s, MOST_ASKED_S) or (tries >= TRIES and left_s <= 0.0):
                    raise self._given_up(error) from error
                if tries == TRIES:
                    log.warning(AWAY, self._given_up(error).detail, left_s)
                    said = True
                pause(self._closed, asked_s + next(waits))
            except BaseException:
                self.drop()
                raise
            else:
                if said:
                    log.warning(BACK)
                return answer

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            if self._closed.is_set():
                raise Unreachable("This end has closed its connections")
            connection = open_http(self._address, self._pin, self._timeout_s)
            self._local.connection = connection
            with self._lock:
                self._connections[connection] = threading.current_thread()
        return connection

    def _given_up(self, error: Exception) -> MoreGPUError:
        if isinstance(error, MoreGPUError):
            return error
        return Unreachable(
            f"The connection to {self._address} broke {TRIES} times in a row ({type(error).__name__})",
            "Is the coordinator running, and the network good?",
        )


def _break(connection: http.client.HTTPSConnection) -> None:
    """End a connection under another thread: past the TLS layer, which is not made for two threads."""
    sock: ssl.SSLSocket | None = connection.sock
    if sock is not None:
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass  # it was gone already


def _problem(answer: http.client.HTTPResponse) -> MoreGPUError:
    """The typed error of a refusal, with the time that it asks for."""
    error = _named_by(answer)
    error.retry_after_s = retry_after_s(answer.headers.get("retry-after"), time())
    return error


def _named_by(answer: http.client.HTTPResponse) -> MoreGPUError:
    """A status without a problem document becomes the nearest error."""
    try:
        problem = msgspec.json.decode(answer.read(PROBLEM_BYTES), type=Problem)
        code = problem.type.removeprefix("about:moregpu/")
        if code in MoreGPUError.registry:
            return from_code(code, problem.detail, problem.hint)
    except (msgspec.MsgspecError, ValueError, *_BROKEN):
        pass
    if answer.status == 404:
        return NotFound()
    return Unavailable(f"The coordinator answered {answer.status}")
