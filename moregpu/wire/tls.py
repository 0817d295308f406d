"""The outer layer: TLS 1.3, and who verifies the certificate.

A client's token must never reach a stranger, so a client either trusts exactly the pinned leaf or lets the system's
store verify. A worker's secrets live inside Noise: for its WebSocket the pin is advice, and it reports the leaf it saw.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from functools import lru_cache

from moregpu.errors import Unreachable, WrongCertificate
from moregpu.wire.invite import split_address

PIN_BYTES = 32
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: a pin is the identity; a wrong clock must not lock anyone out

_leaves: dict[bytes, bytes] = {}
"""Leaves (DER) by their pin. A pin has one preimage, so an entry is never stale, wherever it was fetched."""


def leaf_pin(der: bytes) -> bytes:
    """SHA-256 of a leaf certificate."""
    return hashlib.sha256(der).digest()


def context_for(address: str, pin: bytes | None, timeout_s: float = 10.0) -> ssl.SSLContext:
    """What a client connects with: the pinned leaf where there is a pin, else the system's store."""
    return pinned_context(address, pin, timeout_s) if pin else system_context()


@lru_cache(maxsize=1)
def system_context() -> ssl.SSLContext:
    """Verifies against the system's store (or `SSL_CERT_FILE`), host name included. Shared: do not change it."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


@lru_cache(maxsize=1)
def advisory_context() -> ssl.SSLContext:
    """Verifies nothing: only for the worker's WebSocket, whose Noise session proves the coordinator. Shared."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def pinned_context(address: str, pin: bytes, timeout_s: float = 10.0) -> ssl.SSLContext:
    """A context that trusts exactly the leaf whose SHA-256 is `pin`.

    The leaf is fetched once, on a connection that carries nothing, and compared; then it is the only trust anchor, so
    every later handshake, asyncio or blocking, fails before a byte is sent unless the other end holds its key.

    Raises:
        WrongCertificate: the coordinator at `address` shows another leaf.
        Unreachable: nobody answers there, or not in TLS 1.3.
    """
    if len(pin) != PIN_BYTES:
        raise ValueError(f"a pin has {PIN_BYTES} bytes, not {len(pin)}")
    leaf = _leaves.get(pin)
    if leaf is None:
        leaf = fetch_leaf(address, timeout_s)
        if not hmac.compare_digest(leaf_pin(leaf), pin):
            raise wrong_certificate(address, pin, leaf_pin(leaf))
        _leaves[pin] = leaf
    return _trusting(leaf)


def fetch_leaf(address: str, timeout_s: float) -> bytes:
    """The leaf (DER) that `address` shows to a connection without credentials; raises `Unreachable`."""
    host, port = split_address(address)
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            advisory_context().wrap_socket(plain, server_hostname=host) as secure,
        ):
            leaf = secure.getpeercert(binary_form=True)
    except OSError as error:
        raise connection_error(address, error) from error
    if not leaf:
        raise Unreachable(f"{address} shows no certificate")
    return leaf


def wrong_certificate(address: str, pin: bytes, seen: bytes | None = None) -> WrongCertificate:
    """The error for a leaf that is not the pinned one."""
    shown = f", but {seen.hex()[:16]}… is shown" if seen else " is not shown"
    return WrongCertificate(
        f"The certificate at {address} is not the pinned one: {pin.hex()[:16]}… is expected{shown}; nothing was sent",
        "If the admin changed the certificate on purpose, ask for a new line; if not, somebody is in between",
    )


def connection_error(address: str, error: Exception) -> Unreachable | WrongCertificate:
    """The typed error for whatever a socket or TLS raised while connecting to `address`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return WrongCertificate(
            f"The certificate at {address} is not trusted here ({error.verify_message}); nothing was sent",
            "Use the pool's whole MGPUC1- line, which pins it, or set SSL_CERT_FILE to its certificate",
        )
    if isinstance(error, ssl.SSLError):
        return Unreachable(f"{address} does not speak TLS 1.3 ({error.reason or error})", "Is that the pool's address?")
    if isinstance(error, TimeoutError):
        return Unreachable(f"{address} does not answer", "Is the coordinator running, and no firewall in between?")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return Unreachable(f"{address} cannot be reached ({reason})", "Is the coordinator running?")


@lru_cache(maxsize=16)
def _trusting(leaf: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the leaf itself is who is meant, under whatever name it is reached
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=leaf)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a leaf that some authority signed is an anchor, too
    context.verify_flags |= _NO_CHECK_TIME
    return context
