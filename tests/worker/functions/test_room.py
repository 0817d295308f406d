"""A room of functions under bubblewrap: calls are answered, whatever they do to their process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moregpu.worker.functions.room import FunctionRoom
from tests.worker.functions.rooms import Owner, called, calls_of, with_room


def test_a_call_returns_what_the_function_returns(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        def double(x: Any) -> Any:
            return {"twice": (2 * x, str(x)), 3: [x]}

        assert await called(room, owner, 1, double, 21) == {"twice": (42, "21"), 3: [21]}

    with_room(tmp_path, story)


def test_many_calls_are_one_task_and_keep_their_order(tmp_path: Path) -> None:
    async def story(room: FunctionRoom, owner: Owner) -> None:
        task, raw, _ = calls_of(1, lambda x: x * x, *((n,) for n in range(500)))
        room.give(task, raw)
        assert await owner.answer(1) == [n * n for n in range(500)]

    with_room(tmp_path, story)
