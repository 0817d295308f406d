"""Values that many tasks read: each child opens one once, and none can change it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from moregpu.client.functions.shared import Shared
from moregpu.encoding import encode, joined
from moregpu.worker.functions.room import FunctionRoom
from moregpu.worker.memory import Region
from tests.worker.functions.rooms import Owner, calls_of, with_room

NAME = "d" * 64


def _use(value: Any, factor: int) -> tuple[float, int]:
    value *= 1.0  # it is the function's own
    return float(value.sum()) * factor, id(value)


def _vandal(value: Any) -> list[str]:
    """Try to write to what was passed."""
    import mmap

    del value
    got: list[str] = []
    for number in range(3, 200):
        try:
            size = os.fstat(number).st_size
            os.ftruncate(number, size)
            mmap.mmap(number, size or 1)
        except (OSError, ValueError):
            continue
        got.append(os.readlink(f"/proc/self/fd/{number}"))
    with open("/proc/self/maps") as maps:
        got += [line for line in maps if "memfd:moregpu" in line and line.split()[1].startswith("rw")]
    return [each for each in got if "results" not in each]


def test_a_shared_value_is_opened_once_a_child_and_by_nobody_changed(tmp_path: Path) -> None:
    content = joined(encode(np.ones(100_000)))
    region = Region(7001, len(content))
    region.view(0, len(content))[:] = content
    region.seal()

    async def story(room: FunctionRoom, owner: Owner) -> None:
        async def ask(number: int, function: Any, *more: Any) -> Any:
            task, raw, _ = calls_of(number, function, (Shared(NAME), *more), shared={NAME: 0})
            place = msgspec.structs.replace(
                task.inputs[f"shared/{NAME}"], start=0, size_bytes=len(content), resident=region.number
            )
            inputs = {**task.inputs, f"shared/{NAME}": place}
            room.give(msgspec.structs.replace(task, inputs=inputs), raw, residents=[region])
            return (await owner.answer(number))[0]

        one, two = await ask(1, _use, 1), await ask(2, _use, 2)
        assert (one[0], two[0]) == (100_000.0, 200_000.0)
        assert one[1] == two[1]
        assert await ask(3, _vandal) == []
        assert bytes(region.view(0, len(content))) == content

    with_room(tmp_path, story)
