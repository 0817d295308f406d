"""Named tensors, groups, settings, the session key's rotation, a job's log and changes: what their doors promise."""

from __future__ import annotations

import errno
import http.client
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moregpu.blobs.format import seal
from moregpu.coordinator.housekeeping import Housekeeping
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.server import ServeConfig
from moregpu.coordinator.traffic import Traffic, worth_moving
from moregpu.wire.api import Event, WorkerView
from moregpu.wire.identity import PoolKeys
from moregpu.wire.invite import parse_invite

from .conftest import Pool, Running

ONE = b"\0\0\x80\x3f"
TENSOR = {"dtype": "float32", "shape": [1], "data": "AACAPw=="}


@pytest.fixture(scope="module")
def token(pool: Pool) -> str:
    return pool.token("submitter")


def uploaded(pool: Pool, token: str, size: int = 100_000) -> dict[str, Any]:
    """A sealed blob of this token's, as a tensor."""
    blob, sealed = seal(bytes(size))
    assert pool.ask("PUT", f"/v1/blobs/{blob.digest}", token, bytes(sealed)).status == 201
    data = msgspec.to_builtins(blob)
    return {"dtype": "uint8", "shape": [size], "data": {**data, "key": json.loads(msgspec.json.encode(blob.key))}}


# ---- named tensors ---------------------------------------------------------------------------------------------------


def test_a_named_tensor_is_its_owners_and_is_replaced_by_name(pool: Pool, token: str) -> None:
    assert pool.ask("POST", "/v1/tensors", token, {"name": "w/1", "tensor": TENSOR}).status == 201
    second = {**TENSOR, "shape": [1, 1]}
    made = pool.ask("POST", "/v1/tensors", token, {"name": "w/1", "tensor": second}).json()
    assert (made["shape"], made["size_bytes"], made["tensor"]["data"]) == ([1, 1], 4, "AACAPw==")
    assert [row["name"] for row in pool.ask("GET", "/v1/tensors", token).json()] == ["w/1"]
    assert pool.ask("GET", "/v1/tensors/w/1", token).json() == made
    assert pool.ask("GET", "/v1/tensors", pool.token("submitter")).json() == []
    assert pool.ask("DELETE", "/v1/tensors/w/1", token).status == 204
    assert pool.ask("GET", "/v1/tensors/w/1", token).code == "not-found"


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2]}, {"dtype": "object"}, {"shape": [-1]}, {"region": [[0, 1]]}, {"data": "AAA="},
        {"data": {"digest": "0" * 64, "key": "A" * 43 + "=", "size_bytes": 4}},
    ],
)  # fmt: skip
def test_a_tensor_whose_bytes_are_not_all_here_is_refused(pool: Pool, token: str, change: dict[str, Any]) -> None:
    answer = pool.ask("POST", "/v1/tensors", token, {"name": "bad", "tensor": TENSOR | change})
    assert answer.code == "invalid-request"


def test_what_a_body_does_not_know_is_refused(pool: Pool, token: str) -> None:
    body = {"name": "more", "tensor": TENSOR, "unknown": 1}
    assert pool.ask("POST", "/v1/tensors", token, body).code == "invalid-request"


def test_lists_of_names_count_numbers_as_numbers(pool: Pool, token: str) -> None:
    names = ["layers/2", "layers/10", "layers/1"]
    for name in names:
        pool.ask("POST", "/v1/tensors", token, {"name": name, "tensor": TENSOR})
        pool.ask("POST", "/v1/groups", pool.admin, {"name": name.replace("/", "-")})
    ordered = ["layers/1", "layers/2", "layers/10"]
    assert [row["name"] for row in pool.ask("GET", "/v1/tensors", token).json() if row["name"] in names] == ordered
    groups = [row["name"] for row in pool.ask("GET", "/v1/groups", token).json()]
    assert [name for name in groups if name.startswith("layers-")] == [name.replace("/", "-") for name in ordered]
    for name in names:
        pool.ask("DELETE", f"/v1/tensors/{name}", token)
        pool.ask("DELETE", f"/v1/groups/{name.replace('/', '-')}", pool.admin)


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 300, "é"])
def test_names_are_plain(pool: Pool, token: str, name: str) -> None:
    assert pool.ask("POST", "/v1/tensors", token, {"name": name, "tensor": TENSOR}).code == "invalid-request"


