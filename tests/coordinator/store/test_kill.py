"""SIGKILL of a process that writes: every row that was told is there, the chain holds, nothing counts twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from moregpu.coordinator.ledger import verify
from moregpu.coordinator.store.sqlite import SqliteStore
from moregpu.jobs import JobState, TaskState
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import WRAP_KEY

WRITER = """
    import asyncio, sys
    from pathlib import Path
    from moregpu.coordinator.store.sqlite import SqliteStore
    from tests.coordinator.store import rows
    from tests.coordinator.store.conftest import WRAP_KEY

    def say(*words):  # told to the outside, which survives us
        sys.stdout.write(" ".join(map(str, words)) + "\\n")
        sys.stdout.flush()

    async def stream(store, clock, name):
        worker = rows.worker(name)
        while True:
            key = f"{clock.epoch}/{next(rows._births)}"
            job = await store.add_job(rows.job(submitter=name, grains=4, key=key, at=clock.epoch))
            say("job", job.id)
            mine = lambda candidates, worker, slots, now: [
                choice for choice in rows.one_by_one(candidates, worker, 10_000, now) if choice.job == job.id
            ]
            leases = await store.lease(worker, 64, mine, clock.now, clock.epoch)
            ended = [rows.accepted(lease, index) for index, lease in enumerate(leases)]
            assert len(leases) == 4, leases
            for answer in await store.complete(name, ended, rows.batch(name, *leases), clock.epoch):
                assert answer.verdict == "accepted", answer
                say("task", answer.ref.task, answer.ledger[1], answer.ledger[2].hex())
            await store.finish(job.id, result=rows.manifest(), error=None, combining_s=0.0, wall=clock.epoch)
            say("done", job.id)

    async def main():
        clock = rows.TestClock()
        clock.epoch += float(sys.argv[2])
        store = SqliteStore(Path(sys.argv[1]), WRAP_KEY, clock)
        await store.open(clock.now)
        say("open")
        await asyncio.gather(*(stream(store, clock, f"w-{number}") for number in range(4)))

    asyncio.run(main())
"""


def killed_run(path: Path, start_s: float, rng: random.Random) -> list[list[str]]:
    """Run the writer, kill it in the middle, and give back what it told."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(start_s)],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert process.stdout is not None
    told: list[list[str]] = []
    enough = rng.randrange(40, 400)
    deadline = time.monotonic() + 60
    for line in process.stdout:
        told.append(line.split())
        if len(told) == enough:
            process.send_signal(signal.SIGKILL)  # what it wrote until it died is still in the pipe
        assert time.monotonic() < deadline
    process.wait(timeout=30)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    return [words for words in told if words and (len(words) == 1 or words[0] != "task" or len(words) == 4)]


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.acceptance)])
@pytest.mark.timeout(900)
def test_no_row_that_was_told_is_lost_by_kill_9(tmp_path: Path, kills: int) -> None:
    path, rng = tmp_path / "pool.db", random.Random(7)
    told: list[list[str]] = []
    for number in range(kills):
        told += killed_run(path, number * 1000.0, rng)[:-1]  # the last line may be cut
        if number % max(1, kills // 10) == 0 or number == kills - 1:
            asyncio.run(everything_told_is_there(path, told))


async def everything_told_is_there(path: Path, told: list[list[str]]) -> None:
    clock = rows.TestClock()
    store = SqliteStore(path, WRAP_KEY, clock)
    await store.open(clock.now)
    ledger = {}
    after = 0
    while page := await store.ledger(after=after):
        ledger.update({row.row: row for row in page})
        after = page[-1].row
    assert sorted(ledger) == list(range(1, len(ledger) + 1))
    assert len({row.task for row in ledger.values()}) == len(ledger)  # nothing accepted twice
    for words in told:
        if words[0] == "job":
            assert await store.job(words[1]) is not None
        elif words[0] == "done":
            job = await store.job(words[1])
            assert job is not None
            assert job.state is JobState.DONE
        elif words[0] == "task":
            row = ledger[int(words[2])]
            assert (row.task, row.hash.hex()) == (words[1], words[3])
    writer = (await store.ledger_head())[0]
    batches = await store.batches(writer, sorted({row.batch for row in ledger.values()}))
    problems = verify(list(ledger.values()), batches, [], pool=bytes(16), ci_pub=bytes(32), keys={})
    assert [each for each in problems if "signature over" not in each] == []
    for job in await store.jobs(limit=100_000):
        tasks = [task for task in await store.tasks(job.id) if task.state is TaskState.DONE]
        assert job.tasks_done == len(tasks)
    await store.close()
