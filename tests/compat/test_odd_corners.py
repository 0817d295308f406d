"""What scripts of MoreGPU 1.x rely on without saying so: lines that grep finds, kinds of values, orders, defaults."""

from __future__ import annotations

import base64
import http.client
import json
import re
import time
import tracemalloc
import urllib.error
import urllib.request
from array import array
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from moregpu.coordinator.api.compat.body import SubmitBody, _decoded

from .conftest import OldPool

PUBLIC = ("/health", "/whoami", "/help")
PRIVATE = ("/device", "/gpu", "/workers", "/jobs", "/logs", "/weights")


def b64(values: Any) -> str:
    return base64.b64encode(array("f", values).tobytes()).decode()


def floats(record: dict[str, Any]) -> list[float]:
    values = array("f")
    values.frombytes(base64.b64decode(record["output"]))
    return list(values)


def head_of(live: OldPool, path: str) -> http.client.HTTPResponse:
    address = urlsplit(live.base)
    connection = http.client.HTTPSConnection(str(address.hostname), address.port, timeout=30, context=live.context)
    connection.request("HEAD", path, headers={"authorization": f"Bearer {live.admin}"})
    answer = connection.getresponse()
    assert answer.read() == b""
    connection.close()
    return answer


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- lines and kinds of values


@pytest.mark.parametrize("path", [*PUBLIC, *PRIVATE, "/jobs/none", "/model/status"])
def test_json_stands_a_field_a_line_as_grep_and_cut_expect_it(live: OldPool, path: str) -> None:
    request = urllib.request.Request(live.base + path, headers={"authorization": f"Bearer {live.admin}"})
    try:
        with urllib.request.urlopen(request, timeout=60, context=live.context) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
    as_python = re.sub(r"(\d)e-(\d)(?!\d)", r"\1e-0\2", text)  # a tiny number is 1e-6 here, and 1e-06 there
    assert as_python == json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def test_a_record_stands_a_field_a_line_with_its_output_too(live: OldPool) -> None:
    for body in ({"kernel": "relu", "size": 100}, {"kernel": "relu", "a": b64([-1.0, 2.0])}):
        request = urllib.request.Request(
            live.base + "/submit", json.dumps(body).encode(), {"authorization": f"Bearer {live.admin}"}
        )
        with urllib.request.urlopen(request, timeout=60, context=live.context) as answer:
            text = answer.read().decode()
        lines = text.splitlines()
        assert '  "status": "done",' in lines and '  "verified": true,' in lines
        assert json.loads(text)["kernel"] == "relu"
        assert lines[0] == "{" and lines[-1] == "}"
    assert f'  "output": "{b64([0.0, 2.0])}"' in lines


def test_counts_and_seconds_are_whole_and_shares_are_short(live: OldPool) -> None:
    live.ask("/submit", {"kernel": "relu", "size": 100_000})
    for worker in live.ask("/workers")[1]:
        for name in ("shards", "ops", "units", "tokens", "errors", "uptimeS"):
            assert type(worker[name]) is int, name
        assert worker["share"] == round(worker["share"], 3) and worker["avgMs"] == round(worker["avgMs"], 1)
        assert worker["pausedReason"] is None and worker["paused"] is False
        assert worker["serving"] is False  # it holds no model
    gpu = live.ask("/gpu")[1]
    assert gpu["sealed"] == "AES-256-GCM"
    for name in ("avgUserUtil", "avgPoolDuty"):
        assert gpu[name] == round(gpu[name], 3)


def test_help_names_the_calls_in_a_list(live: OldPool) -> None:
    calls = live.ask("/help", headers={})[1]["endpoints"]
    assert all(isinstance(call, str) for call in calls)
    assert {"/health", "/device", "/gpu", "/workers", "/jobs", "/jobs/:id", "/logs", "/metrics"} <= set(calls)
    assert any(call.startswith("POST /submit") for call in calls)


