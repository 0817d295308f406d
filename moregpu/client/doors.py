"""The coordinator's HTTP API as a client calls it: one kept connection a thread, typed answers, typed errors.

A coordinator that restarts is waited for: calls that are safe to repeat (all but the making of invites and tokens) are
repeated within their patience, under the same idempotency key.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from moregpu.client.access import Access
from moregpu.client.forks import Forkable, starts_over_in_a_child
from moregpu.client.patience import Patience
from moregpu.client.words import as_json, as_query, in_header, in_path
from moregpu.errors import (
    Forbidden,
    HandshakeFailed,
    InvalidRequest,
    MoreGPUError,
    NotFound,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
    WrongCertificate,
    from_code,
)
from moregpu.wire.api import Problem
from moregpu.wire.connection import open_http
from moregpu.wire.retry import retry_after_s

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
PATIENCE_S = 10.0
"""How long a call that can be repeated is repeated while the coordinator does not answer. Waits for a job have more."""

_BROKEN = (OSError, http.client.HTTPException)


class Doors(Forkable):
    """One pool's HTTP API. Thread-safe: each thread has a connection of its own."""

    def __init__(self, access: Access):
        self._access = access
        self._address = access.addresses[0]
        self.start_over()
        starts_over_in_a_child(self)

    def start_over(self) -> None:
        """Have no connection: whoever asks next opens one."""
        self._own = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "what is connected to a pool cannot be pickled: another process calls moregpu.connect() itself, "
            "and finds a job by its id, pool.job(id)"
        )

    @property
    def address(self) -> str:
        """The address that answered last, "host:port"."""
        return self._address

    @property
    def access(self) -> Access:
        """Where and as whom."""
        return self._access

    def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        body: Any = None,
        query: Mapping[str, object] | None = None,
        idempotency_key: str = "",
        changes: bool = True,
        timeout_s: float = CALL_TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> T:
        """Call a route and decode its answer as `answer`.

        A POST is repeated only under an idempotency key, or when it `changes` nothing. Raises the error that the
        problem document names, `Unreachable` when the patience ran out, and `WrongCertificate` before anything secret
        was sent.
        """
        repeatable = method != "POST" or bool(idempotency_key) or not changes
        headers = {"Idempotency-Key": in_header(idempotency_key)} if idempotency_key else {}
        content = None
        if body is not None:
            content = as_json(body)
            headers["Content-Type"] = "application/json"
        patience = Patience(patience_s if repeatable else 0.0)
        while True:
            try:
                response = self._send(method, _target(path, query), content, headers, timeout_s, repeatable)
                text = response.read()
                patience.over()
                return _decoded(text, answer)
            except _BROKEN as error:
                self._drop()
                patience.pause(_unreachable(self._address, error))
            except (Unreachable, Unavailable, TooManyRequests) as error:
                patience.pause(error)
            except (KeyboardInterrupt, SystemExit):
                self._drop()  # half an answer is on its way there: the next call would find the connection taken
                raise

    def read(self, path: str, *, accept: str, query: Mapping[str, object] | None = None) -> Iterator[bytes]:
        """Stream a body in pieces of at most 1 MiB. Whoever stops before its end ends the connection."""
        ended = False
        connection: http.client.HTTPSConnection | None = None
        try:
            response = self._send("GET", _target(path, query), None, {"Accept": accept}, CALL_TIMEOUT_S, True)
            connection = self._own.connection
            while piece := response.read1(1 << 20):  # what is there: a stream of events is not to wait for more
                yield piece
            ended = True
        except _BROKEN as error:
            if connection is None:
                self._drop()
            raise _unreachable(self._address, error) from error
        finally:
            if not ended:
                self._forget(connection)

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            opened, self._opened = self._opened, []
        for connection in opened:
            connection.close()

    def _send(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: dict[str, str],
        timeout_s: float,
        repeatable: bool,
    ) -> http.client.HTTPResponse:
        """One request; an error status raises. A kept connection that died meanwhile is replaced once."""
        headers = {
            "Authorization": f"Bearer {self._access.token}",
            "Accept": "application/json",
            **headers,
        }
        connection, kept = self._connection(timeout_s)
        try:
            connection.request(method, target, body=content, headers=headers)
            response = connection.getresponse()
        except _BROKEN:
            self._drop()
            if not (kept and repeatable):
                raise
            connection, _ = self._connection(timeout_s)
            connection.request(method, target, body=content, headers=headers)
            response = connection.getresponse()
        if not 200 <= response.status < 300:  # a proxy's redirection is nobody's answer either
            raise _problem(response, self._address)
        return response

    def _connection(self, timeout_s: float) -> tuple[http.client.HTTPSConnection, bool]:
        """Get the connection of this thread, and whether it was open already."""
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(timeout_s)
            return connection, True
        connection = self._open(timeout_s)
        self._own.connection = connection
        with self._lock:
            self._opened.append(connection)
        return connection, False

    def _open(self, timeout_s: float) -> http.client.HTTPSConnection:
        """Connect to the first address that answers, beginning with the one that did so last."""
        addresses = sorted(self._access.addresses, key=lambda address: address != self._address)
        failures: list[Unreachable | WrongCertificate] = []
        for address in addresses:
            try:
                connection = open_http(address, self._access.pin, timeout_s)
            except (Unreachable, WrongCertificate) as error:
                failures.append(error)
                continue
            self._address = address
            return connection
        raise next((error for error in failures if isinstance(error, WrongCertificate)), failures[0])

    def _drop(self) -> None:
        """Forget this thread's connection."""
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        self._own.connection = None
        self._forget(connection)

    def _forget(self, connection: http.client.HTTPSConnection | None) -> None:
        """Close a connection, of whatever thread: that one opens another."""
        if connection is not None:
            connection.close()
            with self._lock:
                if connection in self._opened:
                    self._opened.remove(connection)


