"""Doors to jobs, workers, invites and tokens: what they answer, and bad input at each."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moregpu.wire.api import InviteView, JobView
from moregpu.wire.invite import parse_client_line, parse_invite

from .conftest import Pool, Response

SPEC = {"kind": "kernel", "operation": "relu", "size": 4}


@pytest.fixture(scope="module")
def token(pool: Pool) -> str:
    return pool.token("submitter")


def test_a_job_is_answered_with_its_place_and_waits_for_a_worker(pool: Pool, token: str) -> None:
    answer = pool.ask("POST", "/v1/jobs", token, SPEC)
    view = msgspec.json.decode(answer.body, type=JobView)
    assert answer.status == 201
    assert answer.headers["location"] == f"/v1/jobs/{view.id}"
    assert (view.state, view.tasks) == ("queued", None)
    assert view.waiting_reason
    assert pool.ask("GET", f"/v1/jobs/{view.id}", token).json()["tasks"] == []


def test_a_unique_beginning_of_its_id_is_enough(pool: Pool, token: str) -> None:
    job = pool.submit(token)
    assert pool.ask("GET", f"/v1/jobs/{job[:-1].lower()}", token).json()["id"] == job


def test_a_beginning_that_is_unique_among_ones_own_is_enough_however_many_of_others_begin_so(pool: Pool) -> None:
    crowd, alone = pool.token("submitter"), pool.token("submitter")
    for _ in range(12):
        pool.submit(crowd)
    job = pool.submit(alone)
    assert pool.ask("GET", "/v1/jobs/j-0", alone).json()["id"] == job
    assert pool.ask("GET", "/v1/jobs/j-0", crowd).code == "conflict"


def test_the_only_job_is_not_meant_by_nothing(pool: Pool) -> None:
    alone = pool.token("submitter")
    job = pool.submit(alone)
    assert pool.ask("DELETE", "/v1/jobs/j-", alone).status == 404
    assert pool.ask("GET", f"/v1/jobs/{job}", alone).json()["state"] == "queued"


def test_the_same_idempotency_key_gives_the_same_job_to_the_same_token(pool: Pool, token: str) -> None:
    headers = {"Idempotency-Key": "once"}
    first = pool.ask("POST", "/v1/jobs", token, SPEC, headers).json()["id"]
    assert pool.ask("POST", "/v1/jobs", token, SPEC, headers).json()["id"] == first
    assert pool.ask("POST", "/v1/jobs", pool.token("submitter"), SPEC, headers).json()["id"] != first
    assert pool.ask("POST", "/v1/jobs", token, SPEC, {"Idempotency-Key": "k" * 201}).code == "invalid-request"


def test_waiting_returns_when_the_job_ends_and_when_the_time_is_up(pool: Pool, token: str) -> None:
    assert pool.ask("POST", "/v1/jobs?wait=0.01", token, SPEC).status == 201
    job = pool.submit(token)
    assert pool.ask("GET", f"/v1/jobs/{job}?wait=0.01", token).json()["state"] == "queued"
    states: list[str] = []
    waiting = threading.Thread(
        target=lambda: states.append(pool.ask("GET", f"/v1/jobs/{job}?wait=30", token).json()["state"])
    )
    waiting.start()
    pool.finish(job, {"out": ("float32", (1,), b"1234")})
    waiting.join(20)
    assert states == ["done"]


def test_a_job_that_ends_in_time_is_answered_with_its_result(pool: Pool) -> None:
    token = pool.token("submitter")
    answers: list[Response] = []
    submitting = threading.Thread(target=lambda: answers.append(pool.ask("POST", "/v1/jobs?wait=30", token, SPEC)))
    submitting.start()
    jobs: list[str] = []
    while not jobs:
        jobs = [item["id"] for item in pool.ask("GET", "/v1/jobs", token).json()["items"]]
    pool.finish(jobs[0], {"out": ("float32", (1,), b"1234")})
    submitting.join(20)
    (answer,) = answers
    assert (answer.status, answer.json()["state"]) == (200, "done")
    assert answer.json()["result"]["outputs"]["out"]["data"] == "MTIzNA=="


def test_msgpack_goes_in_and_out(pool: Pool, token: str) -> None:
    headers = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
    answer = pool.ask("POST", "/v1/jobs", token, msgspec.msgpack.encode(SPEC), headers)
    assert answer.headers["content-type"] == "application/msgpack"
    assert msgspec.msgpack.decode(answer.body, type=JobView).state == "queued"


def test_a_job_is_cancelled_and_submitted_again(pool: Pool, token: str) -> None:
    job = pool.submit(token, name="mine")
    assert pool.ask("DELETE", f"/v1/jobs/{job}", token).json()["state"] == "cancelled"
    again = pool.ask("POST", f"/v1/jobs/{job}/retry", token)
    assert (again.status, again.json()["state"], again.json()["name"]) == (201, "queued", "mine")
    assert again.json()["id"] != job


def test_a_job_is_submitted_again_once_for_each_key(pool: Pool, token: str) -> None:
    def again(job: str, key: str) -> str:
        answer = pool.ask("POST", f"/v1/jobs/{job}/retry", token, headers={"Idempotency-Key": key})
        assert answer.status == 201
        return answer.json()["id"]

    made = pool.ask("POST", "/v1/jobs", token, SPEC, {"Idempotency-Key": "night"}).json()["id"]
    other = pool.submit(token)
    first = again(made, "night")
    assert first != made, "the key of the job itself is not the key of its being run again"
    pool.ask("PATCH", f"/v1/jobs/{made}", token, {"priority": 5})
    assert again(made, "night") == first
    assert again(made, "another night") not in (made, first)
    assert again(other, "night") not in (made, first, other)
    pool.ask("DELETE", f"/v1/jobs/{made}", token)
    assert pool.ask("DELETE", f"/v1/jobs/{made}?purge=1", token).status == 200
    assert again(made, "night") == first, "also where it could not be run again now"
    refused = pool.ask("POST", f"/v1/jobs/{made}/retry", token, headers={"Idempotency-Key": "n" * 201})
    assert refused.code == "invalid-request"


def test_a_plan_says_what_would_be_and_keeps_nothing(pool: Pool) -> None:
    token = pool.token("submitter")
    plan = pool.ask("POST", "/v1/plan", token, SPEC | {"operation": "matmul", "size": 512}).json()
    assert plan["grains"] >= 1 and plan["fitting_workers"] == 0 and plan["waiting_reason"]
    assert pool.ask("GET", "/v1/jobs", token).json()["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"1", b'"text"', b"\xff\xfe", b'{"kind": "kernel"}', b'{"kind": "nothing"}',
        b'{"kind": "kernel", "operation": "relu", "size": 4, "unknown": 1}',
        b'{"kind": "kernel", "operation": "fork", "size": 4}',
        b'{"kind": "kernel", "operation": "relu", "size": -1}', b'{"kind": "kernel", "operation": "relu", "size": "4"}',
        b'{"kind": "kernel", "operation": "relu", "size": NaN}', b'{"kind": "kernel", "operation": "relu"}',
        b'{"kind":"kernel","operation":"relu","inputs":{"a":{"dtype":"float32","shape":[2],"data":"AAAA"}}}',
        b'{"kind":"kernel","operation":"relu","inputs":{"a":{"dtype":"object","shape":[1],"data":"AAAA"}}}',
        b"[" * 100_000, b'{"kind":' * 50_000,
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)  # fmt: skip
def test_a_body_that_is_no_job_is_told_why(pool: Pool, token: str, body: bytes) -> None:
    answer = pool.ask("POST", "/v1/jobs", token, body)
    assert answer.status == 400
    assert answer.code in ("invalid-request", "invalid-job")
    assert answer.json()["detail"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(body=st.binary(max_size=200), packed=st.booleans())
def test_no_body_breaks_a_door(pool: Pool, token: str, body: bytes, packed: bool) -> None:
    headers = {"Content-Type": "application/msgpack"} if packed else {}
    assert pool.ask("POST", "/v1/plan", token, body, headers).status in (200, 400)
    assert pool.ask("PATCH", "/v1/workers/w-none", pool.admin, body, headers).status in (400, 404)


def test_a_job_too_large_to_be_one_is_refused(pool: Pool, token: str) -> None:
    assert pool.ask("POST", "/v1/jobs", token, SPEC | {"size": 10**13}).code == "too-large"
    inline = {"a": {"dtype": "uint8", "shape": [300_000], "data": "A" * 400_000}}
    answer = pool.ask("POST", "/v1/jobs", token, {"kind": "kernel", "operation": "relu", "inputs": inline})
    assert answer.status in (400, 413)


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(pool: Pool, token: str) -> None:
    secure = pool.socket()
    secure.sendall(
        f"POST /v1/jobs HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {token}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
    )
    assert secure.recv(65536).startswith(b"HTTP/1.1 413")
    secure.close()


def test_a_body_without_a_length_is_cut_off_at_the_bound(pool: Pool, token: str) -> None:
    connection = pool.connection()
    connection.request(
        "POST", "/v1/jobs", body=(b" " * 65536 for _ in range(40)), encode_chunked=True,
        headers={"Authorization": f"Bearer {token}", "Transfer-Encoding": "chunked"},
    )  # fmt: skip
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("query", ["wait=x", "wait=-1", "wait=nan", "limit=0", "state=gone", "kind=x", "limit="])
def test_a_query_that_means_nothing_is_told(pool: Pool, token: str, query: str) -> None:
    verb, body = ("POST", SPEC) if query.startswith("wait") else ("GET", None)
    assert pool.ask(verb, f"/v1/jobs?{query}", token, body).code == "invalid-request"


def test_invites_have_the_rules_of_their_uses(pool: Pool) -> None:
    one = msgspec.json.decode(pool.ask("POST", "/v1/invites", pool.admin, {}).body, type=InviteView)
    line = parse_invite(one.line)
    assert (line.invite_id, line.pool_id, line.pin) == (one.id, pool.services.pool.id, pool.pin)
    assert line.addresses == (pool.address,)
    assert (one.owner, one.uses_left, one.auto_approve) == (one.id, 1, True)
    assert "this machine only" in one.reach
    many = pool.ask("POST", "/v1/invites", pool.admin, {"uses": 5, "expires_s": 1e9, "owner": "lab"}).json()
    assert not many["auto_approve"]
    assert many["expires_at"] <= time.time() + 86_401
    assert pool.ask("POST", "/v1/invites", pool.admin, {"uses": 2, "auto_approve": True}).json()["auto_approve"]
    assert pool.ask("POST", "/v1/invites", pool.admin, {"kinds": ["mining"]}).code == "invalid-request"
    listed = pool.ask("GET", "/v1/invites", pool.admin)
    assert one.id in {item["id"] for item in listed.json()}
    assert one.line.encode() not in listed.body
    assert pool.ask("DELETE", f"/v1/invites/{one.id.lower()}", pool.admin).status == 204
    assert pool.ask("DELETE", f"/v1/invites/{one.id}", pool.admin).code == "not-found"


def test_a_revoked_token_opens_nothing(pool: Pool) -> None:
    made = pool.ask("POST", "/v1/tokens", pool.admin, {"label": "short", "role": "viewer"}).json()
    token = parse_client_line(made["line"]).token
    me = pool.ask("GET", "/v1/me", token).json()
    assert me == {"id": made["id"], "label": "short", "role": "viewer", "scope": "all", "kinds": []}
    listed = pool.ask("GET", "/v1/tokens", pool.admin)
    assert token.encode() not in listed.body
    assert next(item for item in listed.json() if item["id"] == made["id"])["used_at"] is not None
    assert pool.ask("DELETE", f"/v1/tokens/{made['id']}", pool.admin).status == 204
    assert pool.ask("GET", "/v1/me", token).status in (401, 429)


def test_a_worker_is_found_by_name_and_renamed_and_revoked(pool: Pool) -> None:
    id = pool.worker.worker_id
    assert pool.ask("GET", "/v1/workers/a%20worker", pool.admin).json()["id"] == id
    changed = pool.ask("PATCH", f"/v1/workers/{id}", pool.admin, {"name": "another"})
    assert (changed.status, changed.json()["name"]) == (200, "another")
    assert pool.ask("PATCH", f"/v1/workers/{id}", pool.admin, {"ceiling": 7}).code == "invalid-request"
    assert pool.ask("DELETE", "/v1/workers/w-", pool.admin).status == 404, "the only worker is not meant by nothing"
    assert pool.ask("DELETE", f"/v1/workers/{id}", pool.admin).status == 204
    assert [view["state"] for view in pool.ask("GET", "/v1/workers", pool.admin).json()] == ["revoked"]


def test_the_pool_describes_itself(pool: Pool) -> None:
    view = pool.ask("GET", "/v1/pool", pool.admin).json()
    assert (view["name"], view["addresses"], len(view["fingerprint"].split())) == ("test pool", [pool.address], 8)
    assert view["storage_free_bytes"] > 0
    health = pool.ask("GET", "/health").json()
    assert health["ok"] is True and isinstance(health["fleet"], int) and isinstance(health["queue"], int)
