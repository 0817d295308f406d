"""Submitters that never rest, and a book of what the pool told them: whatever is killed, all of it must stay true."""

from __future__ import annotations

import threading
import time
from hashlib import sha256
from secrets import token_hex
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from moregpu_kernels.reference import expect

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool
from moregpu.client.programs import Step
from moregpu.errors import Unavailable, Unreachable
from moregpu.jobs import AttemptState, JobState

PATIENCE_S = 300.0
"""A wait that takes longer is a finding: kills are seconds apart."""

PAUSE_S = 0.2
"""Between two jobs of a submitter, so that the checks of hundreds of kills see thousands of jobs, not more."""


class Told(NamedTuple):
    """What a submitter was told of the end of a job."""

    digest: str
    """Of the output that they got."""
    tasks: int


class Load:
    """Some threads that submit, wait and compare. Use it as a context manager; leaving it ends them in good order."""

    def __init__(self, local: LoopbackPool, submitters: int = 3) -> None:
        self.submitted: dict[str, None] = {}
        """Jobs whose submission was answered, in that order."""
        self.ended: dict[str, Told] = {}
        """Jobs whose result was delivered."""
        self.problems: list[BaseException] = []
        self._access = local.access()
        self._checked: set[str] = set()
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._submit, args=(number,), daemon=True) for number in range(submitters)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """No more jobs; those that were begun are waited for."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a submitter waits for ever"

    def wait_for(self, jobs: int) -> None:
        """Until so many more jobs ended."""
        wanted = len(self.ended) + jobs
        with self._changed:
            assert self._changed.wait_for(lambda: self.problems or len(self.ended) >= wanted, PATIENCE_S), "no progress"
        self.raise_problems()

    def raise_problems(self) -> None:
        """What went wrong in a submitter goes wrong here."""
        if self.problems:
            raise self.problems[0]

    def check(self, pool: Pool) -> None:
        """What was told since the last check still holds: nothing is lost, nothing was accepted twice."""
        self.raise_problems()
        jobs = [job for job in list(self.submitted) if job not in self._checked]
        ended = dict(self.ended)
        for job in jobs:
            handle = pool.job(job)  # raises NotFound for a job that was told and is gone
            if job in ended:
                check_end(handle, ended[job])
                self._checked.add(job)

    def check_all(self, pool: Pool) -> None:
        """The same for everything that was ever told."""
        self._checked.clear()
        assert set(self.submitted) == set(self.ended)
        self.check(pool)
        listed = {view.id for view in pool.jobs(limit=1_000_000)}
        assert listed == set(self.submitted), "a job was lost, or exists twice under one key"

    # -- a submitter

    def _submit(self, number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            with Pool(self._access) as pool:
                while not self._stopping.wait(PAUSE_S):
                    self._one(pool, rng)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            with self._changed:
                self.problems.append(error)
                self._changed.notify_all()

    def _one(self, pool: Pool, rng: np.random.Generator) -> None:
        size = int(rng.choice((4, 64, 500)))
        A, B = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
        handle = self._sent(pool, A, B)
        self.submitted[handle.id] = None
        result = handle.result(PATIENCE_S)
        assert (expect("matmul", {"a": A, "b": B}, {}, "float32").ratio(result) <= 1.0).all()
        view = handle.status()
        with self._changed:
            self.ended[handle.id] = Told(digest_of(result), view.tasks_total)
            self._changed.notify_all()

    def _sent(self, pool: Pool, A: Any, B: Any) -> JobHandle:
        """Submit, under one key, until somebody answers."""
        spec, key = pool._kernel_spec(Step("matmul", {"a": A, "b": B}, 1.0, {})), token_hex(16)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return pool.submit_job(spec, idempotency_key=key)
            except (Unreachable, Unavailable):
                assert time.monotonic() < until, "no answer to a submission"
                time.sleep(0.1)


def digest_of(result: Any) -> str:
    return sha256(np.ascontiguousarray(result)).hexdigest()


def check_end(handle: JobHandle, told: Told) -> None:
    """A job that ended once is as it was told: done, checked, signed, each task accepted once, the same output."""
    view = handle.status()
    assert view.state is JobState.DONE and view.checked and view.signed, view
    assert view.tasks_total == told.tasks
    for task in view.tasks or []:
        assert [one.state for one in task.attempts].count(AttemptState.ACCEPTED) == 1, task
    assert sorted(grain for task in view.tasks or [] for grain in range(*task.grains)) == list(range(view.grains))
    assert len(handle.statements()) == told.tasks
    assert digest_of(handle.result(PATIENCE_S)) == told.digest