def test_anothers_blob_cannot_be_named(pool: Pool, token: str) -> None:
    theirs = uploaded(pool, pool.token("submitter"))
    assert pool.ask("POST", "/v1/tensors", token, {"name": "theirs", "tensor": theirs}).code == "invalid-request"


def test_a_name_keeps_its_blob_here_and_letting_go_of_it_frees_the_blob(config: ServeConfig) -> None:
    with Running(config) as running:
        token = running.token("submitter")
        kept, lost = uploaded(running, token), uploaded(running, token)
        running.ask("POST", "/v1/tensors", token, {"name": "kept", "tensor": kept})
        keeping = Housekeeping(running.services)
        wall = running.services.clock.wall()
        running.run(keeping.drop_blobs(wall + 10))
        blobs = running.services.blobs
        assert blobs.size(kept["data"]["digest"]) and not blobs.size(lost["data"]["digest"])
        assert running.ask("GET", f"/v1/blobs/{kept['data']['digest']}", token).status == 200
        running.ask("DELETE", "/v1/tensors/kept", token)
        running.run(keeping.drop_blobs(wall + 10))
        assert not blobs.size(kept["data"]["digest"])


def test_names_groups_and_settings_outlive_a_restart_and_keys_are_sealed(config: ServeConfig) -> None:
    with Running(config) as first:
        token = first.token("submitter")
        tensor = uploaded(first, token)
        first.ask("POST", "/v1/tensors", token, {"name": "mine", "tensor": tensor})
        first.ask("POST", "/v1/groups", first.admin, {"name": "lab", "description": "the lab's"})
        first.ask("PATCH", "/v1/pool", first.admin, {"name": "renamed", "description": "ours", "keep_bytes": 1000})
    database = b"".join(path.read_bytes() for path in Path(config.state).glob("pool.sqlite*"))
    key = tensor["data"]["key"]
    assert key.encode() not in database and msgspec.json.decode(f'"{key}"', type=bytes) not in database
    with Running(config, first) as second:
        assert second.ask("GET", "/v1/tensors/mine", token).json()["tensor"]["data"]["key"] == key
        assert second.ask("GET", "/v1/groups", second.admin).json()[0]["description"] == "the lab's"
        view = second.ask("GET", "/v1/pool", second.admin).json()
        assert (view["name"], view["description"], view["keep_bytes"]) == ("renamed", "ours", 1000)


# ---- groups ----------------------------------------------------------------------------------------------------------


def test_a_group_gathers_workers_and_lets_them_go(pool: Pool) -> None:
    worker = pool.worker.worker_id
    made = pool.ask("POST", "/v1/groups", pool.admin, {"name": "attic", "workers": ["a worker"]}).json()
    assert (made["name"], made["workers"], made["online"]) == ("attic", [worker], 0)
    assert pool.ask("GET", f"/v1/workers/{worker}", pool.admin).json()["groups"] == ["attic"]
    assert pool.ask("POST", "/v1/groups", pool.admin, {"name": "x", "workers": ["nobody"]}).code == "not-found"
    assert "x" not in [view["name"] for view in pool.ask("GET", "/v1/groups", pool.admin).json()]
    pool.ask("PATCH", f"/v1/workers/{worker}", pool.admin, {"groups": ["attic", "cellar"]})
    assert [view["name"] for view in pool.ask("GET", "/v1/groups", pool.admin).json()] == ["attic", "cellar"]
    assert pool.ask("DELETE", "/v1/groups/attic", pool.admin).status == 204
    assert pool.ask("GET", f"/v1/workers/{worker}", pool.admin).json()["groups"] == ["cellar"]
    assert pool.ask("DELETE", "/v1/groups/attic", pool.admin).code == "not-found"
    for name in ("", "a b", "-x", "x" * 65):
        assert pool.ask("POST", "/v1/groups", pool.admin, {"name": name}).code == "invalid-request"


