"""Blocking HTTPS to a coordinator: one connection, verified before anything is sent."""

from __future__ import annotations

import http.client
import ssl
from typing import Any

from moregpu.wire.invite import split_address
from moregpu.wire.tls import connection_error, context_for, wrong_certificate

TOGETHER_BYTES = 16 * 1024
"""A request up to this size leaves in one piece."""


def open_http(address: str, pin: bytes | None, timeout_s: float) -> http.client.HTTPSConnection:
    """Connect to "host:port" and finish the TLS handshake; TCP_NODELAY is set, proxies are not asked.

    Args:
        address: "host:port".
        pin: SHA-256 of the leaf to trust; None or b"": the system's store verifies.
        timeout_s: for the connection and for every later read and write.

    Raises:
        WrongCertificate: another leaf is shown, or one that the system does not trust. Nothing was sent.
        Unreachable: nobody answers, or not in TLS 1.3.
    """
    host, port = split_address(address)
    context = context_for(address, pin, timeout_s)
    connection = _Connection(host, port, timeout=timeout_s, context=context)
    try:
        connection.connect()  # http.client sets TCP_NODELAY
    except OSError as error:
        connection.close()
        if pin and isinstance(error, ssl.SSLCertVerificationError):
            raise wrong_certificate(address, pin) from error
        raise connection_error(address, error) from error
    return connection


class _Connection(http.client.HTTPSConnection):
    """Sends a small request's head and body together: one TLS record and one system call, at both ends."""

    _held: list[bytes] | None = None

    def request(self, *args: Any, **named: Any) -> None:
        """Send a request, as its base does."""
        self._held = []
        try:
            super().request(*args, **named)
        except BaseException:
            self._held = None
            raise
        self._flush()

    def send(self, data: Any) -> None:
        """Hold what is small until the request is whole."""
        if self._held is None:
            super().send(data)
        elif isinstance(data, bytes) and sum(map(len, self._held)) + len(data) <= TOGETHER_BYTES:
            self._held.append(data)
        else:
            self._flush()
            super().send(data)

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held:
            super().send(b"".join(held))
