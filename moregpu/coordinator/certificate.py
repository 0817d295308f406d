"""The coordinator's TLS: its own certificate (P-256, valid until 9999) or one that the admin brings; TLS 1.3 only.

Clients of a self-signed certificate pin its SHA-256; so it is made once and kept, whatever names are advertised later.
Its names matter only to tools that verify by the system store with `SSL_CERT_FILE`.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from collections.abc import Iterable
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moregpu.errors import InvalidRequest, StateRefused
from moregpu.platform.private import read_private, write_private


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate with where its key lies."""

    certificate: Path
    key: Path
    password: bytes | None
    leaf_sha256: bytes
    """SHA-256 of the leaf's DER: what a worker saw is compared with it."""
    self_signed: bool

    @property
    def pin(self) -> bytes:
        """What clients pin; empty where the system store verifies."""
        return self.leaf_sha256 if self.self_signed else b""


def own_certificate(folder: Path, password: bytes, names: Iterable[str]) -> Certificate:
    """The pool's own certificate in its state folder, made at first with `names` in it.

    Raises `StateRefused` when the files are loose or do not belong together.
    """
    certificate, key = folder / "tls-cert.pem", folder / "tls-key.pem"
    if read_private(key) is None or read_private(certificate) is None:
        certificate_pem, key_pem = _self_signed(names, password)
        write_private(key, key_pem)
        write_private(certificate, certificate_pem)
    return _checked(certificate, key, password, self_signed=True)


def brought_certificate(certificate: Path, key: Path) -> Certificate:
    """A certificate that the admin brings (`--tls-cert`, `--tls-key`); raises `InvalidRequest` when unusable."""
    for path in (certificate, key):
        if not path.is_file():
            raise InvalidRequest(f"{path} is not a file", "give PEM files: --tls-cert CHAIN.pem --tls-key KEY.pem")
    try:
        return _checked(certificate, key, None, self_signed=False)
    except StateRefused as error:
        raise InvalidRequest(
            error.detail, "give a PEM chain (leaf first) and the PEM key that belongs to it"
        ) from error


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """TLS 1.3 and nothing older. uvicorn's own options cannot refuse 1.2, so the context is made here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate.certificate, certificate.key, certificate.password or b"")
    context.set_alpn_protocols(["http/1.1"])
    # No session tickets: none of our clients resumes, and each costs two records. Worse, they come unasked just when a
    # client sends its first request: a client that reads in one thread and writes in another (websockets' blocking one)
    # then uses OpenSSL from both at once, and now and then never sees its answer.
    context.num_tickets = 0
    return context


def _checked(certificate: Path, key: Path, password: bytes | None, *, self_signed: bool) -> Certificate:
    """Load both once, so that what is wrong is said before a port opens."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate.read_bytes())
        made = Certificate(
            certificate=certificate,
            key=key,
            password=password,
            leaf_sha256=hashlib.sha256(leaf.public_bytes(serialization.Encoding.DER)).digest(),
            self_signed=self_signed,
        )
        server_context(made)
    except (ssl.SSLError, ValueError, OSError) as error:
        raise StateRefused(
            f"{certificate} and {key} cannot be used for TLS: {error}",
            "delete both and start again for new ones; every client then has to log in again",
        ) from error
    return made


def _self_signed(names: Iterable[str], password: bytes) -> tuple[bytes, bytes]:
    """Certificate and encrypted key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moregpu coordinator")])
    every = dict.fromkeys([*names, "localhost", "127.0.0.1", "::1"])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A day early: the clocks of a home differ.
        .not_valid_before(datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1))
        .not_valid_after(datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC))  # RFC 5280, 4.1.2.5
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in every]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        try:
            return x509.DNSName(name.encode("idna").decode())
        except UnicodeError as error:
            raise InvalidRequest(
                f"{name[:80]!r} is no host name", "give names or addresses: --advertise NAME"
            ) from error