# ---- the pool --------------------------------------------------------------------------------------------------------


def test_a_new_name_is_in_what_is_made_from_now_on(config: ServeConfig) -> None:
    with Running(config) as running:
        running.ask("PATCH", "/v1/pool", running.admin, {"name": "other"})
        line = running.ask("POST", "/v1/invites", running.admin, {}).json()["line"]
        assert parse_invite(line).pool_name == "other"
        assert running.services.desk.pool_name == "other"
        for wrong in ({"name": ""}, {"max_blob_bytes": 1}, {"keep_bytes": -1}, {"unknown": 1}):
            assert running.ask("PATCH", "/v1/pool", running.admin, wrong).code == "invalid-request"


def test_the_session_key_rotates_in_two_steps_that_outlive_a_restart(config: ServeConfig) -> None:
    def rotate(pool: Pool, action: str) -> Any:
        return pool.ask("POST", "/v1/pool/rotate", pool.admin, {"action": action})

    with Running(config) as first:
        old = first.services.keys.cs_pub.hex()
        assert rotate(first, "finish").code == "conflict"
        begun = first.ask("POST", "/v1/pool/rotate", first.admin).json()  # an empty body begins
        assert begun["rotating"] and begun["session_key"] == old and begun["next_session_key"] not in ("", old)
        assert rotate(first, "begin").code == "conflict"
        assert first.ask("GET", "/v1/pool", first.admin).json()["rotating"] is True
        line = first.ask("POST", "/v1/invites", first.admin, {}).json()["line"]
        assert parse_invite(line).cs_pub.hex() == begun["next_session_key"]
        assert len(first.services.keys.statics) == 2  # workers may come with either
    with Running(config, first) as second:
        assert second.services.keys.next_cs_pub.hex() == begun["next_session_key"]
        assert second.services.keys.pool_id == first.services.keys.pool_id
        ended = rotate(second, "finish").json()
        assert not ended["rotating"] and ended["session_key"] == begun["next_session_key"]
    with Running(config, first) as third:
        assert third.services.keys.cs_pub.hex() == begun["next_session_key"]
        rotate(third, "begin")
        assert rotate(third, "cancel").json()["session_key"] == begun["next_session_key"]


def test_hints_are_what_an_admin_can_type(pool: Pool) -> None:
    """They were calls of the HTTP API, to whoever had typed a command."""
    finish = pool.ask("POST", "/v1/pool/rotate", pool.admin, {"action": "finish"}).json()
    assert "moregpu pool rotate begin" in finish["hint"]
    assert "moregpu invite --list" in pool.ask("DELETE", "/v1/invites/i-none", pool.admin).json()["hint"]


def test_a_change_of_keys_that_finds_the_disk_full_says_so(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pool.services.rotation, "_save", full)
    answer = pool.ask("POST", "/v1/pool/rotate", pool.admin, {"action": "begin"})
    assert (answer.status, answer.code) == (507, "out-of-space")
    assert "free some space" in answer.json()["hint"]
    assert not pool.services.rotation.rotating


def test_keys_that_cannot_be_kept_do_not_count() -> None:
    from moregpu.coordinator.rotation import Rotation
    from moregpu.wire.api import RotateRequest

    def full(keys: PoolKeys) -> None:
        raise OSError(28, "No space left on device")

    keys = PoolKeys.generate()
    with pytest.raises(OSError):
        Rotation(keys, full).step(RotateRequest())
    assert keys.next_cs is None


# ---- jobs ------------------------------------------------------------------------------------------------------------


