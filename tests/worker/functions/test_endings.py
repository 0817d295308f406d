"""What a function may do to its own process: each its own clear failure, one attempt, and the calls behind it go on."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu.worker.functions.frames import Entered, frame, from_zygote
from moregpu.worker.functions.room import FunctionRoom
from tests.worker.functions.rooms import DEADLINE_S, Owner, called, calls_of, failure, with_room


def _raise(what: str) -> None:
    raise KeyError(what, 3)


def _exit(status: Any) -> None:
    sys.exit(status)


def _crash() -> None:
    import ctypes

    ctypes.string_at(0)


def _kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _quit(status: int) -> None:
    os._exit(status)


def _out_of_memory() -> int:
    return len(bytearray(1 << 40))


def _hoard() -> int:
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)) * 16)


def _hoard_together() -> None:
    for _ in range(8):
        if os.fork() == 0:
            kept = bytearray(b"x") * (100 << 20)
            time.sleep(60 + len(kept) * 0)
    time.sleep(60)


def _hoard_without_a_file() -> None:
    import mmap

    kept = mmap.mmap(-1, 800 << 20)  # shared with nobody, which only its flags say
    for start in range(0, len(kept), mmap.PAGESIZE):
        kept[start] = 1
    time.sleep(60)


def _loop() -> None:
    while True:
        pass


def _count_for_ever() -> None:
    """Says to the agent that calls are done, again and again."""
    import struct

    for fd in range(3, 256):
        try:
            if os.fstat(fd).st_size >= 1 << 20:
                break
        except OSError:
            continue
    number = 0
    while True:
        number += 1
        os.pwrite(fd, struct.pack("<Q", number % 3), 0)


def _ignore_and_loop() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _loop()


async def _asynchronous() -> int:
    return 1


def _generator() -> Any:
    yield 1


def _lock() -> Any:
    import threading

    return {"deep": [1, {"er": threading.Lock()}]}


class _Odd(Exception):
    def __init__(self, one: int, two: int):
        super().__init__("odd")
        self.held = lambda: one + two

    def __str__(self) -> str:
        raise ValueError("no text")


def _odd() -> None:
    raise _Odd(1, 2)


def _missing() -> None:
    import surely_not_installed  # noqa: F401  # pyright: ignore


@pytest.mark.parametrize(
    ("function", "arguments", "cause", "words"),
    [
        (_raise, ("k",), "raised", "('k', 3)"),
        (_exit, (0,), "exited", "status 0"),
        (_exit, (3,), "exited", "status 3"),
        (_exit, ("bye",), "exited", "bye"),
        (_quit, (4,), "exited", "status 4"),
        (_crash, (), "crashed", "SIGSEGV"),
        (_kill_itself, (), "crashed", "SIGKILL"),
        (_out_of_memory, (), "raised", ""),
        (_hoard, (), "raised", ""),
        (_asynchronous, (), "refused", "async"),
        (_generator, (), "refused", "generator"),
        (_lock, (), "unencodable", "result['deep'][1]['er']"),
        (_lock, (), "unencodable", "; no result goes by pickle: return what it holds"),
        (_odd, (), "raised", "whose text raised"),
        (_missing, (), "raised", "surely_not_installed"),
    ],
)  # fmt: skip
def test_a_call_that_ends_badly_says_how_and_the_next_one_runs(
    tmp_path: Path, function: Any, arguments: tuple[Any, ...], cause: str, words: str
) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        failed = failure(await called(room, owner, 1, function, *arguments), cause)
        assert words in failed.text
        assert await called(room, owner, 2, lambda: "on") == "on"

    with_room(tmp_path, story, memory_bytes=400 << 20)


def test_a_function_finds_no_arguments_of_a_program(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        assert await called(room, owner, 1, lambda: __import__("sys").argv) == [""]

    with_room(tmp_path, story)


def test_an_exception_comes_as_data_with_its_class_arguments_and_traceback(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        failed = failure(await called(room, owner, 1, _raise, "k"), "raised")
        assert failed.type == "builtins:KeyError"
        assert "_raise" in failed.traceback
        assert "child.py" not in failed.traceback

    with_room(tmp_path, story)


def test_a_loop_past_its_limit_is_ended_once_and_calls_behind_it_go_on(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def work(n: int) -> int:
            while n == 2:
                pass
            return n

        task, raw, _ = calls_of(1, work, (1,), (2,), (3,), limit_s=0.4)
        room.give(task, raw)
        one, two, three = await owner.answer(1)
        assert (one, three) == (1, 3)
        assert "0.4 s" in failure(two, "timeout").text

    with_room(tmp_path, story)


def test_a_crash_in_the_middle_costs_that_call_alone_and_nothing_runs_twice(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def work(n: int) -> int:
            print("call", n)
            if n == 2:
                os.kill(os.getpid(), signal.SIGSEGV)
            return n

        task, raw, _ = calls_of(1, work, *((n,) for n in range(5)))
        room.give(task, raw)
        answers = await owner.answer(1)
        assert [n for n in answers if isinstance(n, int)] == [0, 1, 3, 4]
        failure(answers[2], "crashed")
        assert [line for line in owner.lines[1] if "call" in line] == [f"call {n}" for n in (0, 1, 3, 4)]

    with_room(tmp_path, story)


def test_processes_that_take_too_much_together_are_ended(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        failed = failure(await called(room, owner, 1, _hoard_together), "memory")
        assert "300 MiB" in failed.text
        assert await called(room, owner, 2, lambda: "on") == "on"

    with_room(tmp_path, story, memory_bytes=300 << 20)


def test_memory_that_is_shared_with_nobody_counts_as_well_and_results_do_not(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        failure(await called(room, owner, 1, _hoard_without_a_file), "memory")
        assert len(await called(room, owner, 2, lambda: bytes(200 << 20))) == 200 << 20
        assert await called(room, owner, 3, lambda: "on") == "on"

    with_room(tmp_path, story, memory_bytes=500 << 20)


def test_a_call_that_only_says_that_calls_are_done_meets_its_time_limit(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        failure(await called(room, owner, 1, _count_for_ever, limit_s=0.5), "timeout")

    with_room(tmp_path, story)


@pytest.mark.parametrize("version", ["Python 3." + "1" * 60_000, "Python 3.11.7\x1b]52;c;\x07", "2.7"])
def test_a_sandbox_says_which_python_it_has_and_nothing_else(version: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        from_zygote(frame(Entered(version=version))[8:])
    assert from_zygote(frame(Entered(version=f"Python {sys.version.split()[0]}"))[8:])


def test_a_task_that_is_stopped_ends_though_it_ignores_signals(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        task, raw, _ = calls_of(1, _ignore_and_loop, ())
        room.give(task, raw)
        await owner.until(lambda: owner.began == [1])
        room.stop(1)
        assert await owner.answer(1) is None
        assert await called(room, owner, 2, lambda: "on") == "on"

    with_room(tmp_path, story)


def test_sixty_megabytes_of_output_become_a_few_lines_and_a_count(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def chat() -> int:
            for _ in range(60):
                print(("x" * 99 + "\n") * 10_000)
            return 1

        assert await called(room, owner, 1, chat) == 1
        assert sum(map(len, owner.lines[1])) < 2 << 20
        assert "left out" in owner.lines[1][-1]

    with_room(tmp_path, story)


def test_what_is_printed_comes_with_its_task_and_what_comes_later_harms_nobody(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def talk() -> int:
            import atexit
            import threading

            print("now")
            subprocess.run(["sh", "-c", "echo from a program; echo to stderr >&2"], check=True)
            atexit.register(print, "too late")
            threading.Timer(0.05, print, ("later",)).start()
            return 1

        assert await called(room, owner, 1, talk) == 1
        assert sorted(owner.lines[1]) == ["from a program", "now", "to stderr"]
        assert await called(room, owner, 2, lambda: 2) == 2

    with_room(tmp_path, story)


def test_what_is_printed_first_is_the_task_s_in_whatever_order_descriptors_are_looked_at(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        task, raw, _ = calls_of(1, lambda: print("first"), ())
        room.give(task, raw)
        while not room._lanes:  # pyright: ignore[reportPrivateUsage]  # noqa: ASYNC110 — not a turn later
            await asyncio.sleep(0)
        cell = room._lanes[0]._cell  # pyright: ignore[reportPrivateUsage]
        pipe = cell._pipe  # pyright: ignore[reportPrivateUsage]
        assert select.select([pipe], [], [], DEADLINE_S)[0]  # the agent is busy until then
        cell.read_output()
        assert await owner.answer(1) == [None]
        assert owner.lines[1] == ["first"]

    with_room(tmp_path, story)


def test_a_function_that_closes_every_descriptor_is_answered_and_the_next_one_runs(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def close_all() -> int:
            os.closerange(0, 200)
            return 1

        assert await called(room, owner, 1, close_all) == 1
        assert await called(room, owner, 2, lambda: "on") == "on"

    with_room(tmp_path, story)


def test_a_function_that_forks_and_returns_twice_is_answered_once(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def twice() -> int:
            os.fork()
            return 1

        assert await called(room, owner, 1, twice) == 1
        assert await called(room, owner, 2, twice) == 1

    with_room(tmp_path, story)


def test_a_large_result_travels_and_its_memory_goes_back(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def large(n: int) -> Any:
            return np.full(n, 3.0)

        for number in (1, 2):
            answer = await called(room, owner, number, large, 5_000_000)
            assert answer.shape == (5_000_000,)
            assert (answer == 3.0).all()

    with_room(tmp_path, story)


def test_a_result_beyond_what_a_task_may_give_names_the_limit_and_the_next_one_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moregpu.worker.functions.room.MAX_RESULT_BYTES", 8 << 20)  # a sandbox's limit of files

    async def story(room: FunctionRoom, owner: Owner) -> None:
        failed = failure(await called(room, owner, 1, lambda size: bytes(size), 20 << 20), "memory")
        assert "takes 20 MiB" in failed.text and "may take 8 MiB" in failed.text and "isolate" in failed.text
        assert await called(room, owner, 2, lambda size: bytes(size), 4 << 20) == bytes(4 << 20)

    with_room(tmp_path, story)


def test_a_script_has_its_payload_and_leaves_its_result(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        text = "print('hello', payload)\nif __name__ == '__main__':\n    result = payload * 2\n"
        assert await called(room, owner, 1, text, 4) == 8
        assert owner.lines[1] == ["hello 4"]
        failure(await called(room, owner, 2, "import sys; sys.exit(3)", 4), "exited")

    with_room(tmp_path, story)


def test_two_calls_draw_other_numbers_and_another_attempt_draws_the_same(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def draw() -> float:
            import random

            return random.random() + float(np.random.random())

        task, raw, _ = calls_of(1, draw, (), ())
        room.give(task, raw)
        one, two = await owner.answer(1)
        assert one != two
        again, raw, _ = calls_of(2, draw, (), ())
        room.give(again, raw)
        assert await owner.answer(2) == [one, two]

    with_room(tmp_path, story)


def test_a_pause_stops_a_call_and_loses_nothing(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def count() -> int:
            made = 0
            stop = time.thread_time() + 0.3
            while time.thread_time() < stop:
                made += 1
            return made

        task, raw, _ = calls_of(1, count, (), limit_s=20.0)
        room.give(task, raw)
        await owner.until(lambda: owner.began == [1])
        room.set_duty(0.0)
        task, raw, _ = calls_of(2, count, ())
        room.give(task, raw)
        await asyncio.sleep(0.5)  # nothing may happen in it: there is nothing to wait for
        assert not owner.answers
        room.set_duty(0.5)
        assert (await owner.answer(1))[0] > 0
        assert (await owner.answer(2))[0] > 0

    with_room(tmp_path, story)
