"""The link's WebSocket against a real server over TLS: threads, pieces, silence, and every way to end."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from moregpu.client.websocket import Closed, WebSocket
from moregpu.wire.tls import advisory_context

from .tls_server import TlsServer

PROTOCOL = "test.1"
Serve = Callable[["Peer"], None]


class Peer:
    """The other end of one WebSocket, frame by frame."""

    def __init__(self, stream: ssl.SSLSocket):
        self.stream = stream
        self.protocol = ServerProtocol(subprotocols=[PROTOCOL])  # type: ignore[list-item]
        self.headers = ""

    def open(self) -> None:
        for event in self.events():
            assert isinstance(event, Request)
            self.headers = str(event.headers)
            self.protocol.send_response(self.protocol.accept(event))
            self.flush()
            return

    def events(self) -> Iterator[object]:
        while data := self.stream.recv(1 << 16):
            self.protocol.receive_data(data)
            yield from self.protocol.events_received()
            self.flush()

    def frames(self, *frames: Frame) -> None:
        self.stream.sendall(b"".join(frame.serialize(mask=False) for frame in frames))

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                self.stream.sendall(data)


class Server(TlsServer):
    """Serves each connection by `serve`."""

    def __init__(self, folder: Path):
        self.serve: Serve = lambda peer: peer.open()
        super().__init__(folder)

    def met(self, stream: ssl.SSLSocket) -> None:
        self.serve(Peer(stream))

    def connect(self, *, ping_s: float = 30.0, max_bytes: int = 1 << 20) -> WebSocket:
        return WebSocket.open(
            self.address, "/v1/link", advisory_context(), subprotocol=PROTOCOL, headers={"Authorization": "Bearer me"},
            max_bytes=max_bytes, timeout_s=10.0, ping_s=ping_s,
        )  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    yield running
    running.stop()


def echo(peer: Peer) -> None:
    peer.open()
    for event in peer.events():
        assert isinstance(event, Frame)
        if event.opcode is Opcode.BINARY:
            peer.protocol.send_binary(event.data)
            peer.flush()


def test_many_threads_send_while_one_receives(server: Server) -> None:
    server.serve = echo
    socket = server.connect()
    sent = {b"%d %s" % (number, b"x" * (number % 7 * 3000)) for number in range(400)}
    with ThreadPoolExecutor(8) as threads:
        sending = threads.map(socket.send, sent)
        assert {socket.receive() for _ in sent} == sent
        list(sending)
    socket.close()


def test_messages_come_whole_however_they_were_cut(server: Server) -> None:
    def serve(peer: Peer) -> None:
        peer.open()
        whole = b"".join(
            frame.serialize(mask=False)
            for frame in (
                Frame(Opcode.TEXT, b"text"),
                Frame(Opcode.BINARY, b"one ", fin=False),
                Frame(Opcode.PING, b"in between"),
                Frame(Opcode.CONT, b"two ", fin=False),
                Frame(Opcode.CONT, b"three"),
                Frame(Opcode.BINARY, b"z" * 900_000),
            )
        )
        for at in range(60):
            peer.stream.sendall(whole[at : at + 1])  # a TLS record for each byte
        peer.stream.sendall(whole[60:])
        next(peer.events())

    server.serve = serve
    socket = server.connect()
    assert [socket.receive() for _ in range(3)] == [b"text", b"one two three", b"z" * 900_000]
    socket.close()


def test_what_came_before_the_end_is_read_first_and_the_end_says_its_code(server: Server) -> None:
    def serve(peer: Peer) -> None:
        peer.open()
        peer.protocol.send_binary(b"last words")
        peer.protocol.send_close(1008, "the token no longer holds")
        peer.flush()

    server.serve = serve
    socket = server.connect()
    assert socket.receive() == b"last words"
    with pytest.raises(Closed) as ended:
        socket.receive()
    assert ended.value.code == 1008
    with pytest.raises(Closed):
        socket.send(b"too late")


def test_a_connection_that_breaks_down_is_closed_without_a_code(server: Server) -> None:
    server.serve = Peer.open
    socket = server.connect()
    with pytest.raises(Closed) as ended:
        socket.receive()
    assert ended.value.code == 1006


def test_an_end_that_says_nothing_any_more_is_noticed(server: Server) -> None:
    gone = threading.Event()

    def serve(peer: Peer) -> None:
        peer.open()
        gone.wait(20)  # takes what comes and answers nothing, as a machine that fell asleep

    server.serve = serve
    socket = server.connect(ping_s=0.2)
    with pytest.raises(Closed):
        socket.receive()
    gone.set()


def test_an_end_that_answers_pings_is_kept(server: Server) -> None:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.open()
        for event in peer.events():
            assert isinstance(event, Frame)
            if event.opcode is not Opcode.PING:
                return
            if asked.is_set():
                peer.protocol.send_binary(b"still here")
            asked.set()

    server.serve = serve
    socket = server.connect(ping_s=0.1)
    assert socket.receive() == b"still here"  # after the second ping
    socket.close()


def test_closing_wakes_who_receives(server: Server) -> None:
    server.serve = echo
    socket = server.connect()
    ended: list[int] = []

    def receive() -> None:
        with pytest.raises(Closed) as closed:
            socket.receive()
        ended.append(closed.value.code)

    thread = threading.Thread(target=receive)
    thread.start()
    socket.close()
    thread.join(10)
    assert len(ended) == 1


def test_closing_does_not_wait_for_an_end_that_does_not_read(server: Server) -> None:
    gone = threading.Event()

    def serve(peer: Peer) -> None:
        peer.open()
        gone.wait(60)

    server.serve = serve
    socket = server.connect(ping_s=300.0)
    sent: list[int] = []

    def send() -> None:
        with pytest.raises(Closed):
            while True:
                socket.send(bytes(1 << 20))
                sent.append(1)

    thread = threading.Thread(target=send)
    thread.start()
    before = -1
    while before < len(sent) or not sent:  # until it stands still
        before = len(sent)
        thread.join(0.3)
    closing = threading.Thread(target=socket.close)
    closing.start()
    closing.join(30)
    thread.join(30)
    assert (closing.is_alive(), thread.is_alive()) == (False, False)
    gone.set()


def test_a_message_over_the_limit_ends_the_connection(server: Server) -> None:
    def serve(peer: Peer) -> None:
        peer.open()
        peer.frames(Frame(Opcode.BINARY, bytes(2000)))
        list(peer.events())

    server.serve = serve
    socket = server.connect(max_bytes=1000)
    with pytest.raises(Closed):
        socket.receive()


def test_a_refusal_comes_with_status_and_body(server: Server) -> None:
    def serve(peer: Peer) -> None:
        peer.stream.recv(1 << 16)
        body = b'{"title": "no"}'
        peer.stream.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        peer.stream.recv(1)

    server.serve = serve
    with pytest.raises(InvalidStatus) as refused:
        server.connect()
    response: Response = refused.value.response
    assert (response.status_code, response.body) == (403, b'{"title": "no"}')


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 101 Swi"])
def test_a_server_that_leaves_instead_of_answering_is_no_server_without_websockets(server: Server, said: bytes) -> None:
    def serve(peer: Peer) -> None:
        peer.stream.recv(1 << 16)
        peer.stream.sendall(said)

    server.serve = serve
    with pytest.raises(EOFError):
        server.connect()
