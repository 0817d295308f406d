"""Blocking HTTPS to a coordinator: one connection, verified before anything is sent."""

from __future__ import annotations

import http.client
import ssl

from moregpu.wire.invite import split_address
from moregpu.wire.tls import connection_error, context_for, wrong_certificate


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
    connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    try:
        connection.connect()  # http.client sets TCP_NODELAY
    except OSError as error:
        connection.close()
        if pin and isinstance(error, ssl.SSLCertVerificationError):
            raise wrong_certificate(address, pin) from error
        raise connection_error(address, error) from error
    return connection