def test_the_newest_log_line_comes_first(live: OldPool) -> None:
    live.ask("/submit", {"kernel": "relu", "size": 100})
    stamps = [line["ts"] for line in live.ask("/logs")[1]]
    assert stamps == sorted(stamps, reverse=True) and stamps[0] > stamps[-1]


# ---- asking whether it lives


@pytest.mark.parametrize("path", ["/health", "/metrics", "/gpu", "/jobs", "/cert.pem", "/"])
def test_head_answers_as_get_without_a_body(live: OldPool, path: str) -> None:
    answer = head_of(live, path)
    assert answer.status == 200 and int(str(answer.headers["content-length"])) > 0


def test_head_of_a_job_with_an_output_sends_none_of_it(live: OldPool) -> None:
    record = live.ask("/submit", {"kernel": "relu", "a": b64([1.0] * 300_000)})[1]
    answer = head_of(live, f"/jobs/{record['id']}")
    assert answer.status == 200 and int(str(answer.headers["content-length"])) > 1_600_000


def test_head_of_what_has_no_length_says_none(live: OldPool) -> None:
    answer = head_of(live, "/v1/events")
    assert answer.status == 200 and answer.headers["content-length"] is None


def test_base64_in_pieces_is_put_together_at_once() -> None:
    """A body of single letters and blanks took 24 times its size, and the interpreter for as long as that takes."""
    body = b'{"kernel": "relu", "a": "' + b"aa " * 400_000 + b'"}'
    tracemalloc.start()
    try:
        _decoded(bytearray(body), SubmitBody)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(body)


def test_the_bare_address_says_what_is_here(live: OldPool) -> None:
    with urllib.request.urlopen(live.base, timeout=30, context=live.context) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        text = answer.read().decode()
    assert "moregpu-tui" in text and "/help" in text and "/v1/openapi.json" in text


# ---- submitting


def test_async_may_stand_in_the_body(live: OldPool) -> None:
    status, pending = live.ask("/submit", {"kernel": "relu", "size": 1000, "async": True})
    assert status == 202 and set(pending) == {"id", "status", "kernel", "poll"}
    assert live.ask("/submit", {"kernel": "relu", "size": 1000, "async": False})[0] == 200
    until(lambda: live.ask(pending["poll"])[1]["status"] == "done")


def test_the_list_tells_how_long_an_output_is(live: OldPool) -> None:
    record = live.ask("/submit", {"kernel": "relu", "a": b64([1.0] * 7)})[1]
    listed = next(entry for entry in live.ask("/jobs")[1] if entry["id"] == record["id"])
    assert (listed["hasOutput"], listed["outLen"]) == (True, 7)


def test_a_call_without_a_body_takes_every_default(live: OldPool) -> None:
    status, record = live.ask("/submit", b"", method="POST")
    assert (status, record["status"], record["kernel"], record["size"]) == (200, "done", "matmul", 512)
    ada = next(worker for worker in live.ask("/workers")[1] if worker["nick"] == "ada")
    status, answer = live.ask("/workers/ada/control", b"", method="POST")
    assert (status, answer["ok"], answer["paused"], answer["ceil"]) == (200, True, False, ada["ceil"])


def test_null_is_as_good_as_left_out(live: OldPool) -> None:
    record = live.ask("/submit", {"kernel": None, "size": 64, "a": None, "b": None, "bRef": None, "scalar": None})[1]
    assert (record["kernel"], record["size"], record["dataMode"]) == ("matmul", 64, False)


@pytest.mark.parametrize(("kernel", "asked", "runs"), [("relu", 0, 16), ("matmul", 8, 16), ("relu", "15", 16)])
def test_a_benchmark_has_at_least_sixteen(live: OldPool, kernel: str, asked: Any, runs: int) -> None:
    record = live.ask("/submit", {"kernel": kernel, "size": asked})[1]
    assert (record["status"], record["size"]) == ("done", runs)


