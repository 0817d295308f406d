"""A small real coordinator of blobs: HTTPS, files on disk, and a network that breaks on request."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from moregpu.blobs.local import BlobFiles, Upload
from moregpu.errors import MoreGPUError, Unauthorized
from moregpu.wire.tls import leaf_pin
from tests.certificates import certificate

PIECE = 1 << 16


class Door:
    """The server, what it saw, and the faults it is to commit."""

    def __init__(self, folder: Path) -> None:
        self.files = BlobFiles(folder / "blobs", 1.0)
        self.token = "mgt_secret"
        self.requests: list[str] = []
        self.body_bytes = 0  # of requests
        self.sent_bytes = 0  # of blobs
        self.cut_uploads_after: list[int] = []  # bytes of each coming upload after which the connection is cut
        self.cut_downloads_after: list[int] = []
        self.refusal: Callable[[], MoreGPUError] | None = None  # answered before a body is read
        self.damage: Callable[[bytes], bytes] = bytes  # what happens to blobs on the way out
        self.closes_idle_connections = False
        self.ignores_ranges = False
        self.holds_downloads: threading.Event | None = None  # what a download waits for after its headers
        self.lock = threading.Lock()
        leaf, key, der = certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(leaf, key)
        self.pin = leaf_pin(der)
        self._http = _Server(("127.0.0.1", 0), _handler(self))
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.address = f"127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path)
    yield door
    door.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Cut connections are what these tests are about."""


def _handler(door: Door) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.answer(self.post)

        def do_PUT(self) -> None:
            self.answer(self.put)

        def do_HEAD(self) -> None:
            self.answer(self.head)

        def do_GET(self) -> None:
            self.answer(self.get)

        def answer(self, route: Callable[[], None]) -> None:
            with door.lock:
                door.requests.append(self.requestline)
            try:
                if self.headers["Authorization"] != f"Bearer {door.token}":
                    raise Unauthorized("The token is wrong", "Log in again")
                if door.refusal is not None:
                    raise door.refusal()
                route()
            except MoreGPUError as error:
                self.problem(error)
            if door.closes_idle_connections:
                self.close_connection = True

        def post(self) -> None:
            total = int(self.headers["Content-Length"])
            upload = door.files.begin("me", None, total)
            self.take(upload)
            self.reply(201, {"digest": upload.finish(), "sealed_bytes": total})

        def put(self) -> None:
            url = urlsplit(self.path)
            digest = url.path.rsplit("/", 1)[1]
            upload = door.files.begin("me", digest, int(self.headers["Upload-Length"]))
            offset = int(parse_qs(url.query)["offset"][0])
            if offset != upload.offset:
                upload.pause()
                self.close_connection = True
                self.reply(409, {"type": "about:moregpu/conflict", "title": "", "status": 409, "offset": upload.offset})
                return
            self.take(upload)
            if upload.offset < upload.total_bytes:
                upload.pause()
                self.reply(200, {"offset": upload.offset})
            else:
                upload.finish()
                self.reply(201, {"digest": digest})

        def take(self, upload: Upload) -> None:
            left = int(self.headers["Content-Length"])
            cut = door.cut_uploads_after.pop(0) if door.cut_uploads_after else None
            while left:
                length = min(left, PIECE if cut is None else min(PIECE, cut))
                piece = self.rfile.read(length) if length else b""
                if not piece:
                    upload.pause()
                    self.cut()
                upload.write(piece)
                left -= len(piece)
                cut = None if cut is None else cut - len(piece)
                with door.lock:
                    door.body_bytes += len(piece)

        def head(self) -> None:
            digest = self.path.rsplit("/", 1)[1]
            size = door.files.size(digest)
            self.send_response(404 if size is None else 200)
            if size is None:
                self.send_header("Upload-Offset", str(door.files.offset("me", digest) or 0))
            self.send_header("Content-Length", str(size or 0))
            self.end_headers()

        def get(self) -> None:
            with door.files.open_reader(self.path.rsplit("/", 1)[1]) as reader:
                start, stop = 0, reader.size_bytes
                wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                if wanted and not door.ignores_ranges:
                    start, stop = int(wanted[1]), int(wanted[2]) + 1
                body = door.damage(reader.read_at(start, stop))
            self.send_response(206 if wanted and not door.ignores_ranges else 200)
            self.send_header("Content-Length", str(stop - start))
            self.end_headers()
            if door.holds_downloads is not None:
                self.wfile.flush()
                door.holds_downloads.wait(20)
            cut = door.cut_downloads_after.pop(0) if door.cut_downloads_after else len(body)
            with door.lock:
                door.sent_bytes += len(body[:cut])
            self.wfile.write(body[:cut])
            if cut < len(body):
                self.cut()

        def cut(self) -> None:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError

        def reply(self, status: int, body: dict[str, object]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def problem(self, error: MoreGPUError) -> None:
            self.close_connection = True
            self.reply(
                error.status,
                {
                    "type": f"about:moregpu/{error.code}",
                    "title": error.title,
                    "status": error.status,
                    "detail": error.detail,
                    "hint": error.hint,
                },
            )

        def log_message(self, *_: object) -> None:
            pass

    return Handler
