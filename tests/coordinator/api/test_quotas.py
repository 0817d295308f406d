"""How much one submitter may hold, set by the admin while the pool runs, and the weight of a token."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest
from blake3 import blake3

from moregpu.cli.sizes import read_size
from moregpu.coordinator import intake
from moregpu.coordinator.server import ServeConfig
from moregpu.errors import InvalidRequest
from moregpu.jobs import Blob
from moregpu.wire.api import TokenView
from moregpu.wire.invite import parse_client_line

from .conftest import Pool, Running


@pytest.fixture(autouse=True)
def generous_after(pool: Pool) -> Iterator[None]:
    yield
    change = {"submitter_jobs": 50_000, "submitter_bytes": 0}
    assert pool.ask("PATCH", "/v1/pool", pool.admin, change).status == 200


def test_jobs_beyond_the_quota_are_refused_until_some_have_ended(pool: Pool) -> None:
    token, other = pool.token("submitter"), pool.token("submitter")
    shown = pool.ask("PATCH", "/v1/pool", pool.admin, {"submitter_jobs": 2}).json()
    assert shown["submitter_jobs"] == 2
    first = pool.submit(token)
    pool.submit(token)
    refused = pool.ask("POST", "/v1/jobs", token, {"kind": "kernel", "operation": "relu", "size": 4})
    assert (refused.status, refused.code) == (403, "over-quota")
    assert "2 of your jobs have not ended" in refused.json()["detail"] and refused.json()["hint"]
    pool.submit(other)
    pool.submit(pool.admin)
    assert pool.ask("DELETE", f"/v1/jobs/{first}", token).status == 200
    pool.submit(token)


def test_uploads_beyond_the_quota_are_refused_before_a_byte_is_kept(pool: Pool) -> None:
    token, other = pool.token("submitter"), pool.token("submitter")
    pool.ask("PATCH", "/v1/pool", pool.admin, {"submitter_bytes": 10_000})
    assert pool.ask("POST", "/v1/blobs", token, os.urandom(6000)).status == 201
    used = pool.services.blobs.used_bytes()
    refused = pool.ask("POST", "/v1/blobs", token, os.urandom(6000))
    assert (refused.status, refused.code) == (403, "over-quota")
    assert pool.services.blobs.used_bytes() == used
    assert pool.ask("POST", "/v1/blobs", token, os.urandom(3000)).status == 201
    assert pool.ask("POST", "/v1/blobs", other, os.urandom(6000)).status == 201


def test_uploads_that_never_end_count_against_the_quota_and_one_can_still_be_ended(pool: Pool) -> None:
    token, other = pool.token("submitter"), pool.token("submitter")
    pool.ask("PATCH", "/v1/pool", pool.admin, {"submitter_bytes": 9000})
    data = [os.urandom(4000) for _ in range(3)]

    def begin(token: str, each: bytes) -> int:
        headers = {"Upload-Length": str(len(each))}
        return pool.ask("PUT", f"/v1/blobs/{blake3(each).hexdigest()}", token, each[:3000], headers).status

    assert [begin(token, each) for each in data] == [200, 200, 403]
    assert begin(other, data[2]) == 200
    path = f"/v1/blobs/{blake3(data[0]).hexdigest()}?offset=3000"
    assert pool.ask("PUT", path, token, data[0][3000:], {"Upload-Length": "4000"}).status == 201
    assert pool.ask("POST", "/v1/blobs", token, os.urandom(2000)).status == 201
    assert pool.ask("POST", "/v1/blobs", token, os.urandom(1000)).status == 403


def test_a_token_has_a_weight_and_it_is_shown(pool: Pool) -> None:
    made = pool.ask("POST", "/v1/tokens", pool.admin, {"role": "submitter", "weight": 3.0})
    assert made.status == 201 and made.json()["weight"] == 3.0
    id = made.json()["id"]
    assert parse_client_line(made.json()["line"]).token
    shown: list[TokenView] = pool.ask("GET", "/v1/tokens", pool.admin).json()
    assert [each["weight"] for each in shown if each["id"] == id] == [3.0]  # type: ignore[index]
    assert pool.ask("POST", "/v1/tokens", pool.admin, {"role": "submitter", "weight": 0}).status == 400


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1500", 1500), ("200MB", 200_000_000), ("1.5 TiB", 3 << 39), ("7k", 7000), ("12 B", 12)],
)
def test_sizes_are_written_as_people_write_them(text: str, size: int) -> None:
    assert read_size("--keep-bytes", text) == size


@pytest.mark.parametrize("text", ["", "-1", "much", "1e9", "5 XB", "9" * 20])
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--keep-bytes"):
        read_size("--keep-bytes", text)


def test_inputs_of_a_crowd_of_jobs_wait_on_the_disk_and_not_in_memory(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "CROWD_JOBS", 2)
    token = pool.token("submitter")
    data = base64.b64encode(os.urandom(8_192)).decode()
    large = {"a": {"dtype": "float32", "shape": [2_048], "data": data}}
    small = {"a": {"dtype": "float32", "shape": [1], "data": "AACAPw=="}}

    def kept(inputs: dict[str, Any]) -> object:
        spec = {"kind": "kernel", "operation": "relu", "inputs": inputs}
        row = pool.run(pool.services.desk.store.job(pool.ask("POST", "/v1/jobs", token, spec).json()["id"]))
        assert row is not None
        return row.spec.inputs["a"].data

    assert [type(kept(large)) for _ in range(4)] == [bytes, bytes, Blob, Blob]
    assert type(kept(small)) is bytes
    assert pool.submit(pool.token("submitter"))


def test_who_holds_most_of_what_is_kept_leaves_the_last_of_the_disk_to_the_others(
    config: ServeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Running(config) as pool:
        hog, other = pool.token("submitter"), pool.token("submitter")
        assert pool.ask("POST", "/v1/blobs", hog, os.urandom(900_000)).status == 201
        used = pool.services.blobs.used_bytes()
        monkeypatch.setattr(pool.services.blobs, "free_bytes", lambda: used // 20)
        job = {"kind": "kernel", "operation": "relu", "size": 4}
        for refused in (pool.ask("POST", "/v1/blobs", hog, os.urandom(20_000)), pool.ask("POST", "/v1/jobs", hog, job)):
            assert (refused.status, refused.code) == (403, "over-quota")
            assert "forget results" in refused.json()["hint"]
        assert pool.ask("POST", "/v1/jobs", other, job).status == 201
        assert pool.ask("POST", "/v1/blobs", other, os.urandom(20_000)).status == 201
        monkeypatch.setattr(pool.services.blobs, "free_bytes", lambda: used)
        assert pool.ask("POST", "/v1/blobs", hog, os.urandom(20_000)).status == 201
