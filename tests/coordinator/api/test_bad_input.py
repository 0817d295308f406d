"""Every door against revoked tokens, bodies too large, broken, unknown, half-sent; pages past the end."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from moregpu.coordinator.api.table import COMPAT, DOORS, NATIVE, Door
from moregpu.wire.invite import parse_client_line
from moregpu.wire.link import Accepted, Ended, Follow, Refused, Stop

from .conftest import Pool
from .test_link import link
from .test_sockets import events

A_NUMBER = {"dtype": "float32", "shape": [1], "data": "AACAPw=="}

STRUCTS = [door for door in NATIVE if door.takes is not None and door.takes is not bytes]
BODIES = [*STRUCTS, *(door for door in COMPAT if door.verb == "POST" and "rest" not in door.path)]
ASKED = [door for door in DOORS if door.access != "public"]


def named(door: Door) -> str:
    return f"{door.verb} {door.path}"


@pytest.fixture(scope="module")
def paths(pool: Pool) -> dict[str, str]:
    """Things of the admin's that the paths name."""
    pool.ask("POST", "/v1/groups", pool.admin, {"name": "lab"})
    tensor = {"dtype": "float32", "shape": [1], "data": "AACAPw=="}
    pool.ask("POST", "/v1/tensors", pool.admin, {"name": "there", "tensor": tensor})
    return {"job": pool.submit(pool.admin), "worker": pool.worker.worker_id}


def path_of(door: Door, paths: dict[str, str]) -> str:
    thing = paths["job"] if "/jobs/" in door.path else paths["worker"] if "/workers/" in door.path else "lab"
    path = door.path.replace("{id}", thing).replace("{digest}", "0" * 64)
    return re.sub(r"\{\w+:path\}", "there", path)


@pytest.fixture(scope="module")
def revoked(pool: Pool) -> Iterator[str]:
    made = pool.ask("POST", "/v1/tokens", pool.admin, {"role": "admin"}).json()
    pool.ask("DELETE", f"/v1/tokens/{made['id']}", pool.admin)
    return parse_client_line(made["line"]).token  # pyright: ignore


@pytest.mark.parametrize("door", ASKED, ids=named)
def test_a_revoked_token_opens_no_door(pool: Pool, paths: dict[str, str], revoked: str, door: Door) -> None:
    assert pool.ask(door.verb, path_of(door, paths), revoked, b"x" * 64 if door.takes else None).status in (401, 429)


