"""A proxy in between that ends TLS: one that lets no WebSocket through, and one that cuts what lasts."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import Access
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool
from moregpu.errors import JobCancelled, StillRunning
from moregpu.wire.tls import leaf_pin, pinned_context
from tests.certificates import certificate

A = np.arange(60_000, dtype=np.float32).reshape(200, 300)


class Proxy:
    """Ends TLS under a certificate of its own; answers 400 to what asks for another protocol, forwards the rest."""

    def __init__(self, to: Access, folder: Path):
        self._to = to
        leaf, key, der = certificate(folder, "proxy")
        self.pin = leaf_pin(der)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(leaf, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.refused = 0
        self.passes_websockets = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def cut(self) -> int:
        """End every connection, as a proxy does that was restarted or lost patience; returns how many there were."""
        count = 0
        for near in self._open:
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)
                count += 1
        self._open.clear()
        return count

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain, self._context.wrap_socket(plain, server_side=True) as near:
            self._open.append(near)
            head = near.recv(65536)
            if b"upgrade: websocket" in head.lower() and not self.passes_websockets:
                self.refused += 1
                near.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
                return
            host, port = self._to.addresses[0].split(":")
            context = pinned_context(self._to.addresses[0], self._to.pin)
            with (
                socket.create_connection((host, int(port))) as beyond,
                context.wrap_socket(beyond, server_hostname=host) as far,
            ):
                far.sendall(head)
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join(5)


def _pump(source: ssl.SSLSocket, to: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            to.sendall(data)


@contextlib.contextmanager
def behind_proxy(access: Access, folder: Path) -> Generator[tuple[Pool, Proxy]]:
    """The pool that `access` leads to, reached through a proxy."""
    proxy = Proxy(access, folder)
    with Pool(Access(addresses=(proxy.address,), token=access.token, pin=proxy.pin)) as pool:
        yield pool, proxy
    proxy.close()


@pytest.fixture
def behind(road: LoopbackPool, tmp_path: Path) -> Iterator[tuple[Pool, Proxy]]:
    with behind_proxy(road.access(), tmp_path) as reached:
        yield reached


def test_jobs_run_and_are_waited_for_without_a_websocket(behind: tuple[Pool, Proxy]) -> None:
    pool, proxy = behind
    assert np.array_equal(pool.scale(A, 2.0), 2 * A)
    handle = pool.benchmark("matmul", 800)
    assert [progress.state for progress in handle.watch()][-1] == "done"
    assert handle.evidence()
    waiting = pool.benchmark("relu", 10, group="nobody")
    with pytest.raises(StillRunning):
        waiting.wait(0.2)
    waiting.cancel()
    assert proxy.refused == 1  # and not asked again for every job


def test_a_proxy_that_cuts_what_lasts_delays_nothing_but_the_news(behind: tuple[Pool, Proxy]) -> None:
    pool, proxy = behind
    proxy.passes_websockets = True
    handle = pool.benchmark("relu", 10, group="nobody")
    seen: list[str] = []
    waiting = threading.Thread(target=lambda: seen.append(_ending(handle)))
    waiting.start()
    for _ in range(3):
        until = time.monotonic() + 20
        while not proxy.cut():
            assert time.monotonic() < until, "nobody came back"
            time.sleep(0.02)
    assert pool.matmul(A, A.T).shape == (200, 200)
    pool.job(handle.id).cancel()
    waiting.join(30)
    assert seen == ["cancelled"]
    assert proxy.refused == 0


def _ending(handle: JobHandle) -> str:
    try:
        handle.result(60)
    except JobCancelled:
        return "cancelled"
    return "done"