def test_base64_may_hold_line_ends_and_lack_its_padding(live: OldPool) -> None:
    for text in ("AACA\nvwAA\r\nAEA=\n", "AACAvwAAAEA", " AACA vwAAAEA= "):
        status, record = live.ask("/submit", {"kernel": "relu", "a": text})
        assert status == 200 and floats(record) == [0.0, 2.0]
    for wrong in ("AACAv", "AAC-vwAAAEA=", "AA=AvwAAAEA", [1.0, 2.0]):
        status, answer = live.ask("/submit", {"kernel": "relu", "a": wrong})
        assert status == 400 and "base64" in answer["error"]
    status, answer = live.ask("/submit", {"kernel": "relu", "a": "AACAvwAAAEA", "nick": 1, "M": []})
    assert status == 400 and "base64" not in answer["error"] and "$.M" in answer["error"]
    for broken in (b'{"a": "!!!", "M": ', b'{"a": "!!!", "x": ' + b"[" * 100_000, b'{"a": "!!!", "b": "\xff"}'):
        status, answer = live.ask("/submit", broken, method="POST")
        assert status == 400 and "no JSON" in answer["error"]


def test_m_is_not_looked_at_where_rows_follow_from_the_width(live: OldPool) -> None:
    record = live.ask("/submit", {"kernel": "softmax", "a": b64([0.0] * 4), "M": 7, "N": 2})[1]
    assert floats(record) == [0.5] * 4


def test_rows_of_a_product_with_a_kept_weight_follow_from_its_own(live: OldPool) -> None:
    kept = live.ask("/weights", {"id": "tall", "data": b64([1.0, 2.0, 3.0]), "rows": 3, "cols": 1, "dtype": None})[1]
    assert kept["ok"] is True and kept["dtype"] == "f32"
    record = live.ask("/submit", {"kernel": "matmul", "a": b64([1.0] * 12), "bRef": "tall"})[1]
    assert floats(record) == [6.0] * 4
    for wrong in ({"rows": 0, "cols": 0, "data": ""}, {"rows": 1, "cols": None, "data": "AACAPw=="}):
        assert live.ask("/weights", {"id": "none"} | wrong)[0] == 400


def test_a_named_tensor_that_is_no_matrix_is_no_weight(live: OldPool) -> None:
    for name, shape in (("weights/row", [1]), ("weights/none", [0, 2])):
        tensor = {"dtype": "float32", "shape": shape, "data": "AACAPw==" if shape == [1] else ""}
        assert live.ask("/v1/tensors", {"name": name, "tensor": tensor})[0] == 201
    status, kept = live.ask("/weights")
    assert status == 200 and not {"row", "none"} & {weight["id"] for weight in kept}
    for name in ("row", "none"):
        status, answer = live.ask("/submit", {"kernel": "matmul", "a": b64([1.0]), "bRef": name})
        assert status == 400 and "weight" in answer["error"]


def test_a_small_job_is_not_kept_by_a_large_one_of_the_same_token(live: OldPool) -> None:
    large = live.ask("/submit?async=1", {"kernel": "matmul", "size": 8000})[1]
    try:
        until(lambda: live.ask(large["poll"])[1]["status"] == "running")
        status, record = live.ask("/submit", {"kernel": "relu", "a": b64([-1.0, 2.0])})
        assert (status, record["status"]) == (200, "done"), record
        assert live.ask(large["poll"])[1]["status"] == "running"
    finally:
        live.ask(f"/v1/jobs/{large['id']}", method="DELETE")


# ---- workers


def test_a_ceiling_beyond_its_bounds_is_the_bound(live: OldPool) -> None:
    before = next(worker for worker in live.ask("/workers")[1] if worker["nick"] == "bob")["ceil"]
    assert live.ask("/workers/bob/control", {"ceil": 0})[1]["ceil"] == 0.05
    assert live.ask("/workers/bob/control", {"ceil": 7})[1]["ceil"] == before  # its owner's
    assert live.ask("/workers/bob/control", {"ceil": before})[0] == 200


