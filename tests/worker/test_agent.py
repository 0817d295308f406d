"""The agent against a coordinator that does what each test says: nothing is lost, nothing starves."""

from __future__ import annotations

import asyncio
import signal
import struct
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest
import uvloop
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from moregpu.errors import (
    HandshakeFailed,
    InvalidRequest,
    InviteRefused,
    NotConfigured,
    StateRefused,
    Unauthorized,
    Unreachable,
    VersionMismatch,
)
from moregpu.wire.identity import PoolKeys, verify, worker_id_of
from moregpu.wire.messages import (
    Bye,
    Cancel,
    Heartbeat,
    Hello,
    Limits,
    Policy,
    Refused,
    Reject,
    Result,
    Started,
)
from moregpu.wire.statement import (
    Ran,
    batch_message,
    content_digest,
    described,
    digest,
    read_ran_and_outputs,
    statement_of,
)
from moregpu.worker.config import WorkerConfig
from moregpu.worker.enrol import enrol
from moregpu.worker.home import WorkerHome, has_joined, wait_until_left
from tests.worker.scripted import Coordinator, Machine, endless, ref, tell, tiny

VALUES = struct.pack("<2f", -1.0, 2.0)


def children() -> list[psutil.Process]:
    """Compute children of this process. What has ended and was not collected yet (another test's) has no words."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "moregpu.worker.child" in " ".join(child.cmdline()):
                found.append(child)
    return found


# ---- the road of a task ----


def test_a_tiny_task_comes_back_right_and_with_a_statement_that_the_coordinator_can_rebuild(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, _machine: Machine) -> None:
        task = tiny(1, VALUES)
        await coordinator.assign(task)
        entry = await coordinator.result()
        assert entry.outputs["out"].data == struct.pack("<2f", 0.0, 2.0)
        (result,) = coordinator.all(Result)
        (hello,) = coordinator.all(Hello)
        outputs, ran = read_ran_and_outputs(entry.statement)
        worker = coordinator_worker(coordinator)
        rebuilt = statement_of(
            task,
            pool=coordinator.keys.pool_id,
            worker=worker,
            inputs={"a": described(task.inputs["a"], content_digest(task.digest_key, "float32", (2,), VALUES))},
            outputs={"out": outputs[0]},
            ran=ran,
        )
        assert rebuilt == entry.statement
        assert isinstance(ran, Ran)
        assert (ran.device, ran.duty) == ("cpu", 0.85)
        message = batch_message(coordinator.keys.pool_id, worker, [digest(entry.statement)])
        verify(hello.wi_pub, message, result.signature)

    tell(tmp_path, story)


def coordinator_worker(coordinator: Coordinator) -> str:
    return worker_id_of(coordinator.all(Hello)[0].wi_pub)


def test_a_result_is_kept_across_cut_connections_until_it_is_acknowledged(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        await coordinator.assign(tiny(1, VALUES))
        first = await coordinator.result(1)
        coordinator.cut()
        assert await coordinator.result(2) == first
        coordinator.cut()
        assert await coordinator.result(3) == first
        assert len({hello.boot for hello in coordinator.all(Hello)}) == 1, "the same process comes back"
        await coordinator.acknowledge(first)
        assert machine.agent is not None
        await coordinator.until(lambda: machine.agent is not None and not machine.agent._session.kept)
        coordinator.cut()
        await coordinator.online(4)
        await coordinator.assign(tiny(2, VALUES))
        await coordinator.result(4)
        assert [entry.task for entry in coordinator.results] == ["t-1"] * 3 + ["t-2"]

    tell(tmp_path, story)


def test_a_result_is_kept_across_a_restart_of_the_agent(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        await coordinator.assign(tiny(1, VALUES))
        first = await coordinator.result(1)
        await machine.stop()
        machine.start()
        assert await coordinator.result(2) == first
        assert len({hello.boot for hello in coordinator.all(Hello)}) == 2
        await coordinator.acknowledge(first)
        folder = machine.folder / "results"
        await coordinator.until(lambda: not list(folder.iterdir()))

    tell(tmp_path, story)


def test_the_first_process_of_a_worker_presents_its_invite_once(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        assert coordinator.all(Hello)[0].invite_secret == coordinator.invite.secret
        await machine.stop()
        assert has_joined(machine.folder)
        machine.start()
        await coordinator.online(2)
        assert coordinator.all(Hello)[1].invite_secret is None
        kept = (machine.folder / "enrolment.json").read_text()
        assert "invite_secret" in kept
        assert '"invite_secret":""' in kept

    tell(tmp_path, story)


def test_heartbeats_go_on_while_the_child_is_busy(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, _machine: Machine) -> None:
        task = endless()
        await coordinator.assign(task)
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        before = len(coordinator.all(Heartbeat))
        await coordinator.until(lambda: len(coordinator.all(Heartbeat)) >= before + 20)
        assert all(ref(task) in beat.held for beat in coordinator.all(Heartbeat)[before:])
        await coordinator.say(Cancel(leases=[ref(task)]))
        await coordinator.assign(tiny(2, VALUES))
        assert (await coordinator.result()).task == "t-2", "the cancelled task made room, and no result"

    tell(tmp_path, story, heartbeat_s=0.05)


def test_a_worker_that_idles_has_no_compute_process(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        await coordinator.until(lambda: machine.seen[-1].state == "online")
        assert children() == []
        (hello,) = coordinator.all(Hello)
        assert [(device.id, device.engine) for device in hello.devices] == [("cpu", "numpy")]
        for number in (1, 2):
            await coordinator.assign(tiny(number, VALUES))
            assert (await coordinator.result(number)).error is None
            await coordinator.until(lambda: children() == [])

    tell(tmp_path, story, unload_s=0.3)


def test_a_pause_hands_back_what_waits_keeps_what_runs_and_goes_on_later(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        assert machine.agent is not None
        running, waiting = endless(1), tiny(2)
        await coordinator.assign(running)
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        await coordinator.assign(waiting)
        await coordinator.until(lambda: machine.agent is not None and machine.agent._work.running == 2)
        machine.agent.pause()
        await coordinator.until(lambda: bool(coordinator.all(Refused)))
        assert coordinator.all(Refused)[0].leases == [ref(waiting)]
        await coordinator.until(lambda: coordinator.duty == 0.0)
        assert coordinator.all(Heartbeat)[-1].reason == "paused by the owner"
        assert coordinator.all(Heartbeat)[-1].held == [ref(running)]
        assert machine.agent.status().state == "paused"
        machine.agent.resume()
        await coordinator.until(lambda: coordinator.duty == 0.85)
        await coordinator.say(Cancel(leases=[ref(running)]))
        await coordinator.assign(tiny(3))
        assert (await coordinator.result()).task == "t-3"

    tell(tmp_path, story)


def test_the_admin_may_lower_what_the_owner_allows_and_never_raise_it(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        await coordinator.say(Policy(limits=Limits(ceiling=0.3)))
        await coordinator.until(lambda: coordinator.duty == 0.3)
        await coordinator.say(Policy(limits=Limits(ceiling=1.0)))
        await coordinator.until(lambda: coordinator.duty == 0.5)
        assert machine.agent is not None
        assert machine.agent.status().ceiling == 0.5

    tell(tmp_path, story, ceiling=0.5)


def test_a_crash_of_the_child_is_an_engine_error_and_the_worker_goes_on(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, _machine: Machine) -> None:
        await coordinator.assign(endless(1))
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        (child,) = children()
        child.send_signal(signal.SIGKILL)
        entry = await coordinator.result()
        assert entry.error is not None
        assert (entry.error.code, entry.error.fault) == ("engine-error", "engine")
        assert entry.statement == b""
        await coordinator.assign(tiny(2, VALUES))
        assert (await coordinator.result(2)).error is None

    tell(tmp_path, story)


def test_stopping_hands_back_says_bye_and_leaves_no_process(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        task = endless()
        await coordinator.assign(task)
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        await machine.stop()
        await coordinator.until(lambda: bool(coordinator.all(Bye)))
        assert coordinator.all(Refused)[0].leases == [ref(task)]
        assert children() == []

    tell(tmp_path, story)


# ---- when the coordinator is away ----


def test_a_worker_that_knows_its_pool_waits_for_it_and_says_so(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        await coordinator.stop()
        await coordinator.until(lambda: machine.seen[-1].state == "connecting" and "reached" in machine.seen[-1].line)
        assert machine.running
        await coordinator.start()
        await coordinator.online(2)
        await coordinator.until(lambda: machine.seen[-1].state == "online")
        assert "online in the pool attic as anna" in machine.seen[-1].line

    tell(tmp_path, story, enrol_wait_s=0.0)


def test_a_worker_whose_pool_is_away_stops_at_once_and_cleanly(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        await coordinator.stop()
        await coordinator.until(lambda: machine.seen[-1].state == "connecting" and "reached" in machine.seen[-1].line)
        await machine.stop()
        assert children() == []

    tell(tmp_path, story)


def run_agent(folder: Path, **config: object) -> None:
    """Run an agent to its own end."""

    async def run() -> None:
        machine = Machine(folder, WorkerConfig(cores=1, **config))  # type: ignore[arg-type]
        machine.start()
        await machine.end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def with_coordinator(tmp_path: Path, prepare: object, *, status: int = 0, **config: object) -> None:
    """Run an agent to its end against a coordinator that `prepare(coordinator)` set up; it returns the invite."""

    async def run() -> None:
        coordinator = Coordinator(tmp_path / "certificate")
        coordinator.status = status
        await coordinator.start()
        enrol(tmp_path / "worker", prepare(coordinator))  # type: ignore[operator]
        machine = Machine(tmp_path / "worker", WorkerConfig(cores=1, **config))  # type: ignore[arg-type]
        machine.start()
        try:
            await machine.end()
        finally:
            await coordinator.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_a_pool_that_was_never_reached_is_a_mistake_somebody_can_mend(tmp_path: Path) -> None:
    async def nobody() -> int:
        coordinator = Coordinator(tmp_path / "certificate")
        await coordinator.start()
        enrol(tmp_path / "worker", coordinator.invite)
        await coordinator.stop()
        return coordinator.port

    port = asyncio.run(nobody())
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        run_agent(tmp_path / "worker", enrol_wait_s=0.2)
    assert not has_joined(tmp_path / "worker"), "the next `join` asks for an invite again"


def test_a_wrong_or_used_invite_is_refused_and_forgotten(tmp_path: Path) -> None:
    def prepare(coordinator: Coordinator) -> object:
        coordinator.refusal = Reject(code="invite-refused", detail="The invite was not accepted", hint="ask again")
        return coordinator.invite

    with pytest.raises(InviteRefused, match="ask again"):
        with_coordinator(tmp_path, prepare)
    with pytest.raises(NotConfigured):
        WorkerHome.existing(tmp_path / "worker")


def test_a_coordinator_without_the_pools_key_learns_nothing(tmp_path: Path) -> None:
    heard: list[object] = []

    def prepare(coordinator: Coordinator) -> object:
        heard.append(coordinator)
        return msgspec.structs.replace(coordinator.invite, cs_pub=PoolKeys.generate().cs_pub)

    with pytest.raises(HandshakeFailed, match="could not prove that it is this pool"):
        with_coordinator(tmp_path, prepare)
    (coordinator,) = heard
    assert isinstance(coordinator, Coordinator)
    assert coordinator.heard == []


def test_a_coordinator_of_another_version_is_named_as_that(tmp_path: Path) -> None:
    with pytest.raises(VersionMismatch, match="Update MoreGPU"):
        with_coordinator(tmp_path, lambda coordinator: coordinator.invite, status=426)


def test_a_revoked_worker_ends_with_the_coordinators_words(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        coordinator.refusal = Reject(code="unauthorized", detail="This worker was revoked")
        coordinator.cut()
        with pytest.raises(Unauthorized, match="revoked"):
            await machine.end()

    tell(tmp_path, story)


def test_a_worker_that_missed_the_change_of_the_pools_key_says_what_mends_that(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        coordinator.keys.replace_sessions(X25519PrivateKey.generate(), None)
        coordinator.cut()
        await coordinator.until(lambda: any("--invite-file" in status.line for status in machine.seen))

    tell(tmp_path, story)


def test_a_coordinator_that_asks_to_come_later_is_asked_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moregpu.worker.session.REFUSED_RETRY_S", (0.01, 0.02))

    async def story(coordinator: Coordinator, machine: Machine) -> None:
        coordinator.refusal = Reject(code="unavailable", detail="full", again=True)
        coordinator.cut()
        await coordinator.until(lambda: len(coordinator.all(Hello)) >= 4)
        assert machine.running
        coordinator.refusal = None
        await coordinator.online(2)

    tell(tmp_path, story)


# ---- the state folder ----


def test_a_folder_without_a_pool_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="moregpu invite"):
        WorkerHome.existing(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists(), "asking creates nothing"


def test_one_folder_holds_one_running_worker(tmp_path: Path) -> None:
    async def story(_coordinator: Coordinator, machine: Machine) -> None:
        with pytest.raises(StateRefused, match="another worker runs"):
            WorkerHome(machine.folder)

    tell(tmp_path, story)


def test_a_worker_that_leaves_its_folder_is_waited_for(tmp_path: Path) -> None:
    wait_until_left(tmp_path / "nothing", 60.0)  # nobody ever was there
    home = WorkerHome(tmp_path / "worker")
    wait_until_left(home.folder, 0.0)  # it stays: whoever opens it says so
    leaves = threading.Timer(0.3, home.close)
    leaves.start()
    wait_until_left(home.folder, 60.0)
    WorkerHome(home.folder).close()
    leaves.join()


def test_a_folder_that_others_can_read_is_refused_with_how_to_mend_it(tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    WorkerHome(folder).close()
    folder.chmod(0o755)
    with pytest.raises(StateRefused, match="chmod 700"):
        WorkerHome(folder)


def test_a_folder_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    async def invite() -> None:
        coordinator = Coordinator(tmp_path / "certificate")
        await coordinator.start()
        enrol(tmp_path / "worker", coordinator.invite)
        await coordinator.stop()

    asyncio.run(invite())
    place = tmp_path / "worker" / "enrolment.json"
    newer = place.read_text().replace('"version":1', '"version":99')
    place.write_text(newer)
    with pytest.raises(VersionMismatch, match="newer version"):
        WorkerHome.existing(tmp_path / "worker")
    assert place.read_text() == newer


def test_an_invite_to_another_pool_does_not_take_the_worker_away(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        await machine.stop()
        other = Coordinator(tmp_path / "other")
        other.port = 1
        with pytest.raises(StateRefused, match="belongs to the pool attic"):
            enrol(machine.folder, other.invite)

    tell(tmp_path, story)


def test_lost_keys_are_never_replaced_behind_the_pools_back(tmp_path: Path) -> None:
    async def story(_coordinator: Coordinator, machine: Machine) -> None:
        await machine.stop()
        for secret in (machine.folder / "secrets").iterdir():
            secret.unlink()
        home = WorkerHome.existing(machine.folder)
        with pytest.raises(StateRefused, match="keys of this worker are gone"):
            home.keys()
        home.close()

    tell(tmp_path, story)


def test_a_wrong_setting_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match="schedule"):
        WorkerConfig.checked(schedule="whenever")
    with pytest.raises(InvalidRequest, match="ceiling"):
        WorkerConfig.checked(ceiling=7.0)
