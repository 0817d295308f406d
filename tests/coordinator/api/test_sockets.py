"""WebSockets and server-sent events through the doors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from moregpu.coordinator.api.table import SOCKETS
from moregpu.coordinator.archive import ArchiveWriter
from moregpu.coordinator.backup import back_up, restore
from moregpu.coordinator.server import ServeConfig
from moregpu.wire.api import Event, Problem
from moregpu.wire.invite import parse_client_line, token_id
from moregpu.wire.link import LINK_SUBPROTOCOL
from moregpu.wire.messages import SUBPROTOCOL
from moregpu.wire.session import Channel

from .conftest import Pool, Running


def events(pool: Pool, token: str, query: str = "") -> ClientConnection:
    return connect(
        f"wss://{pool.address}/v1/events{query}", ssl=pool.context(), proxy=None,
        additional_headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip


def until(link: ClientConnection, type: str) -> Event:
    while True:
        event = msgspec.json.decode(link.recv(20), type=Event)
        if event.type == type:
            return event


def worker_link(pool: Pool, **options: Any) -> ClientConnection:
    return connect(f"wss://{pool.address}/v1/worker", ssl=pool.context(), proxy=None, compression=None, **options)


@pytest.mark.parametrize(
    ("offered", "who_updates"),
    [(None, "moregpu join"), (["moregpu.0"], "on the worker"), (["moregpu.2"], "the coordinator"), (["x"], "join")],
)
def test_a_worker_of_another_version_is_told_which_side_to_update(
    pool: Pool, offered: list[str] | None, who_updates: str
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        worker_link(pool, subprotocols=offered)
    response = refused.value.response
    problem = msgspec.json.decode(response.body or b"", type=Problem)
    assert (response.status_code, problem.type) == (426, "about:moregpu/version-mismatch")
    assert who_updates in problem.hint
    assert "moregpu.1" in problem.detail


def test_a_worker_session_runs_through_the_door(pool: Pool) -> None:
    with worker_link(pool, subprotocols=["moregpu.9", SUBPROTOCOL]) as link:
        assert link.subprotocol == SUBPROTOCOL
        channel = Channel.initiator(pool.worker.ws, pool.services.keys.cs_pub, pool.services.pool.id)
        link.send(channel.start())
        channel.receive(bytes(link.recv(10)))  # pyright: ignore[reportArgumentType]
        assert channel.established


def test_nonsense_and_text_end_a_workers_socket_and_no_more(pool: Pool) -> None:
    for message in (b"", b"x" * 1000, "text"):
        with worker_link(pool, subprotocols=[SUBPROTOCOL]) as link:
            link.send(message)
            with pytest.raises(ConnectionClosed):
                while True:
                    link.recv(15)
    assert pool.ask("GET", "/health").status == 200


def test_a_message_over_the_bound_ends_the_socket(pool: Pool) -> None:
    with worker_link(pool, subprotocols=[SUBPROTOCOL], max_size=None) as link:
        with pytest.raises(ConnectionClosed) as closed:  # by either: it may be refused while it is still being sent
            link.send(bytes(65_536))
            link.recv(15)
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009


def test_no_compression_is_negotiated(pool: Pool) -> None:
    with connect(
        f"wss://{pool.address}/v1/worker", ssl=pool.context(), proxy=None, subprotocols=[SUBPROTOCOL]  # pyright: ignore[reportArgumentType]
    ) as link:  # fmt: skip
        assert link.protocol.extensions == []


def test_events_begin_with_a_snapshot_and_go_on_with_what_happens(pool: Pool) -> None:
    token = pool.token("submitter")
    with events(pool, token) as link:
        snapshot = msgspec.json.decode(link.recv(20), type=Event)
        assert snapshot.type == "snapshot"
        assert snapshot.seq is not None
        job = pool.submit(token)
        queued = until(link, "job.queued")
        assert queued.id == job
        assert queued.seq is not None
    with events(pool, token, f"?after={snapshot.seq}") as link:
        assert until(link, "job.queued") == queued


def test_whoever_has_seen_what_a_backup_does_not_know_reads_everything_anew(pool: Pool) -> None:
    token = pool.token("submitter")
    with events(pool, token, "?after=999999999999") as link:
        resync = msgspec.json.decode(link.recv(20), type=Event)
        assert resync.type == "resync"
        job = pool.submit(token)
        queued = until(link, "job.queued")
        assert queued.id == job
        assert resync.seq is not None and queued.seq is not None and resync.seq < queued.seq < 999999999999


def test_numbers_of_a_history_that_a_backup_does_not_know_never_come_again(
    config: ServeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who saw the third job of one history must not take the fourth of another for what comes after it."""
    monkeypatch.setattr(ArchiveWriter.__init__, "__defaults__", ((4, 8, 1), *ArchiveWriter.__init__.__defaults__[1:]))  # type: ignore[index]
    with Running(config) as first:
        first.submit(first.admin, name="before the backup")
        back_up(Path(config.state), tmp_path / "file", "correct horse battery")
        with events(first, first.admin) as link:
            lost = [first.submit(first.admin) for _ in range(3)]
            queued = [until(link, "job.queued") for _ in lost]
            assert [event.id for event in queued] == lost
    seen = [event.seq for event in queued]
    for again in ("once", "twice"):
        restore(tmp_path / "file", tmp_path / again, "correct horse battery")
        with Running(ServeConfig(port=0, state=str(tmp_path / again), profile=""), first) as second:
            for _ in range(6):  # as many as there were, and more
                second.submit(second.admin)
            last = second.services.desk.store.last_seq()
            for seq in seen:
                with events(second, second.admin, f"?after={seq}") as link:
                    resync = msgspec.json.decode(link.recv(20), type=Event)
                    assert (resync.type, resync.seq) == ("resync", last)
            with events(second, second.admin, f"?after={last - 6}") as link:
                assert until(link, "job.queued").seq == last - 5
            assert last < 1 << 53
            told = [line["msg"].partition(":")[0] for line in second.ask("GET", "/logs", second.admin).json()]
            told = [what for what in told if what in ("job queued", "pool restored")]
            assert told == [*["job queued"] * 6, "pool restored", "job queued"], "what was before is in the log still"
        seen.append(last)


