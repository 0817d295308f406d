"""A proxy that ends TLS before the coordinator: workers and clients come through it by its own certificate."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool, free_port
from moregpu.coordinator.certificate import own_certificate, server_context
from moregpu.wire.api import TokenRequest
from moregpu.wire.invite import parse_client_line

pytestmark = pytest.mark.slow


class Tunnel:
    """Ends TLS under a certificate of its own and forwards to the coordinator, as cloudflared and its like do."""

    def __init__(self, folder: Path, port: int, behind: int):
        folder.mkdir(mode=0o700)
        self.certificate = own_certificate(folder, b"tunnel", ["localhost"])
        self._port, self._behind = port, behind
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tunnel")
        self.seen = bytearray()
        """What its operator can read of what clients send."""

    def __enter__(self) -> Tunnel:
        self._thread.start()
        assert self._listening.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._forward, "127.0.0.1", self._port, ssl=server_context(self.certificate))
        )
        self._listening.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        there, out = await asyncio.open_connection("127.0.0.1", self._behind, ssl=trusting)
        await asyncio.gather(self._copy(reader, out, note=True), self._copy(there, writer, note=False))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, note: bool) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(65536):
                if note:
                    self.seen += data
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoopbackPool, Tunnel]]:
    folder = tmp_path_factory.mktemp("tunnel")
    public = free_port()
    with LoopbackPool(folder / "home") as local, Tunnel(folder / "proxy", public, local.port) as tunnel:
        local.start_coordinator("--behind-tunnel", f"https://localhost:{public}")
        local.start_worker("far")  # by an invite, which carries the tunnel's address alone
        local.wait_for_workers("far")
        yield local, tunnel


def test_a_worker_joins_through_it_and_computes(place: tuple[LoopbackPool, Tunnel]) -> None:
    local, tunnel = place
    (worker,) = local.wait_for_workers("far")
    assert not worker.tls_ends_here  # and everybody can see it
    for size in ("64", "700"):
        done = local.run("submit", "matmul", "--size", size, "--json")
        assert done.returncode == 0, done.stderr
    assert b"/v1/worker" in tunnel.seen


def test_a_client_comes_through_it_by_the_systems_store_alone(
    place: tuple[LoopbackPool, Tunnel], tmp_path: Path
) -> None:
    local, tunnel = place
    with local.connect() as pool:
        line = pool.create_token(TokenRequest(role="viewer")).line
    assert parse_client_line(line).pin == b""
    command = [sys.executable, "-m", "moregpu", "workers", "--json"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOREGPU_")}
    elsewhere = kept | {"MOREGPU_HOME": str(tmp_path), "MOREGPU_ADMIN_TOKEN": line, "MOREGPU_SECRETS": "file"}
    distrusted = subprocess.run(command, env=elsewhere, capture_output=True, text=True, timeout=60, check=False)
    assert distrusted.returncode == 8 and "nothing was sent" in distrusted.stdout + distrusted.stderr
    assert parse_client_line(line).token.encode() not in tunnel.seen
    trusted = elsewhere | {"SSL_CERT_FILE": str(tunnel.certificate.certificate)}
    done = subprocess.run(command, env=trusted, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [worker["name"] for worker in json.loads(done.stdout)] == ["far"]
