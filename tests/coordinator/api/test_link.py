"""The SDK's one connection: what `moregpu.wire.link` promises, over a real WebSocket through TLS."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from moregpu.coordinator.listen import Doorway
from moregpu.wire.invite import parse_client_line, split_address
from moregpu.wire.link import (
    LINK_SUBPROTOCOL,
    MAX_FROM_LINK_BYTES,
    MAX_TO_LINK_BYTES,
    Accepted,
    Cancel,
    Ended,
    Follow,
    FromLink,
    Happened,
    Part,
    Progress,
    Refused,
    Show,
    Shown,
    Stop,
    Submit,
    Subscribe,
    ToLink,
)

from .conftest import Pool

SPEC = {"kind": "kernel", "operation": "relu", "size": 4}
ONES = b"\0\0\x80\x3f"


class Line:
    """A client's end."""

    def __init__(self, socket: ClientConnection, packed: bool):
        self.socket = socket
        self.packed = packed

    def send(self, message: ToLink | dict[str, Any]) -> None:
        data = msgspec.msgpack.encode(message) if self.packed else msgspec.json.encode(message)
        self.socket.send(data, text=not self.packed)

    def submit(self, id: int, spec: dict[str, Any] = SPEC, **more: Any) -> None:
        encode = msgspec.msgpack.encode if self.packed else msgspec.json.encode
        self.send(Submit(id=id, spec=msgspec.Raw(encode(spec)), **more))

    def receive(self, timeout: float = 20) -> Any:
        data = self.socket.recv(timeout)
        assert isinstance(data, bytes) == self.packed
        if isinstance(data, bytes):
            return msgspec.msgpack.decode(data, type=FromLink)
        return msgspec.json.decode(data, type=FromLink)

    def until(self, kind: type[Any], id: int) -> Any:
        """Read on to one message."""
        while True:
            message = self.receive()
            if isinstance(message, kind) and message.id == id:
                return message


@contextlib.contextmanager
def link(pool: Pool, token: str, packed: bool = True, sock: socket.socket | None = None) -> Iterator[Line]:
    with connect(
        f"wss://{pool.address}/v1/link",
        sock=sock,
        ssl=pool.context(),
        subprotocols=[Subprotocol(LINK_SUBPROTOCOL)],
        additional_headers={"Authorization": f"Bearer {token}"},
        max_size=MAX_FROM_LINK_BYTES,
        compression=None,
    ) as socket:
        yield Line(socket, packed)


@pytest.fixture(scope="module")
def token(pool: Pool) -> str:
    return pool.token("submitter")


@pytest.mark.parametrize("packed", [True, False], ids=["msgpack", "json"])
def test_a_job_is_submitted_and_its_end_is_pushed(pool: Pool, token: str, packed: bool) -> None:
    with link(pool, token, packed) as line:
        line.submit(7, idempotency_key=f"one-{packed}")
        accepted = line.receive()
        assert isinstance(accepted, Accepted) and accepted.id == 7
        assert accepted.job.state == "queued" and accepted.job.waiting_reason
        pool.finish(accepted.job.id, {"out": ("float32", (1,), ONES)})
        ended = line.receive()
        assert isinstance(ended, Ended) and (ended.id, ended.job.state) == (7, "done")
        assert ended.job.result is not None and ended.job.result.outputs["out"].data == ONES
        line.submit(7, idempotency_key=f"one-{packed}")  # the id is free again, and the key finds the same job
        again = line.receive()
        assert isinstance(again, Ended) and again.job.id == ended.job.id


def test_early_tells_at_once_and_ids_do_not_wait_for_each_other(pool: Pool, token: str) -> None:
    with link(pool, token) as line:
        for id in (1, 2, 3):
            line.submit(id, early=True)
        jobs = {message.id: message.job.id for message in (line.receive() for _ in range(3))}
        assert sorted(jobs) == [1, 2, 3]
        pool.finish(jobs[3], {"out": ("float32", (1,), ONES)})
        assert line.receive().job.id == jobs[3]
        line.send(Cancel(id=9, job=jobs[1]))
        answers = {(type(message), message.id) for message in (line.receive(), line.receive())}
        assert answers == {(Shown, 9), (Ended, 1)}


def test_progress_and_parts_come_before_the_end(pool: Pool, token: str) -> None:
    with link(pool, token) as line:
        line.submit(1, progress=True, parts=True)
        job = line.until(Accepted, 1).job.id
        first = line.receive()
        assert isinstance(first, Progress) and (first.state, first.grains_done) == ("queued", 0)
        pool.finish(job, {"out": ("float32", (4,), ONES * 4)})
        seen = []
        while not seen or not isinstance(seen[-1], Ended):
            seen.append(line.receive())
        progress = [message for message in seen if isinstance(message, Progress)]
        (part,) = [message for message in seen if isinstance(message, Part)]
        assert (progress[-1].state, progress[-1].grains_done) == ("done", progress[-1].grains)
        assert part.places == {"out": ((0, 4),)}
        assert part.outputs["out"].data == ONES * 4