def test_events_of_others_are_not_shown(pool: Pool) -> None:
    mine, theirs = pool.token("submitter"), pool.token("submitter")
    with events(pool, mine) as link:
        assert json.loads(link.recv(20))["type"] == "snapshot"
        pool.submit(theirs)
        job = pool.submit(mine)
        assert until(link, "job.queued").id == job


def test_events_need_a_token_and_a_number(pool: Pool) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"wss://{pool.address}/v1/events", ssl=pool.context(), proxy=None)
    assert refused.value.response.status_code in (401, 429)
    with pytest.raises(InvalidStatus) as refused:
        events(pool, pool.admin, "?after=x")
    assert refused.value.response.status_code == 400
    assert pool.ask("GET", "/v1/events?after=-1", pool.admin).code == "invalid-request"


def test_server_sent_events_resume_by_their_id(pool: Pool) -> None:
    token = pool.token("submitter")
    job = pool.submit(token)
    seen = _server_sent(pool, token, {"Last-Event-ID": "0"}, "job.queued")
    assert seen["data"]["id"] == job
    assert int(seen["id"]) == seen["data"]["seq"]
    later = pool.submit(token)
    assert _server_sent(pool, token, {"Last-Event-ID": seen["id"]}, "job.queued")["data"]["id"] == later


def test_a_stream_ends_with_its_token(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moregpu.coordinator.authority.LOOK_S", 3600.0)  # it is told, and does not have to look
    token = pool.token("viewer")
    stream = pool.connection()
    stream.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"})
    answer = stream.getresponse()
    with events(pool, token) as link:
        assert "snapshot" in str(link.recv(20))
        pool.ask("DELETE", f"/v1/tokens/{token_id(token)}", pool.admin)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                link.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
    assert answer.read()  # to its end
    stream.close()


def test_a_log_that_is_followed_ends_with_the_token_that_follows_it(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moregpu.coordinator.authority.LOOK_S", 3600.0)
    token = pool.token("submitter")
    job = pool.submit(token)  # nobody is there who would end it
    stream = pool.connection()
    stream.request("GET", f"/v1/jobs/{job}/logs?follow=1", headers={"Authorization": f"Bearer {token}"})
    answer = stream.getresponse()
    assert b"queued" in answer.readline() + answer.readline()
    pool.ask("DELETE", f"/v1/tokens/{token_id(token)}", pool.admin)
    answer.read()  # to its end
    stream.close()


def _server_sent(pool: Pool, token: str, headers: dict[str, str], wanted: str) -> dict[str, Any]:
    """Read a stream as a browser's EventSource does, up to the first event of a type."""
    connection = pool.connection()
    try:
        connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {token}", **headers})
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/event-stream"
        fields: dict[str, Any] = {}
        while True:
            line = answer.readline().decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = json.loads(value) if name == "data" else value
            elif fields.get("event") == wanted:
                return fields
            else:
                fields = {}
    finally:
        connection.close()


REFUSED = {"nobody": 401, "a revoked token": 401, "too low a role": 403, "a token for the calls of 1.x": 403}


@pytest.mark.parametrize(
    ("path", "who"),
    [(door.path, who) for door in SOCKETS for who in REFUSED if door.access != "public"
     and not (who == "too low a role" and door.access == "viewer")],
)  # fmt: skip
def test_a_socket_opens_for_nobody_whom_a_door_would_refuse(pool: Pool, path: str, who: str) -> None:
    token = ""
    if who == "a revoked token":
        token = pool.token("admin")
        assert pool.ask("DELETE", f"/v1/tokens/{token_id(token)}", pool.admin).status == 204
    elif who == "too low a role":
        token = pool.token("viewer")
    elif who == "a token for the calls of 1.x":
        made = pool.ask("POST", "/v1/tokens", pool.admin, {"role": "admin", "scope": "compat"}).json()
        token = parse_client_line(made["line"]).token
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with pytest.raises(InvalidStatus) as refused:
        connect(
            f"wss://{pool.address}{path}", ssl=pool.context(), proxy=None, additional_headers=headers,
            subprotocols=[Subprotocol(LINK_SUBPROTOCOL)],
        )  # fmt: skip
    assert refused.value.response.status_code == REFUSED[who]
    problem = msgspec.json.decode(refused.value.response.body or b"", type=Problem)
    assert problem.hint
    assert not token or token not in problem.detail + problem.hint