def test_why_a_worker_rests_is_one_word(live: OldPool) -> None:
    def bob() -> dict[str, Any]:
        return next(worker for worker in live.ask("/workers")[1] if worker["nick"] == "bob")

    live.ask("/workers/bob/control", {"action": "pause"})
    assert (bob()["paused"], bob()["pausedReason"]) == (True, "admin")
    hour = (time.localtime().tm_hour + 6) % 24
    live.ask("/workers/bob/control", {"action": "resume", "schedule": f"{hour:02d}:00-{hour:02d}:30"})
    until(lambda: bob()["pausedReason"] == "schedule")
    assert bob()["paused"] is True
    live.ask("/workers/bob/control", {"schedule": "always"})
    until(lambda: bob()["pausedReason"] is None and not bob()["paused"])


def test_the_network_is_told_from_what_moved(live: OldPool) -> None:
    live.ask("/submit", {"kernel": "relu", "a": b64([1.0] * 300_000)})
    until(lambda: live.ask("/net")[1]["median_rtt_ms"] is not None)  # known from the second heartbeat on
    net = live.ask("/net?pings=20&sustained_mb=0")[1]
    assert net["ok"] is True and len(net["workers"]) == 2 and net["note"]
    assert all(set(row) == {"id", "backend", "rtt_ms", "up_mbps"} for row in net["workers"])
    assert {row["id"] for row in net["workers"]} == {worker["id"] for worker in live.ask("/workers")[1]}
    assert {"median_up_mbps", "latency_tolerant_anywhere", "latency_bound_needs_low_rtt"} < set(net)


# ---- what is not here


LATER = (
    ("POST", "/model/load"), ("GET", "/model/status?id=x"), ("POST", "/train/sessions"),
    ("DELETE", "/train/sessions/x"), ("GET", "/vision/models"), ("POST", "/vision/infer"), ("DELETE", "/vision/jobs/x"),
    ("POST", "/data/push"), ("GET", "/workers/ada/caps"),
)  # fmt: skip


@pytest.mark.parametrize(("verb", "path"), LATER)
def test_calls_of_models_say_that_they_come_later(live: OldPool, verb: str, path: str) -> None:
    status, answer = live.ask(path, {} if verb == "POST" else None, method=verb)
    assert status == 501 and "later" in answer["error"] and "GET /help" in answer["error"]
    assert live.ask(path, {} if verb == "POST" else None, method=verb, headers={})[0] == 401


def test_what_is_not_there_is_not_found_in_so_many_words(live: OldPool) -> None:
    status, answer = live.ask("/jobs/job-12")
    assert status == 404 and answer["error"].startswith("not found")


@pytest.mark.slow
def test_a_pool_whose_workers_all_rest_answers_at_once_with_the_whole_record(tmp_path: Any) -> None:
    from moregpu.cli.loopback import LoopbackPool

    with LoopbackPool(tmp_path / "home") as small:
        small.start_coordinator()
        small.start_worker("eve")
        small.wait_for_workers("eve")
        pool = OldPool(small, tmp_path)
        assert pool.ask("/workers/eve/control", {"action": "pause"})[1]["paused"] is True
        status, record = pool.ask("/submit", {"kernel": "relu", "size": 100})
        assert status == 202 and "no workers" in record["note"] and record["poll"] == f"/jobs/{record['id']}"
        assert record.items() >= {"status": "queued", "kernel": "relu", "size": 100, "sealed": True}.items()
        assert not {"ms", "verified", "signed", "shards", "gflops"} & set(record)
        assert record["dataMode"] is False and record["submittedAt"] > 0
        removed = pool.ask("/workers/eve/control", {"action": "remove"})[1]
        assert removed["ok"] is True and removed["banned"] is True and removed["removed"] == removed["id"]