def test_following_finds_a_job_again_also_one_that_has_ended(pool: Pool, token: str) -> None:
    job = pool.submit(token)
    with link(pool, token) as line:
        line.send(Follow(id=1, job=job))
        assert isinstance(line.receive(), Accepted)
        pool.finish(job, {"out": ("float32", (1,), ONES)})
        assert isinstance(line.receive(), Ended)
        line.send(Follow(id=1, job=job[:20]))
        ended = line.receive()
        assert isinstance(ended, Ended) and ended.job.id == job
        line.send(Show(id=2, job=job, detail=True))
        shown = line.receive()
        assert isinstance(shown, Shown) and len(shown.job.tasks or []) == 1


def test_what_is_refused_says_why_and_closes_its_id_alone(pool: Pool, token: str) -> None:
    theirs = pool.submit(pool.token("submitter"))
    with link(pool, token) as line:
        line.submit(1, {"kind": "kernel", "operation": "relu"})
        line.submit(2, {"kind": "kernel", "operation": "relu", "size": 4, "unknown": 1})
        line.send(Follow(id=3, job=theirs))
        line.send(Show(id=4, job=theirs))
        line.send(Cancel(id=5, job="j-nothing"))
        line.send(Cancel(id=6, job=theirs))
        line.send(Follow(id=7, job=theirs, parts=True))
        refused = {message.id: message for message in (line.receive() for _ in range(7))}
        assert all(isinstance(message, Refused) for message in refused.values())
        codes = {id: message.problem.type.removeprefix("about:moregpu/") for id, message in refused.items()}
        assert codes == {
            1: "invalid-job",
            2: "invalid-request",
        } | dict.fromkeys((3, 4, 5, 6, 7), "not-found")
        line.submit(1, early=True)
        assert isinstance(line.receive(), Accepted)
        line.submit(1, early=True)  # still open
        doubled = line.receive()
        assert isinstance(doubled, Refused) and doubled.id == 1
        line.send(Stop(id=1))
        line.submit(1, early=True)
        assert isinstance(line.receive(), Accepted)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "asked",
    [
        {"type": "submit", "spec": SPEC, "idempotency_key": "k" * 201},
        {"type": "submit", "spec": SPEC, "newer": 1},
        {"type": "submit"},
        {"type": "follow", "job": 5},
        {"type": "of a later version"},
    ],
)
def test_whoever_asks_in_words_that_are_not_understood_is_answered_under_their_id(
    pool: Pool, token: str, asked: dict[str, Any], packed: bool
) -> None:
    with link(pool, token, packed) as line:
        line.send({**asked, "id": 7})
        refused = line.receive()
        assert isinstance(refused, Refused) and refused.id == 7
        assert refused.problem.type == "about:moregpu/invalid-request"
        line.submit(7, early=True)
        assert isinstance(line.receive(), Accepted)


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x80", b"[" * 5000, "", "{", '{"type":"submit"}', '{"id":-1}'])
def test_a_frame_that_is_no_message_is_told_and_the_link_lives(pool: Pool, token: str, frame: bytes | str) -> None:
    with link(pool, token) as line:
        line.socket.send(frame)
        data = line.socket.recv(20)
        answer = msgspec.msgpack.decode(data) if isinstance(data, bytes) else json.loads(data)
        assert answer["type"] == "refused" and "id" not in answer
        line.submit(1, early=True)
        assert isinstance(line.receive(), Accepted)


@pytest.mark.parametrize("packed", [True, False])
def test_a_message_in_pieces_and_what_stands_between_two_are_understood_and_what_follows(
    pool: Pool, token: str, packed: bool
) -> None:
    asked = Show(id=1, job=pool.submit(token))
    data = (msgspec.msgpack if packed else msgspec.json).encode(asked)
    with link(pool, token, packed) as line:
        line.send(Show(id=0, job=asked.job))
        assert line.receive().id == 0
        line.socket.send([data[:9], data[9:20], data[20:]], text=not packed)
        assert line.receive().id == 1
        assert line.socket.ping().wait(20)
        line.send(Show(id=2, job=asked.job))
        assert line.receive().id == 2


def test_a_text_that_is_none_ends_the_link(pool: Pool, token: str) -> None:
    with link(pool, token, packed=False) as line, pytest.raises(ConnectionClosed) as ended:
        line.socket.send(b"\xff", text=True)
        line.receive()
    assert ended.value.rcvd is not None and ended.value.rcvd.code == 1007


@pytest.fixture
def narrow(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """A way to the pool that holds a few answers: of those that find no room, some wait in the coordinator."""
    take_in = Doorway._take_in

    def narrowed(doorway: Doorway, connection: socket.socket) -> Coroutine[Any, Any, None]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return take_in(doorway, connection)

    monkeypatch.setattr(Doorway, "_take_in", narrowed)
    way = socket.socket()
    way.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    way.connect(split_address(pool.address))
    return way


def test_who_reads_late_finds_every_answer(pool: Pool, token: str, narrow: socket.socket) -> None:
    job = pool.submit(token)
    with link(pool, token, sock=narrow) as line:
        line.send(Subscribe(id=0))
        for id in range(1, 2001):
            line.send(Show(id=id, job=job))
        pool.submit(token)
        left, seen = set(range(1, 2001)), []
        while left:
            answer = line.receive()
            if isinstance(answer, Shown):
                left.remove(answer.id)
            elif answer.event.seq is not None:
                seen.append(answer.event.seq)
        assert seen == sorted(seen)


def test_who_asks_much_more_than_it_reads_is_told_so(
    pool: Pool, token: str, narrow: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moregpu.coordinator.api.link.MAX_UNWRITTEN", 40)
    job = pool.submit(token)
    with link(pool, token, sock=narrow) as line, pytest.raises(ConnectionClosed) as ended:
        for id in range(2000):
            line.send(Show(id=id, job=job))
        while True:
            line.receive()
    assert ended.value.rcvd is not None and ended.value.rcvd.code == 1008


def test_who_asks_more_than_it_reads_is_let_go(pool: Pool, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moregpu.coordinator.api.link.MAX_UNWRITTEN", 40)
    monkeypatch.setattr("moregpu.coordinator.api.link.SEND_S", 0.05)
    monkeypatch.setattr("moregpu.coordinator.secured.LINGER_S", 0.05)
    job = pool.submit(token)
    with link(pool, token) as line, pytest.raises(ConnectionClosed):
        for id in itertools.count():  # its library stops to read when a few answers lie there
            line.send(Show(id=id, job=job))


def test_a_frame_that_is_too_large_ends_the_link(pool: Pool, token: str) -> None:
    with link(pool, token) as line, pytest.raises(ConnectionClosed):
        line.socket.send(b"x" * (MAX_TO_LINK_BYTES + 1))
        line.receive()


def test_events_are_pushed_and_filtered(pool: Pool, token: str) -> None:
    with link(pool, token) as line:
        line.send(Subscribe(id=1))
        snapshot = line.receive()
        assert isinstance(snapshot, Happened) and snapshot.event.type == "snapshot"
        pool.submit(pool.token("submitter"))
        mine = pool.submit(token)
        while True:
            event = line.until(Happened, 1).event
            if event.type.startswith("job."):
                assert event.id == mine
                break


def test_a_link_that_ends_leaves_nothing_behind(pool: Pool, token: str) -> None:
    def listening() -> tuple[int, int]:
        desk: Any = pool.services.desk
        return len(desk.store._subscribers), len(desk.events._subscribers)

    before = listening()
    with link(pool, token) as line:
        line.send(Subscribe(id=1))
        line.submit(2, progress=True, parts=True)
        line.until(Progress, 2)
        assert listening() != before
        line.send(Stop(id=1))
    deadline = time.monotonic() + 20
    while any(now > was for now, was in zip(listening(), before, strict=True)):  # an earlier link may leave meanwhile
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_may_not_is_answered_before_the_socket_opens(pool: Pool, token: str) -> None:
    for token_shown, subprotocol, status in (
        ("", LINK_SUBPROTOCOL, 401),
        (pool.token("viewer"), LINK_SUBPROTOCOL, 403),
        (token, "moregpu.link.99", 426),
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect(
                f"wss://{pool.address}/v1/link",
                ssl=pool.context(),
                subprotocols=[Subprotocol(subprotocol)],
                additional_headers={"Authorization": f"Bearer {token_shown}"} if token_shown else {},
            )
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["type"].startswith("about:moregpu/")


def test_a_revoked_token_ends_its_link(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moregpu.coordinator.authority.LOOK_S", 3600.0)  # it is told, and does not have to look
    made = pool.ask("POST", "/v1/tokens", pool.admin, {}).json()
    with link(pool, parse_client_line(made["line"]).token) as line:
        line.submit(1, early=True)
        line.receive()
        pool.ask("DELETE", f"/v1/tokens/{made['id']}", pool.admin)
        with pytest.raises(ConnectionClosed) as closed:
            line.receive()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