def test_a_job_that_waits_moves_up_by_its_priority(config: ServeConfig) -> None:
    with Running(config) as running:
        token = running.token("submitter")
        jobs = [running.submit(token) for _ in range(3)]
        changed = running.ask("PATCH", f"/v1/jobs/{jobs[2]}", token, {"priority": 100, "name": "urgent", "keep_s": 5})
        assert changed.json()["name"] == "urgent"

        async def order() -> list[str]:
            index = running.services.desk.store._book.index  # pyright: ignore
            return [candidate.job.id for candidate in index.of(submitter)]

        submitter = running.ask("GET", "/v1/me", token).json()["id"]
        assert running.run(order()) == [jobs[2], jobs[0], jobs[1]]
        assert running.ask("PATCH", f"/v1/jobs/{jobs[0]}", token, {"priority": 101}).code == "invalid-request"
        assert running.ask("PATCH", f"/v1/jobs/{jobs[0]}", token, {"check": "none"}).code == "invalid-request"
    with Running(config, running) as again:
        row = again.run(again.services.desk.store.job(jobs[2]))
        assert row is not None and (row.spec.priority, row.spec.keep_s) == (100, 5)


def test_a_log_tells_what_happened_and_is_followed_to_the_end(pool: Pool, token: str) -> None:
    job = pool.submit(token)
    connection = pool.connection()
    connection.request("GET", f"/v1/jobs/{job}/logs?follow=1", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    assert answer.headers["content-type"] == "text/event-stream"
    first = _line(answer)
    assert first["message"].startswith("queued")
    pool.finish(job, {"out": ("float32", (1,), ONE)})
    followed = [first["message"]]
    while followed[-1] != "done":
        followed.append(_line(answer)["message"])
    assert answer.read().strip() == b""  # the stream ends with the job
    connection.close()
    lines = pool.ask("GET", f"/v1/jobs/{job}/logs", token).json()
    assert [line["message"] for line in lines] == followed
    assert any("a worker" in line["worker"] for line in lines)
    assert all(line["level"] in ("info", "warning", "error") for line in lines)
    cancelled = pool.submit(token)
    pool.ask("DELETE", f"/v1/jobs/{cancelled}", token)
    assert pool.ask("GET", f"/v1/jobs/{cancelled}/logs", token).json()[-1]["message"] == "cancelled"


def _line(answer: http.client.HTTPResponse) -> Any:
    while True:
        text = answer.readline()
        assert text
        if text.startswith(b"data: "):
            return json.loads(text[6:])


# ---- the network -----------------------------------------------------------------------------------------------------


def test_what_a_link_allows_follows_from_what_was_measured() -> None:
    traffic = Traffic()
    worker = WorkerView(
        id="w-1", name="one", owner="o", groups=[], state="online", round_trip_s=0.01, speeds={"matmul.float32": 1e11}
    )
    assert traffic.view(worker).product_size is None
    traffic.moved("w-1", 1000, 1.0, to_worker=True)  # too short to say anything
    assert traffic.view(worker).to_worker_bytes_s is None
    traffic.moved("w-1", 10_000_000, 1.0, to_worker=True)
    traffic.moved("w-1", 5_000_000, 1.0, to_worker=False)
    view = traffic.view(worker)
    assert (view.to_worker_bytes_s, view.from_worker_bytes_s, view.tasks_per_s) == (1e7, 5e6, 100.0)
    # 2 n³ operations at 1e11 take as long as 8 n² bytes at 1e7 and 4 n² at 5e6.
    assert view.product_size == worth_moving(worker.speeds, 1e7, 5e6) == 80_000
    assert "100 tiny tasks" in view.allows and "80,000" in view.allows
    assert worth_moving({}, 1e7, 1e7) is None


def test_the_network_lists_connected_workers(pool: Pool) -> None:
    assert pool.ask("GET", "/v1/network", pool.admin).json() == {"links": []}


# ---- events ----------------------------------------------------------------------------------------------------------


def test_what_a_job_prints_is_its_owners(pool: Pool, token: str) -> None:
    owner = pool.ask("GET", "/v1/me", token).json()["id"]
    printed = Event(type="log", id=pool.submit(token), data={"submitter": owner, "lines": ["secret"]})
    sees = {
        name: pool.run(pool.services.desk.events.may_see(Principal(id=id, role=role), printed))
        for name, id, role in (
            ("owner", owner, "submitter"), ("other", "x", "submitter"), ("viewer", "y", "viewer"),
            ("admin", "z", "admin"),
        )
    }  # fmt: skip
    assert sees == {"owner": True, "other": False, "viewer": False, "admin": True}
