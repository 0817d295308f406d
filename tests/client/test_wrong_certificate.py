"""Another certificate than the pinned one: the server behind it never sees a header, let alone a token."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moregpu.blobs.transfer import BlobHTTP
from moregpu.client.access import Access
from moregpu.client.doors import Doors
from moregpu.client.pool import Pool
from moregpu.errors import WrongCertificate
from moregpu.wire.api import Me

TOKEN = "mgt_abcdefgh_" + "x" * 43


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody else")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "other.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


class Stranger:
    """A TLS server that keeps every byte which a client was willing to send it."""

    def __init__(self, folder: Path):
        self.heard = b""
        self.connections = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate(folder))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                self.connections += 1
                with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as secure:
                    secure.settimeout(5)
                    while data := secure.recv(4096):
                        self.heard += data
                        secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    server = Stranger(tmp_path)
    yield server
    server.stop()


@pytest.mark.parametrize("pin", [bytes(32), b""], ids=["another pin", "the system's store"])
@pytest.mark.parametrize(
    "call",
    [
        lambda access: Pool(access).me(patience_s=0),
        lambda access: Doors(access).call("GET", "/v1/me", Me, patience_s=0),
        lambda access: list(Doors(access).read("/v1/events", accept="text/event-stream")),
        lambda access: BlobHTTP(access.addresses[0], access.pin, lambda: TOKEN, 5.0).head("ab" * 32),
        lambda access: BlobHTTP(access.addresses[0], access.pin, lambda: TOKEN, 5.0).upload_stream(bytes(100)),
    ],
    ids=["pool", "doors", "stream", "blob head", "blob upload"],
)
def test_every_client_stops_before_it_sends_anything(
    stranger: Stranger, call: Callable[[Access], object], pin: bytes
) -> None:
    access = Access(addresses=(stranger.address,), token=TOKEN, pin=pin)
    with pytest.raises(WrongCertificate) as refused:
        call(access)
    assert stranger.connections > 0
    assert stranger.heard == b""
    assert TOKEN not in str(refused.value)
