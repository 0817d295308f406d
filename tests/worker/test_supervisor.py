"""The worker as processes: supervisor, agent, compute child. Whoever is killed, the others do what they must."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil
import pytest

from moregpu.platform.private import write_private
from moregpu.wire.invite import parse_invite
from moregpu.wire.messages import Bye, Heartbeat, Hello, Started
from moregpu.worker.config import WorkerConfig
from moregpu.worker.supervisor import run_worker
from tests.worker.scripted import Coordinator, endless, ref, tiny

pytestmark = pytest.mark.slow  # each starts three processes

DEADLINE_S = 30.0


class Worker:
    """`python -m moregpu.worker`, as a service would start it."""

    def __init__(self, folder: Path, invite: str = "", *options: str):
        self.folder = folder
        self.output: IO[bytes] = (folder.parent / f"{folder.name}.out").open("w+b")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "moregpu.worker",
                "--state",
                str(folder),
                "--name",
                "anna",
                "--cores",
                "1",
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(invite.encode())
        self.process.stdin.close()

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read().decode()

    def below(self, module: str) -> list[psutil.Process]:
        """Its processes that run this module."""
        try:
            descendants = psutil.Process(self.process.pid).children(recursive=True)
            return [process for process in descendants if module in " ".join(process.cmdline())]
        except psutil.Error:
            return []

    @property
    def agent(self) -> psutil.Process:
        (found,) = self.below("moregpu.worker.process")
        return found

    @property
    def child(self) -> psutil.Process:
        (found,) = self.below("moregpu.worker.child")
        return found

    def end(self) -> int:
        """Wait for its end."""
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.output.close()


def tell(tmp_path: Path, story: Callable[[Coordinator, Worker], object]) -> None:
    """Run a story of a coordinator and a worker that joins by an invite on its standard input."""

    async def run() -> None:
        coordinator = Coordinator(tmp_path / "certificate")
        await coordinator.start()
        worker = Worker(tmp_path / "worker", coordinator.invite.line())
        try:
            await coordinator.online()
            await story(coordinator, worker)  # type: ignore[misc]
        finally:
            worker.close()
            await coordinator.stop()

    asyncio.run(run())


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_an_agent_that_is_killed_is_started_again_and_its_child_dies_with_it(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, worker: Worker) -> None:
        await coordinator.assign(endless(1))
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        agent, child = worker.agent, worker.child
        agent.kill()
        await coordinator.until(lambda: gone(child))
        await coordinator.online(2)
        assert worker.agent.pid != agent.pid
        assert "SIGKILL" in worker.said()
        hellos = coordinator.all(Hello)
        assert hellos[0].wi_pub == hellos[1].wi_pub
        assert hellos[0].boot != hellos[1].boot
        assert hellos[1].invite_secret is None

    tell(tmp_path, story)


def test_a_result_that_was_not_acknowledged_survives_the_kill_of_the_agent(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, worker: Worker) -> None:
        await coordinator.assign(tiny(1))
        first = await coordinator.result(1)
        kept = worker.folder / "results"
        await coordinator.until(lambda: bool(list(kept.iterdir())))
        worker.agent.kill()
        assert await coordinator.result(2) == first
        await coordinator.acknowledge(first)
        await coordinator.until(lambda: not list(kept.iterdir()))

    tell(tmp_path, story)


def test_agent_and_child_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, worker: Worker) -> None:
        await coordinator.assign(endless(1))
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        agent, child = worker.agent, worker.child
        worker.process.kill()
        await coordinator.until(lambda: gone(agent) and gone(child))

    tell(tmp_path, story)


def test_a_machine_that_falls_asleep_in_mid_task_goes_on_with_it_when_it_wakes(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, worker: Worker) -> None:
        await coordinator.assign(endless(1))
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        agent, child = worker.agent, worker.child
        asleep = [psutil.Process(worker.process.pid), agent, child]
        for process in asleep:
            process.suspend()
        coordinator.cut()  # nobody kept the connection alive meanwhile
        await asyncio.sleep(3.0)  # longer than a look at the child may be late
        for process in asleep:
            process.resume()
        await coordinator.online(2)
        before = sum(child.cpu_times()[:2])
        await coordinator.until(lambda: sum(child.cpu_times()[:2]) > before + 0.1)
        assert worker.agent.pid == agent.pid and worker.child.pid == child.pid
        assert coordinator.all(Heartbeat)[-1].held == [ref(endless(1))]
        assert "replaced" not in worker.said() and "starting it again" not in worker.said()

    tell(tmp_path, story)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_hands_back_and_ends_with_success(tmp_path: Path, number: signal.Signals) -> None:
    async def story(coordinator: Coordinator, worker: Worker) -> None:
        await coordinator.assign(endless(1))
        await coordinator.until(lambda: bool(coordinator.all(Started)))
        agent, child = worker.agent, worker.child
        worker.process.send_signal(number)
        await coordinator.until(lambda: bool(coordinator.all(Bye)))
        assert await asyncio.to_thread(worker.end) == 0
        assert gone(agent)
        assert gone(child)
        assert "Traceback" not in worker.said()

    tell(tmp_path, story)


def test_a_worker_that_has_joined_needs_no_invite_again(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, worker: Worker) -> None:
        worker.process.terminate()
        assert await asyncio.to_thread(worker.end) == 0
        again = Worker(worker.folder)
        try:
            await coordinator.online(2)
            again.process.terminate()
            assert await asyncio.to_thread(again.end) == 0
        finally:
            again.close()

    tell(tmp_path, story)


def test_a_worker_inside_another_program_is_stopped_by_an_event(tmp_path: Path) -> None:
    async def run() -> int:
        coordinator = Coordinator(tmp_path / "certificate")
        await coordinator.start()
        stop = threading.Event()
        config = WorkerConfig(state=str(tmp_path / "worker"), name="anna", cores=1)
        running = asyncio.ensure_future(
            asyncio.to_thread(run_worker, config, parse_invite(coordinator.invite.line()), stop=stop)
        )
        try:
            await coordinator.online()
            stop.set()
            await coordinator.until(lambda: bool(coordinator.all(Bye)))
        finally:
            stop.set()
            await asyncio.wait([running])
            await coordinator.stop()
        return running.result()

    assert asyncio.run(run()) == 0


# ---- what goes wrong before it runs: one line, an exit status of its own, no traceback ----


def ending(worker: Worker) -> tuple[int, str]:
    try:
        return worker.end(), worker.said()
    finally:
        worker.close()


def test_without_an_invite_it_says_where_to_get_one(tmp_path: Path) -> None:
    status, said = ending(Worker(tmp_path / "worker"))
    assert status == 2
    assert said.count("\n") == 1
    assert "moregpu invite" in said


def test_a_mistyped_invite_is_called_that(tmp_path: Path) -> None:
    status, said = ending(Worker(tmp_path / "worker", "MGPU1-ABCDEFGH"))
    assert status == 8
    assert said.count("\n") == 1
    assert "cut off" in said or "checksum" in said
    assert not (tmp_path / "worker" / "enrolment.json").exists()


def test_a_pool_key_that_does_not_fit_ends_it_without_restarts(tmp_path: Path) -> None:
    async def run() -> tuple[int, str]:
        import msgspec

        from moregpu.wire.identity import PoolKeys

        coordinator = Coordinator(tmp_path / "certificate")
        await coordinator.start()
        invite = msgspec.structs.replace(coordinator.invite, cs_pub=PoolKeys.generate().cs_pub)
        worker = Worker(tmp_path / "worker", invite.line())
        try:
            return await asyncio.to_thread(ending, worker)
        finally:
            await coordinator.stop()

    status, said = asyncio.run(run())
    assert status == 8
    assert "could not prove that it is this pool" in said
    assert "Traceback" not in said
    assert "starting it again" not in said


def test_a_wrong_schedule_is_named(tmp_path: Path) -> None:
    status, said = ending(Worker(tmp_path / "worker", "", "--schedule", "whenever"))
    assert status == 2
    assert "'whenever'" in said


# ---- moregpu join ----


def join(tmp_path: Path, *arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moregpu", "join", "--state", str(tmp_path / "worker"), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


async def _an_invite(tmp_path: Path) -> str:
    coordinator = Coordinator(tmp_path / "certificate")
    coordinator.port = 1
    return coordinator.invite.line()


def test_an_invite_on_the_command_line_is_refused_with_that_advice(tmp_path: Path) -> None:
    line = asyncio.run(_an_invite(tmp_path))
    ended = join(tmp_path, line)
    assert ended.returncode == 8
    assert "other users" in ended.stderr
    assert line not in ended.stdout + ended.stderr
    assert not (tmp_path / "worker").exists()


def test_an_invite_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "invite.txt"
    file.write_text(asyncio.run(_an_invite(tmp_path)))
    file.chmod(0o644)
    ended = join(tmp_path, "--invite-file", str(file))
    assert ended.returncode == 9
    assert "chmod 600" in ended.stderr


@pytest.mark.parametrize("way", ["standard input", "file", "variable"])
def test_the_words_of_the_pool_stand_before_its_name(tmp_path: Path, way: str) -> None:
    async def run() -> subprocess.CompletedProcess[str]:
        from moregpu.wire.messages import Reject

        coordinator = Coordinator(tmp_path / "certificate")
        await coordinator.start()
        coordinator.refusal = Reject(code="invite-refused", detail="The invite was not accepted", hint="ask again")
        line = coordinator.invite.line()
        folder = tmp_path / "kept"
        write_private(folder / "invite.txt", line.encode())
        ways: dict[str, Callable[[], subprocess.CompletedProcess[str]]] = {
            "standard input": lambda: join(tmp_path, given=line.lower()),
            "file": lambda: join(tmp_path, "--invite-file", str(folder / "invite.txt")),
            "variable": lambda: join(tmp_path, MOREGPU_TOKEN=f'"{line}"'),  # as docker's --env-file hands it on
        }
        try:
            return await asyncio.to_thread(ways[way])
        finally:
            await coordinator.stop()

    ended = asyncio.run(run())
    assert ended.returncode == 8
    assert ended.stdout.index("pool fingerprint") < ended.stdout.index("pool name:        attic")
    assert "The invite was not accepted" in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout


def test_the_agent_loads_within_half_a_second_and_without_numpy() -> None:
    code = "import moregpu.worker.process, sys; sys.exit('numpy' in sys.modules)"
    began = time.process_time()
    times = os.times()
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    spent = os.times()
    cpu_s = spent.children_user + spent.children_system - times.children_user - times.children_system
    print(f"\nthe agent's imports take {cpu_s:.2f} s of CPU ({time.process_time() - began:.2f} here)")
