"""A room whose function has left a process behind and works on: `lonely.py LEVEL FOLDER`, to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from moregpu.worker.functions.room import FunctionRoom
from moregpu.worker.sandbox.level import Level, whose
from tests.worker.functions.rooms import Owner, called, calls_of, with_room
from tests.worker.sandbox.hostile import LEFT, leave_a_process_behind


def main(level: str, folder: Path) -> None:
    """Say the leftover's name once it is there, and work on for as long as the test lets it."""

    async def story(room: FunctionRoom, owner: Owner) -> None:
        await called(room, owner, 1, leave_a_process_behind, LEFT)

        def loop() -> None:
            while True:
                pass

        task, raw, region = calls_of(2, loop, ())
        room.give(task, raw, region)
        await owner.until(lambda: 2 in owner.began)
        print(LEFT, flush=True)
        await owner.answer(2)

    with_room(folder, story, level=Level(isolation=level, why=(), who=whose()))  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
