"""The commands of admins and submitters against a real pool."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu import connect
from moregpu.cli.files import load
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.wire.api import TokenRequest


def told(road: LoopbackPool, *arguments: str, given: str = "", code: int = 0) -> Any:
    shown = road.run(*arguments, "--json", given=given)
    assert shown.returncode == code, shown.stderr + shown.stdout
    return json.loads(shown.stdout)


def test_an_admin_manages_a_worker(road: LoopbackPool, pool: Pool) -> None:
    assert told(road, "worker", "set", "anna", "--ceiling", "0.6", "--group", "night")["limits"]["ceiling"] == 0.6
    assert told(road, "worker", "pause", "anna")["state"] == "paused"
    assert told(road, "worker", "resume", "anna")["state"] == "online"
    assert told(road, "worker", "set", "anna", "--ceiling", "1.0", "--no-group")["groups"] == []
    assert told(road, "worker", "pause", "nobody", code=4)["error"]["type"] == "not-found"
    assert told(road, "worker", "set", "anna", code=2)["error"]["type"] == "invalid-request"


def test_an_admin_manages_several_workers_at_once_and_a_mistyped_name_changes_none(
    road: LoopbackPool, pool: Pool
) -> None:
    names = ("anna", "ben", "anna")
    assert [view["state"] for view in told(road, "worker", "pause", *names)] == ["paused", "paused"]
    assert told(road, "worker", "resume", "anna", "zoe", code=4)["error"]["type"] == "not-found"
    assert {worker["state"] for worker in told(road, "workers")} == {"paused"}
    assert [view["state"] for view in told(road, "worker", "resume", *names)] == ["online", "online"]
    assert told(road, "worker", "set", "anna", "ben", "--name", "x", code=2)["error"]["type"] == "invalid-request"


def test_invites_that_were_used_are_listed_as_used(road: LoopbackPool, pool: Pool) -> None:
    left = {one["id"]: one["uses_left"] for one in told(road, "invite", "--list")}
    shown = dict(row.split()[0:3:2] for row in road.run("invite", "--list").stdout.splitlines()[1:])
    assert shown == {id: str(uses) if uses else "used" for id, uses in left.items()}
    assert "used" in shown.values()


def test_the_pool_is_described_and_renamed(road: LoopbackPool, pool: Pool) -> None:
    before = told(road, "pool", "info")["name"]
    assert told(road, "pool", "rename", "attic")["name"] == "attic"
    assert told(road, "pool", "rename", before)["name"] == before
    assert {link["name"] for link in told(road, "network")["links"]} >= {"anna", "ben"}
    assert told(road, "top", "--once")["pool"]["workers_online"] == 2
    for arguments in (("pool", "info"), ("network",), ("top", "--once")):
        assert road.run(*arguments).returncode == 0


def test_a_token_is_made_listed_and_revoked(road: LoopbackPool, pool: Pool) -> None:
    line = told(road, "token", "create", "--label", "short")["line"]
    (id,) = [token["id"] for token in told(road, "token", "list") if token["label"] == "short"]
    assert line not in road.run("token", "list").stdout
    assert told(road, "token", "revoke", id) == {"revoked": id}
    assert id not in {token["id"] for token in told(road, "token", "list")}


def test_a_token_is_for_the_kinds_that_its_scopes_name(road: LoopbackPool, pool: Pool) -> None:
    made = told(road, "token", "create", "--label", "narrow", "--scope", "function")
    assert (made["scope"], made["kinds"]) == ("all", ["function"])
    assert told(road, "login", "narrow", given=made["line"])["role"] == "submitter"
    refused = told(road, "submit", "relu", "--size", "10", "--profile", "narrow", code=3)
    assert "jobs of kind function" in refused["error"]["detail"]
    assert told(road, "token", "create", "--scope", "compat")["scope"] == "compat"
    local = told(road, "token", "create", "--local", "--state", str(road.state), "--scope", "kernel")
    assert local["kinds"] == ["kernel"]
    for wrong in (["kernels"], ["compat", "--scope", "kernel"]):
        assert told(road, "token", "create", "--scope", *wrong, code=2)["error"]["type"] == "invalid-request"


def test_workers_are_grouped_by_name(road: LoopbackPool, pool: Pool) -> None:
    assert told(road, "group", "add", "lab", "anna", "--about", "upstairs")["online"] == 1
    both = told(road, "group", "add", "lab", "ben")
    assert (len(both["workers"]), both["description"]) == (2, "upstairs")
    assert "anna ben" in road.run("group", "list").stdout
    assert told(road, "submit", "relu", "--size", "10", "--group", "lab")["state"] == "done"
    told(road, "group", "remove", "lab", "ben")
    assert [len(one["workers"]) for one in told(road, "group", "list") if one["name"] == "lab"] == [1]
    told(road, "group", "remove", "lab")
    assert "lab" not in {one["name"] for one in told(road, "group", "list")}
    assert told(road, "group", "remove", "lab", code=4)["error"]["type"] == "not-found"


def test_no_command_shows_what_opens_an_output(road: LoopbackPool, pool: Pool) -> None:
    """A terminal, a log or a pipe is no place for keys, nor for what a job computed."""
    large = pool.kernel("relu", np.ones((200, 200)))
    small = pool.kernel("relu", np.full(3, 7.0))
    manifests = [large.wait().result, small.wait().result]
    sealed, inline = [json.loads(msgspec.json.encode(one))["outputs"]["out"]["data"] for one in manifests]
    secrets = (sealed["key"], sealed["digest"], inline)
    for arguments in (("jobs",), ("job", large.id), ("job", small.id), ("cancel", large.id), ("retry", large.id)):
        shown = road.run(*arguments, "--json")
        assert shown.returncode == 0 and not [one for one in secrets if one in shown.stdout], arguments


def test_an_ended_jobs_outputs_are_forgotten(road: LoopbackPool, pool: Pool) -> None:
    id = pool.kernel("relu", np.ones(100_000, np.float32)).wait(60).id
    purged = told(road, "job", id, "--purge")
    assert purged["purged"]
    assert purged["signers"]  # the record and its signatures stay
    assert "gone" in road.run("jobs", "--limit", "1").stdout
    waiting = pool.benchmark("matmul", 64, group="nobody")
    assert told(road, "job", waiting.id, "--purge", code=1)["error"]["type"] == "conflict"
    waiting.cancel()


def test_a_place_that_cannot_be_written_is_said_before_the_job_runs(
    road: LoopbackPool, pool: Pool, tmp_path: Path
) -> None:
    np.save(tmp_path / "a.npy", np.ones(4, np.float32))
    before = pool.jobs(limit=1)
    for place in (tmp_path / "nowhere" / "c.npy", tmp_path):
        refused = told(road, "submit", "relu", str(tmp_path / "a.npy"), "-o", str(place), code=2)
        assert "folder" in refused["error"]["detail"]
    assert pool.jobs(limit=1) == before


def test_login_keeps_a_pool_under_a_name(road: LoopbackPool, pool: Pool) -> None:
    line = pool.create_token(TokenRequest(label="me")).line
    assert told(road, "login", "attic", given=line)["role"] == "submitter"
    assert told(road, "jobs", "--profile", "attic") == []
    assert told(road, "invite", "--profile", "attic", code=3)["error"]["type"] == "forbidden"
    assert told(road, "login", "attic", "--forget")["forgotten"]
    assert told(road, "jobs", "--profile", "attic", code=2)["error"]["type"] == "not-configured"


def test_a_job_file_runs_with_files_in_and_out(road: LoopbackPool, tmp_path: Path) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", a.T)
    (tmp_path / "job.toml").write_text(
        'operation = "matmul"\ninputs = ["a.npy", "b.npy"]\noutput = "c.safetensors"\nname = "from a file"\n'
    )
    made = told(road, "submit", str(tmp_path / "job.toml"), "--priority", "4")
    assert made["name"] == "from a file"
    assert np.array_equal(load(str(tmp_path / "c.safetensors")), a @ a.T)
    again = road.run("submit", "relu", str(tmp_path / "c.safetensors"), "-o", str(tmp_path / "d.npy"), "--watch")
    assert again.returncode == 0, again.stderr
    assert "done" in again.stderr
    assert np.array_equal(np.load(tmp_path / "d.npy"), a @ a.T)


def test_a_job_that_was_cancelled_is_submitted_again(road: LoopbackPool, pool: Pool) -> None:
    id = pool.benchmark("matmul", 64, group="nobody").id
    assert told(road, "cancel", id)["state"] == "cancelled"
    again = told(road, "retry", id)
    assert again["id"] != id
    told(road, "cancel", again["id"])


def test_an_admin_reads_whose_a_job_is_by_the_label_of_its_token(road: LoopbackPool, pool: Pool) -> None:
    own = told(road, "submit", "relu", "--size", "8")["id"]
    with connect(token=pool.create_token(TokenRequest(label="carol")).line) as carols:
        hers = carols.benchmark("relu", 8).id
    assert told(road, "job", hers)["submitter_name"] == "carol"
    assert ["by", "carol"] in [line.split() for line in road.run("job", hers).stdout.splitlines()]
    head, *rows = road.run("jobs", "--limit", "2").stdout.splitlines()
    assert "BY" in head and [("carol" in row, row.split()[0]) for row in rows] == [(True, hers), (False, own)]


def test_doctor_finds_a_pool_that_is_well(road: LoopbackPool) -> None:
    found = {one["what"]: one for one in told(road, "doctor")}
    assert found["pool"]["ok"]
    assert re.search(r"\b(anna, ben|ben, anna) online", found["workers"]["found"])
    assert "worker-anna" in found["worker here"]["found"]


@pytest.mark.parametrize(
    ("typed", "next_step"),
    [
        (("job", "j-9"), "`moregpu jobs`"),
        (("cancel", "j-9"), "`moregpu jobs`"),
        (("worker", "pause", "zoe"), "`moregpu workers`"),
        (("group", "remove", "nowhere"), "`moregpu group list`"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_where_names_stand(
    road: LoopbackPool, typed: tuple[str, ...], next_step: str
) -> None:
    shown = road.run(*typed)
    assert shown.returncode != 0
    assert next_step in shown.stderr


def test_bench_measures_what_is_checked(road: LoopbackPool) -> None:
    found = told(road, "bench", "--size", "128", "--runs", "1")
    assert found["checked"]
    assert found["workers"] == 2


def test_a_machine_leaves_its_pool(lone: LoopbackPool) -> None:
    lone.start_worker("zoe")
    lone.wait_for_workers()
    state = str(lone.home / "state" / "worker-zoe")
    assert told(lone, "leave", "--yes", "--state", state, code=9)["error"]["type"] == "state-refused"  # it runs
    lone.kill_worker("zoe")
    assert "left" in told(lone, "leave", "--yes", "--state", state)
    assert told(lone, "worker", "remove", "zoe", "--yes")["removed"].startswith("w-")
    assert told(lone, "worker", "pause", "zoe", code=1)["error"]["type"] == "conflict"


def test_the_class_of_1x_has_its_methods(road: LoopbackPool, pool: Pool) -> None:
    import moregpu
    from moregpu.errors import InvalidRequest, Unauthorized, Unavailable

    base = f"https://127.0.0.1:{road.port}"
    old = moregpu.MoreGPU(base, pool.create_token(TokenRequest(label="old")).line)
    assert old.health()["ok"]
    assert old.matmul([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], M=2, N=2, K=3) == [58, 64, 139, 154]
    assert old.linear([1, 2], [1, 0, 0, 1], [10, 20], M=1, K=2, N=2) == [11, 22]
    assert old.mlp([1, -2], [([1, 0, 0, 1], None, 2)], M=1, K=2) == [1, 0]
    assert old.attention([1, 0, 0, 1], [1, 0, 0, 1], [1, 2, 3, 4], seq=2, d=2) == pytest.approx(
        [1.66, 2.66, 2.34, 3.34], abs=0.01
    )
    assert (old.dot([1, 2], [3, 4]), old.sum([1, 2, 3]), old.mean([1, 2, 3]), old.norm([3, 4])) == (11, 6, 2, 5)
    old.upload_weight("w", [1, 2, 3, 4], 2, 2, dtype="f16")
    assert old.matmul_resident([1, 1], "w", M=1) == [4, 6]
    assert [one["id"] for one in old.weights()] == ["w"]
    assert [record["status"] for record in old.submit_batch([("relu", 100), ("matmul", 32)])] == ["done", "done"]
    assert old.job(old.jobs()[0]["id"])["status"] == "done"
    with pytest.raises(ValueError, match="unknown kernel"):
        old.submit("matmull", 4)
    with pytest.raises(InvalidRequest):
        old.run("matmul", [1, 2, 3], [1], M=2, N=2, K=2)
    with pytest.raises(Unavailable, match="model tier"):
        old.train_load("gpt2")
    with pytest.raises(Unauthorized):
        moregpu.MoreGPU(base, pool.create_token(TokenRequest(label="x", expires_s=0.001)).line).gpu()
