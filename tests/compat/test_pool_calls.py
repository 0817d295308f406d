"""The pool, its workers, its log and its metrics, field for field as dashboards and scripts of 1.x read them."""

from __future__ import annotations

import hashlib
import re
import shutil
import ssl
import subprocess
import time
from typing import Any

import pytest

from .conftest import OldPool

KERNELS = ["matmul", "vector_add", "vector_mul", "saxpy", "relu", "gelu", "scale", "softmax", "layernorm"]


@pytest.fixture(scope="module", autouse=True)
def some_work(live: OldPool) -> None:
    for kernel in ("matmul", "relu"):
        assert live.ask("/submit", {"kernel": kernel, "size": 200})[1]["status"] == "done"
    deadline = time.monotonic() + 20  # a job is told of a moment before it is counted
    while not all(live.ask("/gpu")[1]["perKernel"][kernel] for kernel in ("matmul", "relu")):
        assert time.monotonic() < deadline


def test_what_is_public(live: OldPool) -> None:
    status, health = live.ask("/health", headers={})
    assert status == 200 and set(health) == {"ok", "fleet", "queue"}
    assert health["ok"] is True and health["fleet"] == 2 and isinstance(health["queue"], int)
    assert live.ask("/whoami", headers={}) == (200, {"ip": "127.0.0.1"})
    status, help_ = live.ask("/help", headers={})
    assert status == 200 and set(help_) == {"kernels", "endpoints", "workerSchedule", "auth"}
    assert help_["kernels"] == KERNELS
    pem = live.certificate.read_text()
    assert pem.startswith("-----BEGIN CERTIFICATE-----")
    assert live.shown_pin == hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def test_device(live: OldPool) -> None:
    device = live.ask("/device")[1]
    assert set(device) == {
        "name", "kind", "backends", "vendors", "slots", "gpuSlots", "cpuSlots", "busy", "kernels", "limits", "queue",
        "throughput", "seal", "capabilities",
    }  # fmt: skip
    assert (device["kind"], device["slots"], device["cpuSlots"], device["gpuSlots"]) == ("virtual-gpu", 2, 2, 0)
    assert device["backends"] == ["cpu"] and device["kernels"] == KERNELS and device["seal"] == "AES-256-GCM"
    assert set(device["limits"]) == {"maxMatmulDim", "maxElements", "maxInputElements"}
    assert set(device["queue"]) == {"depth", "running"}
    assert set(device["throughput"]) == {"totalOps", "totalUnits", "totalShards", "tokensServed", "trend"}
    assert device["throughput"]["totalOps"] >= 2 * 200**3 and device["throughput"]["totalUnits"] >= 200**2 + 200
    assert device["capabilities"] == dict.fromkeys(
        ("dataMode", "verifiedResults", "signedResults", "adaptiveThrottle", "asyncSubmit", "sealedWire",
         "tokenIsolated"), True,
    )  # fmt: skip


def test_gpu(live: OldPool) -> None:
    gpu = live.ask("/gpu")[1]
    assert set(gpu) == {
        "device", "slots", "gpuSlots", "cpuSlots", "busy", "avgUserUtil", "avgPoolDuty", "queueDepth", "totalUnits",
        "totalShards", "totalOps", "totalTokens", "poolTrend", "perKernel", "sealed",
    }  # fmt: skip
    assert gpu["sealed"] == "AES-256-GCM" and gpu["perKernel"]["matmul"] >= 1
    assert 0 <= gpu["avgUserUtil"] <= 1 and 0 <= gpu["avgPoolDuty"] <= 1


def test_workers(live: OldPool) -> None:
    workers = live.ask("/workers")[1]
    assert {worker["nick"] for worker in workers} == {"ada", "bob"}
    for worker in workers:
        assert set(worker) == {
            "id", "nick", "backend", "label", "os", "userUtil", "poolDuty", "ceil", "busy", "paused", "pausedReason",
            "schedule", "serving", "shards", "ops", "units", "tokens", "share", "errors", "avgMs", "uptimeS", "trend",
        }  # fmt: skip
        assert worker["backend"] == "cpu" and worker["serving"] is False and worker["uptimeS"] > 0
    assert sum(worker["share"] for worker in workers) == pytest.approx(1.0, abs=0.01)
    assert sum(worker["shards"] for worker in workers) >= 2


