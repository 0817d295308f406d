"""A TLS server of a test's own, with a certificate that nobody knows."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

from tests.certificates import certificate


class TlsServer:
    """Gives each connection, one after the other, to `met`."""

    def __init__(self, folder: Path):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf, key, _ = certificate(folder)
        self._context.load_cert_chain(leaf, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def connected(self) -> None:
        """Somebody came; TLS has not begun."""

    def met(self, stream: ssl.SSLSocket) -> None:
        """One connection."""
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                self.connected()
                with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as stream:
                    self.met(stream)
