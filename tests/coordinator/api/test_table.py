"""Every door × role × owner. The expectations stand here in full, so that the code's table is not its own witness."""

from __future__ import annotations

from typing import Any

import pytest

from moregpu.coordinator.api.table import COMPAT, NATIVE, SOCKETS
from moregpu.wire.invite import parse_client_line

from .conftest import Pool
from .test_kernels import LEAKY_RELU

WHO = ("nobody", "viewer", "owner", "other", "admin")
"""`owner` and `other` are submitters: the job or blob of the path is the owner's."""

SPEC = {"kind": "kernel", "operation": "relu", "size": 4}
JOB, INVITE, TOKEN, BLOB, TENSOR, GROUP = "<job>", "<invite>", "<token>", "<blob>", "<tensor>", "<group>"
NAMED = {"name": "mine", "tensor": {"dtype": "float32", "shape": [1], "data": "AACAPw=="}}

# path, body → status for: nobody, viewer, owner, other, admin
EXPECTED: dict[tuple[str, str], tuple[str, Any, tuple[int, int, int, int, int]]] = {
    ("POST", "/v1/jobs"): ("/v1/jobs", SPEC, (401, 403, 201, 201, 201)),
    ("GET", "/v1/jobs"): ("/v1/jobs", None, (401, 200, 200, 200, 200)),
    ("POST", "/v1/plan"): ("/v1/plan", SPEC, (401, 403, 200, 200, 200)),
    ("GET", "/v1/jobs/{id}"): (f"/v1/jobs/{JOB}", None, (401, 200, 200, 404, 200)),
    ("DELETE", "/v1/jobs/{id}"): (f"/v1/jobs/{JOB}", None, (401, 403, 200, 404, 200)),
    ("POST", "/v1/jobs/{id}/retry"): (f"/v1/jobs/{JOB}/retry", None, (401, 403, 201, 404, 201)),
    ("GET", "/v1/jobs/{id}/result"): (f"/v1/jobs/{JOB}/result", None, (401, 403, 202, 404, 202)),
    ("GET", "/v1/jobs/{id}/statements"): (f"/v1/jobs/{JOB}/statements", None, (401, 403, 200, 404, 200)),
    ("POST", "/v1/blobs"): ("/v1/blobs", b"x" * 64, (401, 403, 201, 201, 201)),
    ("PUT", "/v1/blobs/{digest}"): (f"/v1/blobs/{'0' * 64}", b"x" * 64, (401, 403, 422, 422, 422)),
    ("GET", "/v1/blobs/{digest}"): (f"/v1/blobs/{BLOB}", None, (401, 403, 200, 404, 200)),
    ("HEAD", "/v1/blobs/{digest}"): (f"/v1/blobs/{BLOB}", None, (401, 403, 200, 404, 200)),
    ("GET", "/v1/workers"): ("/v1/workers", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/workers/{id}"): ("/v1/workers/w-none", None, (401, 404, 404, 404, 404)),
    ("PATCH", "/v1/workers/{id}"): ("/v1/workers/w-none", {"action": "pause"}, (401, 403, 403, 403, 404)),
    ("DELETE", "/v1/workers/{id}"): ("/v1/workers/w-none", None, (401, 403, 403, 403, 404)),
    ("POST", "/v1/invites"): ("/v1/invites", {}, (401, 403, 403, 403, 201)),
    ("GET", "/v1/invites"): ("/v1/invites", None, (401, 403, 403, 403, 200)),
    ("DELETE", "/v1/invites/{id}"): (f"/v1/invites/{INVITE}", None, (401, 403, 403, 403, 204)),
    ("POST", "/v1/tokens"): ("/v1/tokens", {}, (401, 403, 403, 403, 201)),
    ("GET", "/v1/tokens"): ("/v1/tokens", None, (401, 403, 403, 403, 200)),
    ("DELETE", "/v1/tokens/{id}"): (f"/v1/tokens/{TOKEN}", None, (401, 403, 403, 403, 204)),
    ("GET", "/v1/events"): ("/v1/events", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/pool"): ("/v1/pool", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/me"): ("/v1/me", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/audit"): ("/v1/audit", None, (401, 200, 200, 200, 200)),
    ("PATCH", "/v1/jobs/{id}"): (f"/v1/jobs/{JOB}", {"priority": 5}, (401, 403, 200, 404, 200)),
    ("GET", "/v1/jobs/{id}/logs"): (f"/v1/jobs/{JOB}/logs", None, (401, 403, 200, 404, 200)),
    ("GET", "/v1/tensors"): ("/v1/tensors", None, (401, 403, 200, 200, 200)),
    ("POST", "/v1/tensors"): ("/v1/tensors", NAMED, (401, 403, 201, 201, 201)),
    ("GET", "/v1/tensors/{name:path}"): (f"/v1/tensors/{TENSOR}", None, (401, 403, 200, 404, 404)),
    ("DELETE", "/v1/tensors/{name:path}"): (f"/v1/tensors/{TENSOR}", None, (401, 403, 204, 404, 404)),
    ("GET", "/v1/kernels"): ("/v1/kernels", None, (401, 200, 200, 200, 200)),
    ("POST", "/v1/kernels"): ("/v1/kernels", {"source": LEAKY_RELU}, (401, 403, 403, 403, 201)),
    ("DELETE", "/v1/kernels/{id}"): ("/v1/kernels/none", None, (401, 403, 403, 403, 404)),
    ("GET", "/v1/groups"): ("/v1/groups", None, (401, 200, 200, 200, 200)),
    ("POST", "/v1/groups"): ("/v1/groups", {"name": "lab"}, (401, 403, 403, 403, 201)),
    ("DELETE", "/v1/groups/{id}"): (f"/v1/groups/{GROUP}", None, (401, 403, 403, 403, 204)),
    ("PATCH", "/v1/pool"): ("/v1/pool", {"description": "ours"}, (401, 403, 403, 403, 200)),
    ("POST", "/v1/pool/rotate"): ("/v1/pool/rotate", {"action": "cancel"}, (401, 403, 403, 403, 409)),
    ("GET", "/v1/network"): ("/v1/network", None, (401, 200, 200, 200, 200)),
    ("GET", "/v1/openapi.json"): ("/v1/openapi.json", None, (200, 200, 200, 200, 200)),
    ("GET", "/health"): ("/health", None, (200, 200, 200, 200, 200)),
    ("GET", "/metrics"): ("/metrics", None, (401, 200, 200, 200, 200)),
}

# The calls of MoreGPU 1.x.
EXPECTED_OLD: dict[tuple[str, str], tuple[str, Any, tuple[int, int, int, int, int]]] = {
    ("GET", "/"): ("/", None, (200, 200, 200, 200, 200)),
    ("GET", "/net"): ("/net", None, (401, 200, 200, 200, 200)),
    ("GET", "/whoami"): ("/whoami", None, (200, 200, 200, 200, 200)),
    ("GET", "/cert.pem"): ("/cert.pem", None, (200, 200, 200, 200, 200)),
    ("GET", "/help"): ("/help", None, (200, 200, 200, 200, 200)),
    ("GET", "/device"): ("/device", None, (401, 200, 200, 200, 200)),
    ("GET", "/gpu"): ("/gpu", None, (401, 200, 200, 200, 200)),
    ("GET", "/workers"): ("/workers", None, (401, 200, 200, 200, 200)),
    ("POST", "/workers/{id}/control"): ("/workers/w-none/control", {"action": "pause"}, (401, 403, 403, 403, 404)),
    ("POST", "/submit"): ("/submit?async=1", {"kernel": "relu", "size": 4}, (401, 403, 202, 202, 202)),
    ("GET", "/jobs"): ("/jobs", None, (401, 200, 200, 200, 200)),
    ("GET", "/jobs/{id}"): (f"/jobs/{JOB}", None, (401, 200, 200, 404, 200)),
    ("GET", "/logs"): ("/logs", None, (401, 200, 200, 200, 200)),
    ("POST", "/weights"): (
        "/weights",
        {"id": "w", "data": "AACAPw==", "rows": 1, "cols": 1},
        (401, 403, 200, 200, 200),
    ),
    ("GET", "/weights"): ("/weights", None, (401, 403, 200, 200, 200)),
    ("GET", "/workers/{id}/caps"): ("/workers/w-none/caps", None, (401, 403, 501, 501, 501)),
    **{
        (verb, f"/{tier}/{{rest:path}}"): (f"/{tier}/x", {} if verb == "POST" else None, (401, 403, 501, 501, 501))
        for tier in ("model", "train", "vision", "data")
        for verb in ("GET", "POST", "DELETE")
    },
}


@pytest.fixture(scope="module")
def tokens(pool: Pool) -> dict[str, str | None]:
    return {
        "nobody": None,
        "viewer": pool.token("viewer"),
        "owner": pool.token("submitter"),
        "other": pool.token("submitter"),
        "admin": pool.admin,
    }


def test_the_expectations_name_every_door() -> None:
    assert set(EXPECTED) == {(door.verb, door.path) for door in NATIVE}
    assert set(EXPECTED_OLD) == {(door.verb, door.path) for door in COMPAT}
    assert {(door.path, door.access) for door in SOCKETS} == {
        ("/v1/worker", "public"), ("/v1/link", "submitter"), ("/v1/events", "viewer"),
    }  # fmt: skip


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("door", list(EXPECTED), ids=" ".join)
def test_every_door_lets_in_whom_it_should(
    pool: Pool, tokens: dict[str, str | None], door: tuple[str, str], who: str
) -> None:
    path, body, statuses = EXPECTED[door]
    path = _filled(pool, tokens, path)
    if door == ("GET", "/v1/events"):
        status = _status_of_stream(pool, path, tokens[who])
    else:
        answer = pool.ask(door[0], path, tokens[who], body)
        # So many tries without a token from one address are also told to slow down.
        status = 401 if answer.status == 429 and who == "nobody" else answer.status
        if status >= 400 and door[0] != "HEAD":
            assert answer.code in {
                401: ("unauthorized", "too-many-requests"), 403: ("forbidden",), 404: ("not-found",),
                409: ("conflict",), 422: ("digest-mismatch",),
            }[status]  # fmt: skip
    assert status == statuses[WHO.index(who)]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("door", list(EXPECTED_OLD), ids=" ".join)
def test_every_old_door_lets_in_whom_it_should(
    pool: Pool, tokens: dict[str, str | None], door: tuple[str, str], who: str
) -> None:
    path, body, statuses = EXPECTED_OLD[door]
    answer = pool.ask(door[0], _filled(pool, tokens, path), tokens[who], body)
    if answer.status >= 400:
        assert list(answer.json()) == ["error"]
        assert answer.headers["content-type"] == "application/json"
    if who == "nobody" and answer.status == 401:
        assert answer.json()["error"].startswith("unauthorized")
    assert (401 if answer.status == 429 and who == "nobody" else answer.status) == statuses[WHO.index(who)]


@pytest.mark.parametrize("role", ["viewer", "submitter", "admin"])
def test_a_token_of_scope_compat_opens_the_old_doors_alone(pool: Pool, role: str) -> None:
    made = pool.ask("POST", "/v1/tokens", pool.admin, {"role": role, "scope": "compat"}).json()
    assert made["scope"] == "compat"
    token = parse_client_line(made["line"]).token
    assert pool.ask("GET", "/device", token).status == 200
    assert pool.ask("GET", "/metrics", token).status == 200
    assert pool.ask("GET", "/v1/me", token).json()["role"] == role
    for door in NATIVE:
        if door.access != "public" and door.path not in ("/v1/me", "/metrics"):
            path = door.path.replace("{id}", "j-none").replace("{digest}", "0" * 64).replace("{name:path}", "x")
            assert pool.ask(door.verb, path, token, b"x" * 64 if door.takes else None).status == 403, door.path


def test_another_ones_job_and_a_job_that_is_not_there_look_the_same(pool: Pool, tokens: dict[str, str | None]) -> None:
    other = tokens["other"]
    for tail in ("", "/result", "/statements", "/logs"):
        theirs = pool.ask("GET", f"/v1/jobs/{pool.submit(str(tokens['owner']))}{tail}", other).json()
        nothing = pool.ask("GET", f"/v1/jobs/j-00000000000000000000000000{tail}", other).json()
        assert theirs["type"] == nothing["type"]
        assert theirs["title"] == nothing["title"]


def test_lists_hold_only_what_one_may_see(pool: Pool, tokens: dict[str, str | None]) -> None:
    job = pool.submit(str(tokens["owner"]))

    def seen(who: str, query: str = "") -> list[str]:
        return [item["id"] for item in pool.ask("GET", f"/v1/jobs?limit=500{query}", tokens[who]).json()["items"]]

    owner_id = pool.ask("GET", "/v1/me", tokens["owner"]).json()["id"]
    assert job in seen("owner") and job in seen("admin") and job in seen("viewer")
    assert job not in seen("other")
    assert seen("other", f"&submitter={owner_id}") == []
    assert job in seen("admin", f"&submitter={owner_id}")


def test_a_viewer_sees_no_result_in_a_job(pool: Pool, tokens: dict[str, str | None]) -> None:
    job = pool.submit(str(tokens["owner"]))
    pool.finish(job, {"out": ("float32", (1,), b"\0\0\0\0")})
    assert pool.ask("GET", f"/v1/jobs/{job}", tokens["viewer"]).json()["result"] is None
    assert pool.ask("GET", f"/v1/jobs/{job}", tokens["owner"]).json()["result"]["outputs"]


def test_other_verbs_are_refused_and_the_right_ones_named(pool: Pool) -> None:
    answer = pool.ask("PUT", "/v1/jobs", pool.admin)
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method-not-allowed", "GET, POST")
    assert pool.ask("GET", "/v1/nothing", pool.admin).code == "not-found"
    assert pool.ask("GET", "/v1/jobs/", pool.admin).code == "not-found"


def _filled(pool: Pool, tokens: dict[str, str | None], path: str) -> str:
    """Put a thing of the owner's into the path, fresh for each try."""
    owner = str(tokens["owner"])
    if JOB in path:
        return path.replace(JOB, pool.submit(owner))
    if BLOB in path:
        return path.replace(BLOB, pool.ask("POST", "/v1/blobs", owner, b"y" * 80).json()["digest"])
    if INVITE in path:
        return path.replace(INVITE, pool.ask("POST", "/v1/invites", pool.admin, {}).json()["id"])
    if TENSOR in path:
        pool.ask("POST", "/v1/tensors", owner, NAMED | {"name": "the"})
        return path.replace(TENSOR, "the")
    if GROUP in path:
        pool.ask("POST", "/v1/groups", pool.admin, {"name": "gone"})
        return path.replace(GROUP, "gone")
    if TOKEN in path:
        return path.replace(TOKEN, pool.ask("POST", "/v1/tokens", pool.admin, {}).json()["id"])
    return path


def _status_of_stream(pool: Pool, path: str, token: str | None) -> int:
    connection = pool.connection()
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        status = connection.getresponse().status
        return 401 if status == 429 and token is None else status
    finally:
        connection.close()
