"""A real coordinator on loopback, with real TLS, store and blobs, and plain HTTP clients for it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest
from blake3 import blake3

from moregpu.blobs.format import seal
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.server import Opening, ServeConfig, coordinator
from moregpu.coordinator.store.protocol import Accepted, BlobRow, Choice, FleetWorker, SignedBatch, WorkerRow
from moregpu.jobs import Blob, Evidence, Tensor, size_bytes
from moregpu.wire.api import ResultManifest, TokenView
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.invite import parse_client_line
from moregpu.wire.statement import batch_message
from moregpu.wire.tls import pinned_context
from moregpu.workloads import workload
from moregpu.workloads.protocol import WorkerProfile

T = TypeVar("T")


class Response(NamedTuple):
    """An answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error that a problem document names."""
        assert self.headers["content-type"] == "application/problem+json", (self.status, self.body)
        document = self.json()
        assert document["status"] == self.status
        assert document["title"]
        return document["type"].removeprefix("about:moregpu/")


class Pool:
    """A coordinator that runs in a thread of this process."""

    def __init__(
        self, opening: Opening, services: Services, loop: asyncio.AbstractEventLoop, known: Pool | None = None
    ):
        self.opening = opening
        self.services = services
        self._loop = loop
        self.address = opening.addresses[0]
        self.host, _, port = self.address.rpartition(":")
        self.port = int(port)
        self.pin = opening.pin
        self.admin = known.admin if known is not None else parse_client_line(opening.admin_line).token
        self.worker = known.worker if known is not None else WorkerKeys.generate()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the coordinator's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def context(self) -> ssl.SSLContext:
        """Trusts this coordinator's certificate."""
        return pinned_context(self.address, self.pin)

    def socket(self) -> ssl.SSLSocket:
        """A TLS connection on which nothing was said yet."""
        plain = socket.create_connection((self.host, self.port), 30)
        return self.context().wrap_socket(plain, server_hostname=self.host)

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, timeout=30, context=self.context())

    def ask(
        self,
        verb: str,
        path: str,
        token: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One request on a connection of its own. Structs, dicts and lists go as JSON."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        data = body if body is None or isinstance(body, bytes | str) else msgspec.json.encode(body)
        connection = self.connection()
        try:
            connection.request(verb, path, body=data, headers=sent)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, named, answer.read())
        finally:
            connection.close()

    def token(self, role: str) -> str:
        """A new token of a role."""
        view = msgspec.json.decode(self.ask("POST", "/v1/tokens", self.admin, {"role": role}).body, type=TokenView)
        return parse_client_line(view.line).token

    def submit(self, token: str, **fields: Any) -> str:
        """A job that waits, since no worker is here; returns its id."""
        spec = {"kind": "kernel", "operation": "relu", "size": 4, **fields}
        answer = self.ask("POST", "/v1/jobs", token, spec)
        assert answer.status == 201, answer.body
        return answer.json()["id"]

    def finish(
        self, job: str, outputs: Mapping[str, tuple[str, tuple[int, ...], bytes]], *, dropped: bool = False
    ) -> None:
        """End a job as a worker's accepted, signed result does: outputs sealed into blobs, small ones inline."""

        async def work() -> None:
            store, services = self.services.desk.store, self.services
            tensors: dict[str, Tensor] = {}
            for name, (dtype, shape, data) in outputs.items():
                assert len(data) == size_bytes(dtype, shape)
                content = data if len(data) <= 64 else await self._sealed(data)
                tensors[name] = Tensor(dtype=dtype, shape=shape, data=content)  # pyright: ignore[reportArgumentType]
            row = await store.job(job)
            assert row is not None
            now, wall = services.clock.monotonic(), services.clock.wall()
            task = workload(row.kind).cut(row.spec, row.plan, 0, WorkerProfile(), 1e9)
            worker = FleetWorker(
                id=self.worker.worker_id, owner="o", groups=(), kinds=("kernel",), devices=(), profile=WorkerProfile()
            )
            choice = [Choice(job=job, cut=task)]
            (lease,) = await store.lease(worker, 1, lambda candidates, worker, slots, now: choice, now, wall)
            statement = b"statement of " + job.encode()
            digests = (blake3(statement).digest(),)
            signature = self.worker.sign(batch_message(services.pool.id, worker.id, digests))
            accepted = Accepted(
                ref=lease.ref, outputs=tensors, evidence=Evidence(kind="recomputed"), statement=statement, index=0,
                seconds=0.1, result=ResultManifest(outputs=tensors, dropped=dropped, digest="d" * 64),
            )  # fmt: skip
            batch = SignedBatch(worker=worker.id, digests=digests, signature=signature)
            (completed,) = await store.complete(worker.id, [accepted], batch, wall)
            assert completed.ended, completed

        self.run(work())

    async def _sealed(self, data: bytes) -> Blob:
        blob, sealed = seal(data)
        upload = self.services.blobs.begin("coordinator", blob.digest, len(sealed))
        upload.write(memoryview(sealed))
        upload.finish()
        row = BlobRow(digest=blob.digest, sealed_bytes=len(sealed), principal="coordinator")
        await self.services.desk.store.add_blob(row)
        return blob

    async def enrol(self) -> None:
        """Keep the row of a worker that once was here."""
        row = WorkerRow(
            id=self.worker.worker_id, wi_pub=self.worker.wi_pub, ws_pub=self.worker.ws_pub, ws_number=0,
            name="a worker", owner="o",
        )  # fmt: skip
        await self.services.desk.store.save_worker(row)


class Running:
    """Runs a coordinator in a thread until it is told to stop."""

    def __init__(self, config: ServeConfig, known: Pool | None = None):
        """`known`: this folder's pool, when it ran before."""
        self._config = config
        self._known = known
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._pool: Pool | None = None
        self._thread = threading.Thread(target=self._run, name="coordinator")

    def __enter__(self) -> Pool:
        self._thread.start()
        assert self._ready.wait(30)
        if self._error is not None:
            self._thread.join()
            raise self._error
        assert self._pool is not None
        try:
            self._pool.run(self._pool.enrol())
        except BaseException:
            self.__exit__()
            raise
        return self._pool

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 — handed to the test's own thread
            self._error = error
        finally:
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        async with coordinator(self._config) as made:
            self._pool = Pool(made.opening, made.services, self._loop, self._known)
            self._ready.set()
            await self._stop.wait()
            for part in made.running:
                assert not part.done(), part


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A fresh pool for the tests of one module."""
    config = ServeConfig(port=0, state=str(tmp_path_factory.mktemp("state") / "pool"), profile="", name="test pool")
    with Running(config) as running:
        yield running


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    """For a coordinator of one test."""
    return ServeConfig(port=0, state=str(tmp_path / "pool"), profile="")