@pytest.mark.parametrize("door", BODIES, ids=named)
@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"text"', b"\xff\xfe\x00", b"[" * 50_000, b'{"a":' * 50_000])
def test_a_body_that_is_no_such_thing_is_refused(pool: Pool, paths: dict[str, str], door: Door, body: bytes) -> None:
    answer = pool.ask(door.verb, path_of(door, paths), pool.admin, body)
    assert answer.status == 400
    if door.compat:
        assert answer.json()["error"]
    else:
        assert answer.code == "invalid-request" and answer.json()["hint"]


@pytest.mark.parametrize("door", STRUCTS, ids=named)
def test_an_unknown_field_is_refused(pool: Pool, paths: dict[str, str], door: Door) -> None:
    answer = pool.ask(door.verb, path_of(door, paths), pool.admin, {"kind": "kernel", "surely_unknown": 1})
    assert answer.code == "invalid-request"
    assert "unknown field" in answer.json()["detail"] or "missing" in answer.json()["detail"]


@pytest.mark.parametrize("door", [*BODIES, *(door for door in NATIVE if door.takes is bytes)], ids=named)
def test_a_body_that_is_too_large_is_refused_before_it_is_sent(pool: Pool, paths: dict[str, str], door: Door) -> None:
    with pool.socket() as secure:
        secure.sendall(
            f"{door.verb} {path_of(door, paths)} HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {pool.admin}"
            f"\r\nExpect: 100-continue\r\nContent-Length: {1 << 49}\r\n\r\n".encode()
        )
        assert secure.recv(65536).startswith((b"HTTP/1.1 413", b"HTTP/1.1 507"))


@pytest.mark.parametrize("door", BODIES, ids=named)
def test_a_body_that_breaks_off_does_nothing(pool: Pool, paths: dict[str, str], door: Door) -> None:
    before = _counted(pool)
    with pool.socket() as secure:
        secure.sendall(
            f"{door.verb} {path_of(door, paths)} HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {pool.admin}"
            "\r\nContent-Length: 1000\r\n\r\n{".encode()
        )
        secure.shutdown(socket.SHUT_RDWR)
    assert pool.ask("GET", "/health").status == 200
    assert _counted(pool) == before


@pytest.mark.parametrize("door", [door for door in NATIVE if door.query], ids=named)
def test_a_query_of_too_many_fields_is_the_senders_mistake(
    pool: Pool, paths: dict[str, str], door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{path_of(door, paths)}?{'&'.join(f'a{number}=1' for number in range(40))}"
    body: Any = b"x" * 64 if door.takes is bytes else {"kind": "kernel", "operation": "relu", "size": 4}
    answer = pool.ask(door.verb, path, pool.admin, body if door.takes else None)
    assert answer.code == "invalid-request" and "32 fields" in answer.json()["detail"]
    assert not [record for record in caplog.records if record.exc_info]


def test_nobody_writes_a_traceback_into_the_log_by_a_long_query(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    query = "&".join(f"a{number}=1" for number in range(40))
    assert pool.ask("GET", f"/health?{query}").status == 200
    assert pool.ask("GET", f"/v1/me?{query}").status in (401, 429)  # others before it may have shown wrong tokens, too
    assert pool.ask("GET", f"/nowhere?{query}").code == "not-found"
    with pytest.raises(InvalidStatus) as shut, events(pool, pool.admin, f"?{query}"):
        pass
    assert shut.value.response.status_code == 400
    assert not [record for record in caplog.records if record.exc_info]


def _counted(pool: Pool) -> list[int]:
    lists = ("/v1/tokens", "/v1/invites", "/v1/groups", "/v1/tensors", "/jobs")
    return [len(pool.ask("GET", path, pool.admin).json()) for path in lists]


def test_a_page_past_the_end_is_empty(pool: Pool) -> None:
    token = pool.token("submitter")
    jobs = [pool.submit(token) for _ in range(5)]
    seen: list[str] = []
    after = ""
    while True:
        page = pool.ask("GET", f"/v1/jobs?limit=2&after={after}", token).json()
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == jobs[::-1]
    assert pool.ask("GET", f"/v1/jobs?after={jobs[0]}", token).json() == {"items": [], "next": None}
    assert pool.ask("GET", "/v1/jobs?after=j-0", token).json()["items"] == []
    assert pool.ask("GET", f"/v1/jobs?after={jobs[1].lower()}", token).json()["items"][0]["id"] == jobs[0]
    assert pool.ask("GET", "/v1/jobs?after=nothing", token).code == "invalid-request"
    assert pool.ask("GET", "/v1/jobs?state=queued,running&kind=kernel&limit=99999", token).status == 200


def test_a_client_that_goes_in_mid_download_takes_nothing_with_it(pool: Pool) -> None:
    token = pool.token("submitter")
    job = pool.submit(token)
    size = 24 << 20
    pool.finish(job, {"out": ("uint8", (size,), bytes(size))})
    for path in (f"/v1/jobs/{job}/result", f"/jobs/{job}"):
        with pool.socket() as secure:
            secure.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            assert secure.recv(1000).startswith(b"HTTP/1.1 200")
        answer = pool.ask("GET", path, token)
        assert answer.status == 200 and len(answer.body) > size


FUNCTION = {
    "kind": "function", "calls": [3], "inputs": {
        "program": {"dtype": "uint8", "shape": [1], "data": "AA=="},
        "arguments": {"dtype": "uint8", "shape": [3], "data": "AAAA"},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_bytes": 10**30}, {"vram_bytes": 10**30}, {"cores": 10**30}, {"seed": 10**30}, {"calls": [10**30]},
        {"group": "x" * 100_000}, {"device": "x" * 100_000}, {"after": ["j-" + "x" * 100_000]},
        {"kind": "kernel", "operation": "relu", "size": 10**30}, {"kind": "kernel", "operation": "x" * 100_000},
        {"kind": "kernel", "operation": "relu", "size": 4, "memory_bytes": 10**30},
        {"kind": "kernel", "operation": "relu", "size": 4, "seed": 10**30},
    ],
    ids=lambda fields: "-".join([fields.get("kind", "function"), *list(fields)[-1:]]),
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plan"])
def test_numbers_and_names_beyond_all_measure_are_the_senders_mistake(
    pool: Pool, path: str, fields: dict[str, object]
) -> None:
    spec = fields if fields.get("kind") == "kernel" else {**FUNCTION, **fields}
    assert pool.ask("POST", path, pool.admin, json.dumps(spec)).status in (400, 413)


HOSTILE_FORMULAS = {
    "a long sum": "+".join(["x"] * 4_900),
    "deep parentheses": "(" * 4_900 + "x" + ")" * 4_900,
    "many signs": "-" * 9_990 + "x" + "+x" * 4,
    "a tower of powers": "**".join(["x"] * 3_300),
    "calls in calls": "exp(" * 1_900 + "x" + ")" * 1_900,
    "a number of ten thousand digits": "9" * 9_990 + "*x",
}


@pytest.mark.parametrize("text", HOSTILE_FORMULAS.values(), ids=HOSTILE_FORMULAS)
def test_no_formula_makes_the_coordinator_fail(pool: Pool, text: str) -> None:
    spec = {"kind": "kernel", "operation": "formula", "formula": text, "inputs": {"x": A_NUMBER}}
    answer = pool.ask("POST", "/v1/plan", pool.admin, spec)
    assert answer.status == 200 or answer.code == "invalid-job"


def test_one_request_that_fails_ends_no_other_on_its_link(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = pool.token("submitter")
    desk = pool.services.desk
    good = desk.submit

    async def broken(who: Any, spec: Any, key: str, wait_s: float) -> Any:
        if spec.name == "breaks":
            raise RecursionError("as deep as nobody thought")
        return await good(who, spec, key, wait_s)

    monkeypatch.setattr(desk, "submit", broken)
    spec = {"kind": "kernel", "operation": "relu", "size": 4}
    with link(pool, token) as line:
        line.submit(1, spec, early=True)
        accepted = line.until(Accepted, 1)
        line.submit(2, spec | {"name": "breaks"}, early=True)
        refused = line.until(Refused, 2)
        assert refused.problem.detail == "the coordinator failed at this"
        assert "as deep as nobody thought" not in refused.problem.hint
        pool.ask("DELETE", f"/v1/jobs/{accepted.job.id}", token)
        assert line.until(Ended, 1).job.state == "cancelled"
    assert any(record.exc_info for record in caplog.records)


def test_one_token_takes_its_share_of_the_connections_and_no_more(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that nobody reads holds its connection for as long as its client likes."""
    monkeypatch.setattr(pool.services.inflight, "_most", 6)
    greedy, other = pool.token("submitter"), pool.token("submitter")
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(link(pool, greedy))
            stream = held.enter_context(pool.socket())
            stream.sendall(
                f"GET /v1/events HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {greedy}\r\n\r\n".encode()
            )
            assert stream.recv(1000).startswith(b"HTTP/1.1 200")
        refused = pool.ask("GET", "/v1/me", greedy)
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "too-many-requests", "5")
        with pytest.raises(InvalidStatus) as shut, link(pool, greedy):
            pass
        assert shut.value.response.status_code == 429
        assert pool.ask("GET", "/v1/me", other).status == 200
        assert pool.ask("GET", "/health").status == 200
    until = time.monotonic() + 20
    while len(pool.services.inflight):  # the coordinator hears of each end in a moment
        assert time.monotonic() < until
        time.sleep(0.01)
    assert pool.ask("GET", "/v1/me", greedy).status == 200


def test_the_links_of_one_token_have_no_more_open_together_than_its_share(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool.services.on_links, "_most", 5)
    greedy, other = pool.token("submitter"), pool.token("submitter")
    with link(pool, greedy) as first, link(pool, greedy) as second, link(pool, other) as others:
        for id in range(3):
            first.submit(id, early=True)
            first.until(Accepted, id)
        job = pool.ask("GET", "/v1/jobs?limit=1", greedy).json()["items"][0]["id"]
        for id in range(2):
            second.send(Follow(id=id, job=job))
            second.until(Accepted, id)
        second.send(Follow(id=2, job=job))
        assert second.until(Refused, 2).problem.type == "about:moregpu/too-many-requests"
        others.submit(1, early=True)
        others.until(Accepted, 1)
        second.send(Stop(id=0))
        second.send(Follow(id=3, job=job))
        second.until(Accepted, 3)
