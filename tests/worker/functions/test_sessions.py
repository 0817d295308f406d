"""Who shares a process with whom, and what a worker offers at all."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moregpu.errors import EnvironmentRefused, EnvironmentUnavailable
from moregpu.wire.messages import TaskError
from moregpu.worker.config import WorkerConfig
from moregpu.worker.functions.offer import FunctionOffer
from moregpu.worker.functions.room import FunctionRoom
from moregpu.worker.sandbox.box import Runtime
from moregpu.worker.sandbox.level import Level, Who, whose
from tests.worker.functions.rooms import Owner, called, calls_of, failure, with_room


def _count() -> int:
    """How often this process was called."""
    import builtins

    builtins.calls = getattr(builtins, "calls", 0) + 1  # type: ignore[attr-defined]
    return builtins.calls  # type: ignore[attr-defined]


async def call(room: FunctionRoom, owner: Owner, number: int, submitter: str, **more: Any) -> Any:
    task, raw, region = calls_of(number, _count, (), **more)
    room.give(msgspec.structs.replace(task, submitter=submitter), raw, region)
    return (await owner.answer(number))[0]


def test_a_session_keeps_its_process_and_nobody_else_has_it(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        assert await call(room, owner, 1, "ann", session="one") == 1
        assert await call(room, owner, 2, "ann", session="one") == 2
        assert await call(room, owner, 3, "ann", session="two") == 1
        assert await call(room, owner, 4, "bob", session="one") == 1

    with_room(tmp_path, story)


def test_a_process_for_each_task_where_the_job_asks_for_it(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        assert await call(room, owner, 1, "ann", isolate="task") == 1
        assert await call(room, owner, 2, "ann", isolate="task") == 1

    with_room(tmp_path, story)


def test_as_many_run_at_once_as_cores_are_lent(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def wait() -> None:
            import time

            time.sleep(60)

        for number in (1, 2, 3):
            task, raw, _ = calls_of(number, wait, ())
            room.give(task, raw)
        await owner.until(lambda: sorted(owner.began) == [1, 2])
        room.stop(1)
        await owner.until(lambda: sorted(owner.began) == [1, 2, 3])

    with_room(tmp_path, story, cores=2)


def test_tasks_that_come_while_a_sandbox_is_made_wait_for_it(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        for number in range(1, 21):
            task, raw, _ = calls_of(number, _count, ())
            room.give(task, raw)
        assert [(await owner.answer(number))[0] for number in range(1, 21)] == list(range(1, 21))

    with_room(tmp_path, story)


@pytest.mark.parametrize(
    ("error", "code", "fault"),
    [
        (EnvironmentUnavailable("no network"), "environment", "engine"),
        (EnvironmentRefused("no such package"), "environment-refused", "task"),
    ],
)
def test_an_environment_that_cannot_be_had_fails_the_task_by_its_name(
    tmp_path: Path, error: Exception, code: str, fault: str
) -> None:
    async def refuse(python: str, requires: tuple[str, ...]) -> Runtime:
        del python, requires
        raise error

    async def story(room: FunctionRoom, owner: Owner) -> None:
        task, raw, _ = calls_of(1, _count, ())
        room.give(task, raw)
        answer = await owner.answer(1)
        assert isinstance(answer, TaskError)
        assert (answer.code, answer.fault) == (code, fault)

    with_room(tmp_path, story, runtime=refuse)


def test_a_task_can_be_stopped_while_its_environment_is_built(tmp_path: Path) -> None:
    async def forever(python: str, requires: tuple[str, ...]) -> Runtime:
        del python, requires
        await asyncio.Event().wait()
        raise AssertionError

    async def story(room: FunctionRoom, owner: Owner) -> None:
        task, raw, _ = calls_of(1, _count, ())
        room.give(task, raw)
        room.stop(1)
        assert await owner.answer(1) is None

    with_room(tmp_path, story, runtime=forever)


def test_the_network_is_its_owner_s_to_give(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        task, raw, _ = calls_of(1, _count, (), network=True)
        room.give(task, raw)
        answer = await owner.answer(1)
        assert isinstance(answer, TaskError)
        assert "network" in answer.message

    with_room(tmp_path, story)


def test_with_the_network_loopback_is_the_machine_s_and_unix_sockets_stay_shut(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        def reach(port: int) -> str:
            import socket

            socket.create_connection(("127.0.0.1", port)).close()
            try:
                socket.socket(socket.AF_UNIX)
            except OSError:
                return "TCP alone"
            return "more"

        task, raw, _ = calls_of(1, reach, (port,), network=True)
        room.give(task, raw)
        assert await owner.answer(1) == ["TCP alone"]
        server.close()

    with_room(tmp_path, story, network=True)


def test_a_sandbox_that_cannot_be_entered_fails_the_task_and_says_why(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        task, raw, _ = calls_of(1, _count, ())
        room.give(task, raw)
        answer = await owner.answer(1)
        assert isinstance(answer, TaskError)
        assert "never run as root" in answer.message
        assert answer.fault == "engine"

    if os.geteuid() != 0:
        pytest.skip("this test needs a worker of root's")
    with_room(tmp_path, story, level=Level(isolation="none", why=(), who=Who()))


def test_calls_that_are_done_are_progress(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def nap() -> None:
            import time

            time.sleep(0.1)

        task, raw, _ = calls_of(1, nap, *((),) * 8)
        room.give(task, raw)
        await owner.answer(1)
        assert owner.shares[1] == sorted(owner.shares[1])
        assert 0.0 < owner.shares[1][0] < 1.0

    with_room(tmp_path, story)


def test_what_a_function_leaves_running_stands_still_while_nothing_is_asked_of_it(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def leave() -> str:
            import threading

            def spin() -> None:
                while True:
                    pass

            threading.Thread(target=spin, daemon=True).start()
            return "left"

        def state(pid: int) -> str:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

        assert await called(room, owner, 1, leave) == "left"
        child = room.pids[-1]
        await owner.until(lambda: state(child) == "T")
        assert await called(room, owner, 2, leave) == "left"

    with_room(tmp_path, story)


def test_memory_for_all_is_shared_by_all(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def hold(size: int) -> int:
            import time

            held = bytearray(b"x") * size
            print("held", flush=True)
            time.sleep(60)
            return len(held)

        for number, size in ((1, 100 << 20), (2, 220 << 20)):
            task, raw, _ = calls_of(number, hold, (size,), session=str(number))
            room.give(task, raw)
            await owner.until(lambda number=number: number in owner.answers or number in owner.lines)
        failure((await owner.answer(2))[0], "memory")
        assert 1 not in owner.answers

    with_room(tmp_path, story, cores=2, memory_bytes=300 << 20)


HELD = Level(isolation="bubblewrap", why=())
NONE = Level(isolation="none", why=("no bubblewrap",))


@pytest.mark.parametrize(
    ("config", "level", "is_open"),
    [
        (WorkerConfig(), HELD, False),
        (WorkerConfig(functions=("*",)), HELD, True),
        (WorkerConfig(functions=("*",)), NONE, False),
        (WorkerConfig(functions=("*",), functions_unconfined=True), NONE, True),
        (WorkerConfig(functions_unconfined=True), NONE, False),
        (
            WorkerConfig(functions=("*",), functions_unconfined=True),
            Level(isolation="none", why=("root",), who=Who(trouble="root")),
            False,
        ),
        (
            WorkerConfig(functions=("*",), functions_unconfined=True),
            Level(isolation="none", why=("their Python is out of reach",), has_python=False),
            False,
        ),
    ],
)
def test_functions_are_offered_with_consent_and_a_sandbox(
    tmp_path: Path, config: WorkerConfig, level: Level, is_open: bool
) -> None:
    offer = FunctionOffer(config, tmp_path, level)
    assert offer.is_open is is_open
    assert ("function" in offer.kinds) is is_open
    assert ("function" in offer.consent) is is_open


def test_root_needs_somebody_else_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("MOREGPU_FUNCTIONS_USER", "surely-nobody-here")
    assert "useradd" in whose().trouble
    monkeypatch.setenv("MOREGPU_FUNCTIONS_USER", "root")
    assert whose().trouble
    monkeypatch.setenv("MOREGPU_FUNCTIONS_USER", "65400")
    assert whose() == Who(user=65400, group=65400)