def test_control(live: OldPool) -> None:
    ada = next(worker for worker in live.ask("/workers")[1] if worker["nick"] == "ada")
    path = f"/workers/{ada['id']}/control"
    status, answer = live.ask(path, {"action": "pause", "ceil": 0.4, "schedule": "22:00-07:00", "nick": "lady"})
    assert status == 200
    assert answer == {
        "ok": True, "id": ada["id"], "paused": True, "ceil": 0.4, "schedule": "22:00-07:00", "nick": "lady",
    }  # fmt: skip
    assert live.ask(path, {"action": "resume", "ceil": 0.85, "schedule": "", "nick": "ada"})[1]["paused"] is False
    assert live.ask("/workers/nobody/control", {"action": "pause"}) == (404, {"error": "worker not found"})
    for wrong in ({"ceil": "much"}, {"schedule": "some day"}, {"action": "dance"}):
        assert live.ask(path, wrong)[0] == 400
    status, refused = live.ask(f"/v1/workers/{ada['id']}", {"schedule": "some day"}, method="PATCH")
    assert (status, refused["type"]) == (400, "about:moregpu/invalid-request")
    assert live.ask(path, {"schedule": "Idle-Only"})[1]["schedule"] == "always"  # it gives way to its user anyway


def test_logs(live: OldPool) -> None:
    lines = live.ask("/logs")[1]
    assert 0 < len(lines) <= 200
    assert all({"ts", "level", "msg"} <= set(line) <= {"ts", "level", "msg", "ctx"} for line in lines)
    assert all(line["level"] in ("info", "warn", "error", "debug") for line in lines)
    assert abs(lines[0]["ts"] / 1000 - time.time()) < 3600
    stranger = live.ask("/logs", headers={"x-admin-token": live.token("submitter")})[1]
    assert not any("job " in line["msg"] for line in stranger)


OLD_METRICS = (
    "fleet", "gpu_slots", "cpu_slots", "busy", "queue_depth", "avg_user_util", "avg_pool_duty", "total_units",
    "total_shards", "total_ops", "tokens_served", "jobs_total", "jobs_done", "jobs_failed", "shards_done",
    "shards_failed", "gpu_shards", "cpu_shards",
)  # fmt: skip
OLD_WORKER_METRICS = ("units", "ops", "tokens", "share", "shards", "errors", "user_util", "pool_duty")


def test_metrics(live: OldPool) -> None:
    text = live.text("/metrics")
    assert len(re.findall(r"(?m)^moregpu_fleet ", text)) == 1
    for name in OLD_METRICS:
        (line,) = re.findall(rf"(?m)^moregpu_{name} (\S+)$", text)
        float(line)
    for name in OLD_WORKER_METRICS:
        lines = re.findall(rf'(?m)^moregpu_worker_{name}\{{worker="(w-\w+)",backend="cpu"\}} \S+$', text)
        assert len(lines) == 2
    for name in ("task_seconds", "queue_wait_seconds", "job_seconds", "http_request_seconds"):
        assert f"# TYPE moregpu_{name} histogram" in text
        assert re.search(rf'moregpu_{name}_bucket\{{.*le="\+Inf"\}} [1-9]', text)
    samples = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    families = set(re.findall(r"(?m)^# TYPE (\S+)", text))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) if name not in families else name for name in samples} == families
    assert set(re.findall(r"(?m)^# HELP (\S+) \S", text)) == families


@pytest.mark.skipif(shutil.which("curl") is None, reason="missing: curl; mend: apt-get install curl")
def test_curl_with_its_own_content_type(live: OldPool) -> None:
    def curl(*arguments: str) -> str:
        return subprocess.run(
            ["curl", "-s", "--cacert", str(live.certificate), *arguments],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip

    token = f"authorization: Bearer {live.admin}"
    said = curl("-X", "POST", f"{live.base}/submit", "-H", token, "-d", '{"kernel":"relu","size":1000}')
    assert '"verified": true' in said and '"signed": true' in said
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", f"{live.base}/submit", "-d", "{}") == "401"
    assert curl(f"{live.base}/metrics", "-H", token).count("\nmoregpu_fleet ") == 1
    head = curl("-D", "-", "-o", "/dev/null", f"{live.base}/cert.pem")
    assert re.search(r"(?mi)^x-moregpu-cert-sha256: [0-9a-f]{64}\r?$", head)


def test_a_typescript_client_that_sends_json_and_reads_json(live: OldPool) -> None:
    """What `fetch` sends: an Accept of its own, a user agent, JSON with a charset."""
    headers = {
        "content-type": "application/json; charset=utf-8", "accept": "*/*", "user-agent": "Deno/1.45",
        "authorization": f"Bearer {live.admin}", "accept-encoding": "gzip, br", "accept-language": "*",
    }  # fmt: skip
    status, record = live.ask("/submit", {"kernel": "relu", "a": "AACAPw==", "b": None, "M": None}, headers=headers)
    assert (status, record["output"]) == (200, "AACAPw==")


@pytest.mark.slow
def test_a_pool_without_workers_answers_202_with_a_note(tmp_path: Any) -> None:
    from moregpu.cli.loopback import LoopbackPool

    with LoopbackPool(tmp_path / "home") as lone:
        lone.start_coordinator()
        status, answer = OldPool(lone, tmp_path).ask("/submit", {"kernel": "relu", "size": 10})
        assert status == 202
        assert answer["status"] == "queued" and "no workers" in answer["note"]
        assert answer["poll"] == f"/jobs/{answer['id']}"
