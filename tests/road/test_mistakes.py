"""A user's mistake is a typed error of one line that says what to do; nothing is lost, nothing half-written."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import Access
from moregpu.client.pool import Pool
from moregpu.errors import (
    InvalidJob,
    InvalidRequest,
    MoreGPUError,
    NotFound,
    StillRunning,
    TooLarge,
    Unauthorized,
    Unreachable,
    WrongCertificate,
)
from moregpu.jobs import Tensor
from moregpu.workloads.kernel.spec import KernelSpec

ones = np.ones


@pytest.mark.parametrize(
    ("operation", "a", "b"),
    [
        ("matmul", ones((2, 3)), ones((2, 3))),
        ("matmul", ones(3), ones(3)),
        ("matmul", ones((2, 3)), None),
        ("vector_add", ones(3), ones(4)),
        ("vector_add", ones(3), None),
        ("relu", ones(3), ones(3)),
        ("softmax", np.float32(1.0), None),
        ("matmull", ones(3), None),
    ],
)
def test_shapes_that_do_not_fit_are_refused_at_once(pool: Pool, operation: Any, a: Any, b: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        pool.kernel(operation, a, b).result(10)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) > 20


@pytest.mark.parametrize("value", [np.array(["x"]), np.array([1j]), np.array([None])])
def test_types_that_are_no_numbers_are_refused(pool: Pool, value: Any) -> None:
    with pytest.raises(InvalidJob, match="real numbers"):
        pool.relu(value)


def test_a_dtype_that_kernels_do_not_take_is_refused_by_the_coordinator_too(pool: Pool) -> None:
    tensor = Tensor(dtype="int64", shape=(1,), data=bytes(8))
    with pytest.raises(InvalidRequest):
        pool.submit_job(KernelSpec(operation="relu", inputs={"a": tensor}))


def test_bytes_that_do_not_fill_the_shape_are_refused(pool: Pool) -> None:
    tensor = Tensor(dtype="float32", shape=(3,), data=bytes(8))
    with pytest.raises(InvalidRequest):
        pool.submit_job(KernelSpec(operation="relu", inputs={"a": tensor}))


def test_a_million_million_elements_are_refused_without_being_made(pool: Pool) -> None:
    for size in (10**12 + 1, 10**15):
        with pytest.raises((TooLarge, InvalidRequest)):
            pool.benchmark("relu", size)
    with pytest.raises((TooLarge, InvalidRequest)):
        pool.benchmark("matmul", 10**7)


def test_a_blob_that_nobody_uploaded_is_refused(pool: Pool) -> None:
    from moregpu.jobs import Blob

    tensor = Tensor(dtype="float32", shape=(3,), data=Blob(digest="ab" * 32, key=bytes(32), size_bytes=12))
    with pytest.raises(MoreGPUError) as refused:
        pool.submit_job(KernelSpec(operation="relu", inputs={"a": tensor}))
    assert refused.value.status in (404, 422, 400)


def test_a_job_that_does_not_exist_is_not_found(pool: Pool) -> None:
    for name in ("j-00000000000000000000000000", "nonsense", "../../etc/passwd", "%2e%2e"):
        with pytest.raises((NotFound, InvalidRequest)):
            pool.job(name)


def test_a_wrong_token_is_told_so_and_not_repeated(road: LoopbackPool) -> None:
    access = msgspec.structs.replace(road.access(), token="mgt_aaaaaaaa_" + "b" * 43)
    with Pool(access) as stranger, pytest.raises(Unauthorized) as refused:
        stranger.me(patience_s=0)
    assert "bbbb" not in str(refused.value)


def test_a_wrong_pin_is_told_before_anything_is_sent(road: LoopbackPool) -> None:
    access = msgspec.structs.replace(road.access(), pin=bytes(32))
    with Pool(access) as stranger, pytest.raises(WrongCertificate):
        stranger.me(patience_s=0)


def test_nobody_there_is_told(home: Path) -> None:
    with Pool(Access(addresses=("127.0.0.1:9",), token="mgt_x", pin=bytes(32))) as nobody, pytest.raises(Unreachable):
        nobody.me(patience_s=0)


def test_a_job_that_no_worker_fits_waits_and_says_for_what(pool: Pool) -> None:
    handle = pool.benchmark("relu", 100, group="people with telescopes")
    begun = time.monotonic()
    while not handle.status().waiting_reason:
        assert time.monotonic() - begun < 10
    assert "people with telescopes" in handle.view.waiting_reason
    with pytest.raises(StillRunning, match="people with telescopes"):
        handle.wait(0.1)
    assert handle.cancel().state == "cancelled"


def test_an_interrupted_submit_says_that_its_job_goes_on(road: LoopbackPool, pool: Pool) -> None:
    name = "interrupted"
    process = road._start(name, ["submit", "relu", "--size", "100", "--group", "nobody", "--name", name, "--watch"])
    begun = time.monotonic()
    while "waiting" not in road.log(name):
        assert time.monotonic() - begun < 30
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    (job,) = [job for job in pool.jobs() if job.name == name]
    assert job.state == "queued"
    assert f"moregpu cancel {job.id} ends it" in road.log(name)
    pool.job(job.id).cancel()


def test_a_cancelled_job_stays_cancelled(pool: Pool) -> None:
    handle = pool.benchmark("relu", 100, group="nobody at all")
    handle.cancel()
    handle.cancel()
    with pytest.raises(MoreGPUError, match="cancelled"):
        handle.result()


def test_the_command_line_says_the_same_in_one_line(road: LoopbackPool, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ones((2, 3), np.float32))
    path = str(tmp_path / "a.npy")
    for arguments, status in (
        (["submit", "matmul", path, path], 2),
        (["submit", "relu", path, path], 2),
        (["submit", "relu", "--size", str(10**13)], 2),
        (["job", "j-00000000000000000000000000"], 4),
        (["cancel", "nonsense"], 4),
    ):
        shown = road.run(*arguments)
        assert shown.returncode == status, shown.stderr
        assert "Traceback" not in shown.stderr
        assert 1 <= len(shown.stderr.splitlines()) <= 2


def test_the_command_line_does_the_work(road: LoopbackPool, tmp_path: Path) -> None:
    a = np.random.default_rng(1).standard_normal((300, 200), dtype=np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", a.T)
    shown = road.run(
        "submit", "matmul", str(tmp_path / "a.npy"), str(tmp_path / "b.npy"), "-o", str(tmp_path / "c.npy")
    )
    assert shown.returncode == 0, shown.stderr
    assert "verified here" in shown.stdout
    assert np.allclose(np.load(tmp_path / "c.npy"), a @ a.T, atol=1e-3)
    jobs = json.loads(road.run("jobs", "--json").stdout)
    one = json.loads(road.run("job", jobs[0]["id"], "--json").stdout)
    assert one["state"] == "done"
    assert one["signers"]
    assert one["result"]["outputs"] == {}  # no key on a terminal
    assert {worker["name"] for worker in json.loads(road.run("workers", "--json").stdout)} == {"anna", "ben"}
    assert json.loads(road.run("audit", "--json").stdout)["ok"]
    assert "MGPU1-" in road.run("invite").stdout
    assert json.loads(road.run("submit", "relu", "--size", "10", "--json").stdout)["checked"]
    for command in (["jobs"], ["workers"], ["job", jobs[0]["id"]], ["audit"]):
        assert road.run(*command).returncode == 0


def test_an_output_that_cannot_be_written_leaves_nothing_half_written(road: LoopbackPool, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ones(3, np.float32))
    shown = road.run("submit", "relu", str(tmp_path / "a.npy"), "-o", str(tmp_path / "no folder" / "c.npy"))
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy"]


def test_a_lost_admin_token_is_mended_by_whoever_can_write_the_state_folder(road: LoopbackPool) -> None:
    shown = road.run("token", "create", "--local", "--role", "admin", "--state", str(road.state), "--json")
    line = json.loads(shown.stdout)["line"]
    from moregpu.client.access import find_access

    with Pool(find_access(token=line)) as mended:
        assert mended.me().role == "admin"


def test_a_port_in_use_and_a_folder_in_use_are_told(road: LoopbackPool, tmp_path: Path) -> None:
    taken = road.run("serve", "--port", str(road.port), "--state", str(tmp_path / "other"))
    assert taken.returncode == 9
    assert str(road.port) in taken.stderr
    assert "Traceback" not in taken.stderr
    shared = road.run("serve", "--port", "0", "--state", str(road.state))
    assert shared.returncode == 9
    assert "Traceback" not in shared.stderr


def test_a_loosened_state_folder_is_refused_and_says_how_to_mend(lone: LoopbackPool) -> None:
    lone.kill_coordinator()
    lone.state.chmod(0o755)
    shown = lone.run("serve", "--port", "0", "--state", str(lone.state))
    assert shown.returncode == 9
    assert "chmod 700" in shown.stderr


def test_a_state_folder_of_a_newer_version_is_refused(lone: LoopbackPool) -> None:
    lone.kill_coordinator()
    description = lone.state / "pool.json"
    told = json.loads(description.read_text())
    description.write_text(json.dumps(told | {"version": told["version"] + 1}))
    shown = lone.run("serve", "--port", "0", "--state", str(lone.state))
    assert shown.returncode == 8, shown.stderr
    assert "newer" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_copied_state_folder_is_refused(lone: LoopbackPool, tmp_path: Path) -> None:
    """Two coordinators with one pool's keys would both be believed."""
    shutil.copytree(lone.state, tmp_path / "copy")
    (tmp_path / "copy").chmod(0o700)
    shown = lone.run("serve", "--port", "0", "--state", str(tmp_path / "copy"))
    assert shown.returncode == 9, shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_hostile_name_reaches_no_terminal_raw(road: LoopbackPool, pool: Pool) -> None:
    name = "\x1b]52;c;ZXZpbA==\x07\x1b[31mred\u202egnp.exe\x9b2J[/bold]" + "x" * 100
    pool.benchmark("relu", 10, name=name).wait(30)
    for command in (["jobs"], ["job", pool.jobs(limit=1)[0].id]):
        shown = road.run(*command).stdout
        assert not [character for character in shown if character != "\n" and not character.isprintable()]