def path_of(*parts: str) -> str:
    """A path under /v1 from parts that a human may have typed."""
    return "/v1/" + "/".join(map(in_path, parts))


def _target(path: str, query: Mapping[str, object] | None) -> str:
    chosen = {key: value for key, value in (query or {}).items() if value is not None and value != ""}
    return f"{path}?{as_query(chosen)}" if chosen else path


def _decoded(content: bytes, answer: type[T]) -> T:
    if answer is type(None):
        return None  # type: ignore[return-value]
    try:
        return msgspec.json.decode(content, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HandshakeFailed(
            f"the coordinator's answer is not understood: {error}", "is it a MoreGPU coordinator of this version?"
        ) from error


def _problem(response: http.client.HTTPResponse, address: str) -> MoreGPUError:
    """The error that an answer is, with the time that it asks for."""
    error = _named_by(response, address)
    error.retry_after_s = retry_after_s(response.headers.get("retry-after"), time.time())
    return error


def _named_by(response: http.client.HTTPResponse, address: str) -> MoreGPUError:
    """The error that a problem document names; other servers' errors in one line."""
    content = response.read()
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            refusal = msgspec.json.decode(content, type=_Refusal)
            return _OF_STATUS.get(response.status, MoreGPUError)(refusal.error)
        if response.status in (502, 503, 504):
            return Unavailable(f"{address} answers {response.status} {response.reason}", "try again later")
        return MoreGPUError(
            f"{address} answers {response.status} {response.reason}, and not as a MoreGPU coordinator does",
            "check the address and what stands between",
        )
    return from_code(problem.type.rpartition("/")[2], problem.detail or problem.title, problem.hint)


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """How the calls of 1.x say no."""

    error: str


_OF_STATUS: dict[int, type[MoreGPUError]] = {
    400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 413: TooLarge, 503: Unavailable,
}  # fmt: skip


def _unreachable(address: str, error: Exception) -> Unreachable:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Unreachable(f"the coordinator at {address} does not answer ({reason})", "is it running? moregpu serve")
