"""How far a job is, and its parts as they come: what a link tells beside the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import groupby

from moregpu.coordinator.api.services import Services
from moregpu.coordinator.store.protocol import JobRow, TaskRow
from moregpu.jobs import JOB_ENDED, TaskState
from moregpu.wire.api import Event
from moregpu.wire.link import Part, Printed, Progress
from moregpu.workloads import workload

EVERY_S = 0.2
"""Progress and parts are told at most so often."""

PARTS_S = 0.01
"""Of a job with few tasks, its parts: whoever waits for one of them may have nothing else to do."""

FEW = 200

LINES_TOLD = 50
"""In one message, which is bounded like each of its lines."""


class Follower:
    """Follows jobs of one connection."""

    def __init__(self, services: Services):
        self._store = services.desk.store
        self._printed = services.desk.printed

    async def follow(
        self, id: int, job: str, *, progress: bool, parts: bool, output: bool = False
    ) -> AsyncGenerator[Progress | Part | Printed]:
        """News of a job until it has ended: what changed since the last look, five times a second at most."""
        moved = asyncio.Event()

        def committed(events: list[Event]) -> None:
            if any(event.id == job for event in events):
                moved.set()

        unsubscribe = self._store.subscribe(committed)
        quiet = self._printed.listen(job, moved.set) if output else unsubscribe
        told: set[str] = set()
        line = 0
        shown: tuple[int, str] | None = None
        try:
            while True:
                moved.clear()
                row = await self._store.job(job)
                if row is None:
                    return
                if output:
                    printed, line = self.printed(id, job, line)
                    for lines in printed:
                        yield lines
                if progress and (row.grains_done, row.state.value) != shown:
                    shown = (row.grains_done, row.state.value)
                    yield Progress(id=id, state=row.state, grains=row.plan.grains, grains_done=row.grains_done)
                if parts:
                    for task in await self._store.tasks(job):
                        if task.state is TaskState.DONE and task.id not in told:
                            told.add(task.id)
                            if task.outputs:
                                yield part_of(id, row, task)
                if row.state in JOB_ENDED:
                    return
                await moved.wait()
                await asyncio.sleep(PARTS_S if (parts or output) and row.tasks_total <= FEW else EVERY_S)
        finally:
            unsubscribe()
            quiet()

    def printed(self, id: int, job: str, start: int) -> tuple[list[Printed], int]:
        """What a job printed from line `start` on, and the number of the line after that."""
        lines = self._printed.after(job, start)
        told: list[Printed] = []
        for (task, worker), group in groupby(lines, key=lambda line: (line.task, line.worker)):
            texts = [line.text for line in group]
            for place in range(0, len(texts), LINES_TOLD):
                told.append(Printed(id=id, lines=texts[place : place + LINES_TOLD], task=task, worker=worker))
        return told, lines[-1].number + 1 if lines else start


def part_of(id: int, job: JobRow, task: TaskRow) -> Part:
    """A task's outputs with their place among the job's."""
    return Part(
        id=id,
        task=task.id,
        grains=task.spec.grains,
        outputs=task.outputs,
        places=workload(job.kind).place(job.plan, task.spec),
        worker=task.worker or "",
        attempt=task.attempts[-1].number if task.attempts else 0,
    )
