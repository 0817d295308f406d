"""Results as files, and statements."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.api.problems import NotAcceptable
from moregpu.coordinator.api.render import form_for, npy_header
from moregpu.wire.api import Signed
from moregpu.wire.identity import verify
from moregpu.wire.statement import batch_message

from .conftest import Pool

NPY, SAFETENSORS = "application/x-npy", "application/x-safetensors"


@pytest.fixture(scope="module")
def token(pool: Pool) -> str:
    return pool.token("submitter")


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype("<f4")


def finished(pool: Pool, token: str, **arrays: np.ndarray) -> str:
    job = pool.submit(token)
    pool.finish(job, {name: ("float32", a.shape, a.tobytes()) for name, a in arrays.items()})
    return job


def read_safetensors(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """The format as its specification says it, offsets checked."""
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    body, at, found = data[8 + length :], 0, {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        assert start == at
        at = stop
        found[name] = (entry["dtype"], entry["shape"], body[start:stop])
    assert at == len(body)
    return found


@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (700, 1001)])
def test_one_output_comes_as_an_npy_file_that_numpy_reads(pool: Pool, token: str, shape: tuple[int, ...]) -> None:
    wanted = array(*shape)
    answer = pool.ask("GET", f"/v1/jobs/{finished(pool, token, out=wanted)}/result", token)
    assert (answer.status, answer.headers["content-type"]) == (200, NPY)
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["content-disposition"].endswith('.npy"')
    got = np.load(io.BytesIO(answer.body), allow_pickle=False)
    assert got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (f"{NPY};q=0.1, {SAFETENSORS};q=0.9", "safetensors"), (f"{SAFETENSORS}; q=0, {NPY}", "npy"),
        (f"{NPY};q=0, {SAFETENSORS}", "safetensors"), (f"text/html, {SAFETENSORS};q=0.2, */*;q=0.1", "safetensors"),
        (f"{NPY};q=nonsense", "npy"), ("*/*;q=0.8", "npy"), ("", "npy"),
    ],
)  # fmt: skip
def test_the_form_that_is_liked_best_is_taken_whatever_its_place(accept: str, form: str) -> None:
    assert form_for(accept, "", ["out"], None)[0] == form


def test_an_answer_is_msgpack_for_who_likes_it_best(pool: Pool, token: str) -> None:
    for accept, kind in {
        "application/msgpack": "msgpack", "application/x-msgpack, */*": "msgpack", "*/*": "json", "text/html": "json",
        "application/json, application/msgpack;q=0.1": "json", "application/json;q=0.1, application/msgpack": "msgpack",
        "application/msgpack;q=0": "json", "application/msgpack;q=0, */*": "json",
        "*/*, application/msgpack;q=0.1": "json",
    }.items():  # fmt: skip
        answer = pool.ask("GET", "/v1/me", token, headers={"Accept": accept})
        assert answer.headers["content-type"] == f"application/{kind}", accept


def test_several_outputs_come_as_safetensors_or_one_by_one(pool: Pool, token: str) -> None:
    a, b = array(5, 7), array(300, 300)
    path = f"/v1/jobs/{finished(pool, token, a=a, b=b)}/result"
    answer = pool.ask("GET", path, token)
    assert (answer.status, answer.headers["content-type"]) == (200, SAFETENSORS)
    found = read_safetensors(answer.body)
    assert found == {"a": ("F32", [5, 7], a.tobytes()), "b": ("F32", [300, 300], b.tobytes())}
    one = pool.ask("GET", f"{path}?output=b", token)
    np.testing.assert_array_equal(np.load(io.BytesIO(one.body)), b)
    assert pool.ask("GET", path, token, headers={"Accept": NPY}).code == "not-acceptable"
    assert pool.ask("GET", f"{path}?output=c", token).code == "not-acceptable"


def test_the_form_is_chosen_by_accept_or_by_the_query(pool: Pool, token: str) -> None:
    path = f"/v1/jobs/{finished(pool, token, out=array(2))}/result"
    assert pool.ask("GET", path, token, headers={"Accept": SAFETENSORS}).headers["content-type"] == SAFETENSORS
    assert pool.ask("GET", f"{path}?format=safetensors", token).headers["content-type"] == SAFETENSORS
    assert pool.ask("GET", path, token, headers={"Accept": "*/*"}).headers["content-type"] == NPY
    assert pool.ask("GET", path, token, headers={"Accept": "text/html"}).code == "not-acceptable"
    assert pool.ask("GET", f"{path}?format=pickle", token).code == "not-acceptable"


def test_sealed_the_owner_gets_names_and_keys(pool: Pool, token: str) -> None:
    job = finished(pool, token, out=array(300, 300))
    manifest = pool.ask("GET", f"/v1/jobs/{job}/result?sealed=1", token).json()
    blob = manifest["outputs"]["out"]["data"]
    assert len(blob["digest"]) == 64
    assert blob["key"]
    assert pool.ask("GET", f"/v1/blobs/{blob['digest']}", token).status == 200
    assert pool.ask("GET", f"/v1/blobs/{blob['digest']}", pool.token("submitter")).status == 404


def test_what_has_no_result_says_why(pool: Pool, token: str) -> None:
    job = pool.submit(token)
    running = pool.ask("GET", f"/v1/jobs/{job}/result", token)
    assert (running.status, running.code) == (202, "still-running")
    pool.ask("DELETE", f"/v1/jobs/{job}", token)
    cancelled = pool.ask("GET", f"/v1/jobs/{job}/result", token)
    assert (cancelled.status, cancelled.code) == (409, "job-cancelled")
    benchmark = pool.submit(token)
    pool.finish(benchmark, {}, dropped=True)
    assert pool.ask("GET", f"/v1/jobs/{benchmark}/result", token).code == "result-gone"
    assert pool.ask("GET", f"/v1/jobs/{benchmark}/result?sealed=1", token).json()["dropped"]


def test_forgotten_outputs_are_gone(pool: Pool, token: str) -> None:
    job = pool.submit(token)
    assert pool.ask("DELETE", f"/v1/jobs/{job}?purge=1", token).code == "conflict"
    pool.finish(job, {"out": ("float32", (2,), b"12345678")})
    assert pool.ask("DELETE", f"/v1/jobs/{job}?purge=1", token).status == 200
    gone = pool.ask("GET", f"/v1/jobs/{job}/result", token)
    assert (gone.status, gone.code) == (410, "result-gone")
    assert pool.ask("GET", f"/v1/jobs/{job}", token).json()["state"] == "done"


def test_statements_verify_under_the_workers_key(pool: Pool, token: str) -> None:
    import msgspec

    job = finished(pool, token, out=array(3))
    answer = pool.ask("GET", f"/v1/jobs/{job}/statements", token)
    (signed,) = msgspec.json.decode(answer.body, type=list[Signed])
    assert (signed.worker, signed.worker_name) == (pool.worker.worker_id, "a worker")
    assert signed.batch[signed.index] == blake3(signed.statement).digest()
    verify(signed.wi_pub, batch_message(pool.services.pool.id, signed.worker, signed.batch), signed.signature)
    audit = pool.ask("GET", "/v1/audit", token).json()
    assert audit["ok"] and audit["rows"] >= 1


@given(shape=st.lists(st.integers(0, 1 << 40), max_size=8).map(tuple))
def test_any_npy_header_is_what_numpy_would_write(shape: tuple[int, ...]) -> None:
    header = npy_header("float16", shape)
    assert len(header) % 64 == 0
    stream = io.BytesIO(header)
    assert np.lib.format.read_magic(stream) == (1, 0)
    assert np.lib.format.read_array_header_1_0(stream) == (shape, False, np.dtype("<f2"))


def test_what_numpy_cannot_hold_is_offered_as_safetensors() -> None:
    with pytest.raises(NotAcceptable, match="safetensors"):
        npy_header("bfloat16", (1,))


@given(accept=st.text(max_size=60), wanted=st.text(max_size=12))
def test_no_accept_header_breaks_it(accept: str, wanted: str) -> None:
    try:
        form_for(accept, wanted, ["out"], None)
    except NotAcceptable:
        pass
