"""Processes that die, hang or freeze in mid task, and clocks that lie: rows 13, 15, 16, 20, 22 and 24."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.jobs import AttemptState
from tests.faults.proxy import Proxy
from tests.faults.rig import SLOWED, Rig, attempts, until

DAY_S = 86_400
HOUR_S = 3_600
FAKETIME = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
)


def test_an_agent_that_is_killed_in_mid_task_comes_back_and_nothing_counts_twice(rig: Rig) -> None:
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    rig.processes("anna")[1].kill()
    product.is_right_and_once()


def test_a_compute_child_that_is_killed_costs_one_attempt_of_one_task(rig: Rig) -> None:
    """Row 15: the engine failed, which counts; another worker does the task."""
    anna = rig.start_worker("anna", *SLOWED)
    rig.start_worker("ben", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    for child in rig.processes("anna")[2:]:
        child.kill()
    view = product.is_right_and_once()
    assert attempts(view).count(AttemptState.REJECTED) <= 1
    assert all(worker.state == "online" for worker in rig.pool.workers())


def test_a_worker_frozen_for_some_seconds_goes_on_where_it_was(rig: Rig) -> None:
    """Row 13: a laptop that slept for a moment. Its leases are as long as its heartbeats are far apart, and longer."""
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    with frozen(*rig.processes("anna")):
        rig.pool.workers()
    view = product.is_right_and_once()
    assert AttemptState.LOST not in attempts(view)


@pytest.mark.acceptance
def test_of_a_worker_frozen_past_its_leases_the_tasks_run_elsewhere_and_its_late_results_are_refused(rig: Rig) -> None:
    """Rows 13, 18 and 20."""
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    with frozen(*rig.processes("anna")):
        rig.start_worker("ben")
        view = product.is_right_and_once()
        assert AttemptState.LOST in attempts(view)
    until(lambda: [worker.state for worker in rig.pool.workers() if worker.id == anna] == ["online"])
    assert attempts(product.is_right_and_once()) == attempts(view)


@pytest.mark.acceptance
def test_a_coordinator_frozen_past_every_lease_takes_nothing_from_healthy_workers(rig: Rig) -> None:
    """Row 22: its machine slept; the workers did not, and what they computed meanwhile counts."""
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    assert rig.local.coordinator is not None
    with frozen(psutil.Process(rig.local.coordinator.pid), seconds=75.0):
        pass
    product.is_right_and_once()
    assert [worker.id for worker in rig.pool.workers()] == [anna]


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Path]:
    """A file that says by how much the wall clock of the pool's processes is off."""
    if not any(Path(library).exists() for library in FAKETIME):
        pytest.skip("missing: libfaketime; mend: apt-get install faketime")
    file = tmp_path / "clock"
    file.write_text("+0")
    yield file


@pytest.mark.acceptance
def test_the_wall_clocks_of_a_pool_jump_in_mid_job(tmp_path: Path, clock: Path) -> None:
    """Row 16: a day ahead, a day back, and an hour, as at the ends of daylight saving on a machine that keeps it so."""
    environment = {
        "LD_PRELOAD": next(library for library in FAKETIME if Path(library).exists()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",  # seconds for which a process may not have noticed
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with LoopbackPool(tmp_path / "home", environment) as local:
        local.start_coordinator()
        with Proxy(f"127.0.0.1:{local.port}") as proxy:
            rig = Rig(local, proxy)
            anna = rig.start_worker("anna", *SLOWED)
            for seed, ahead_s in enumerate((DAY_S, -DAY_S, HOUR_S)):
                product = rig.product(seed=seed)
                product.until_leased(anna)
                clock.write_text(f"{ahead_s:+d}")
                until(lambda ahead_s=ahead_s: abs(skew_s(rig) - ahead_s) < 600.0)
                view = product.is_right_and_once()
                assert AttemptState.LOST not in attempts(view)
            assert [worker.state for worker in rig.pool.workers()] == ["online"]
            assert rig.pool.audit().ok
            rig.pool.close()


def skew_s(rig: Rig) -> float:
    """How far ahead of ours the coordinator's clock is, by when it says that it made something."""
    time.sleep(0.5)  # each look makes a job
    return rig.pool.benchmark("relu", 1, group="nobody").view.created_at - time.time()


@contextmanager
def frozen(*processes: psutil.Process, seconds: float = 3.0) -> Iterator[None]:
    """Stop processes, for so long at the least; then let them go on."""
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
        signal.sigtimedwait([], seconds)
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)


# ---- what ends with what ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_no_worker_of_a_coordinator_outlives_it_however_it_ends(local: LoopbackPool, number: signal.Signals) -> None:
    """Else it lends the machine for ever, to whatever answers there next, and no Ctrl-C of anybody's reaches it."""
    with hang_ups_are(signal.SIG_DFL):
        local.start_coordinator("--worker")
    with local.connect() as pool:
        until(lambda: [worker for worker in pool.workers() if worker.state == "online"])
    assert local.coordinator is not None
    coordinator = psutil.Process(local.coordinator.pid)
    processes = [coordinator, *coordinator.children(recursive=True)]
    assert any("moregpu.worker" in process.cmdline() for process in processes)
    coordinator.send_signal(number)
    if number == signal.SIGHUP:  # the system tells it of its terminal's end, and so does the shell
        coordinator.send_signal(number)
    until(lambda: not any(runs(process) for process in processes))
    if number != signal.SIGKILL:
        assert "the coordinator stopped" in (local.home / "logs" / "coordinator.log").read_text()


def test_what_mends_a_lost_admin_token_names_the_state_that_it_is_for(local: LoopbackPool) -> None:
    """Without it, the command that is shown makes a token of another pool, or of none."""
    local.start_coordinator()
    usual = local.run("token", "create", "--local", "--role", "admin")
    assert usual.returncode == 0
    assert "--local --role admin\n" in local.log("coordinator")
    local.stop()
    elsewhere = local.home / "somewhere else"
    started = local._start("elsewhere", ["serve", "--port", "0", "--state", str(elsewhere)])
    until(lambda: "Lost the admin line" in local.log("elsewhere"))
    (line,) = [line for line in local.log("elsewhere").splitlines() if line.startswith("Lost the admin line")]
    assert local.run(*shlex.split(line.partition("moregpu ")[2])).returncode == 0
    assert list((elsewhere / "tokens").iterdir())
    assert started.poll() is None


def test_what_nohup_started_ignores_the_end_of_its_terminal(local: LoopbackPool) -> None:
    with hang_ups_are(signal.SIG_IGN):
        local.start_coordinator()
        local.start_worker("anna")
    local.wait_for_workers("anna")
    for started in (local.coordinator, local.workers["anna"]):
        assert started is not None
        process = psutil.Process(started.pid)
        for each in (process, *process.children()):
            assert ignored(each) & 1 << signal.SIGHUP - 1, each


@contextmanager
def hang_ups_are(handler: signal.Handlers) -> Iterator[None]:
    """Let what is started inside begin with this; the tests themselves may run under nohup."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def ignored(process: psutil.Process) -> int:
    """The signals that a process ignores, as bits."""
    (line,) = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "SigIgn" in line]
    return int(line.split()[1], 16)


def runs(process: psutil.Process) -> bool:
    """Whether it is there and has not ended."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
