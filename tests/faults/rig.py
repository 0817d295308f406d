"""Real processes with a network of ours between them: what the tests of faults do to a pool, and look for after."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import psutil
from moregpu_kernels.reference import expect

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import Access
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool
from moregpu.jobs import AttemptState, JobState, TaskState
from moregpu.wire.api import InviteRequest, JobView, TaskView
from moregpu.wire.invite import parse_invite
from tests.faults.proxy import Proxy

SLOWED = ("--ceiling", "0.1")
"""The owner's ceiling stretches tasks of milliseconds to something that can be hit in its middle."""

SIZE = 1024
DEADLINE_S = 90.0
"""Generous: other tests use the machine, too."""


class Rig:
    """A coordinator of its own, workers that reach it through `proxy`, and its admin, who does not."""

    def __init__(self, local: LoopbackPool, proxy: Proxy) -> None:
        self.local = local
        self.proxy = proxy
        self.pool = local.connect()

    def start_worker(self, name: str, *options: str, waits: bool = True) -> str:
        """A worker behind the proxy; returns its id once it is online."""
        known = (self.local.home / "state" / f"worker-{name}").exists()
        self.local.start_worker(name, *options, invite="" if known else self.invite(name))
        if not waits:
            return ""
        (worker,) = self.local.wait_for_workers(name)
        return worker.id

    def invite(self, owner: str) -> str:
        """An invite that leads through the proxy."""
        invite = parse_invite(self.pool.invite(InviteRequest(owner=owner)).line)
        return msgspec.structs.replace(invite, addresses=(self.proxy.address,)).line()

    def client(self) -> Pool:
        """A client behind the proxy."""
        access = self.local.access()
        return Pool(Access(addresses=(self.proxy.address,), token=access.token, pin=access.pin))

    def product(self, pool: Pool | None = None, seed: int = 1, size: int = SIZE) -> Product:
        """Submit a product that a slowed worker needs some time for."""
        rng = np.random.default_rng(seed)
        A, B = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
        return Product((pool or self.pool).kernel("matmul", A, B), A, B)

    def processes(self, worker: str) -> list[psutil.Process]:
        """A worker's supervisor, its agent, and its compute children, in this order."""
        supervisor = psutil.Process(self.local.workers[worker].pid)
        (agent,) = supervisor.children()
        return [supervisor, agent, *agent.children()]


class Product:
    """A job and what must come of it."""

    def __init__(self, handle: JobHandle, A: Any, B: Any) -> None:
        self.handle = handle
        self.A = A
        self.B = B

    def until_leased(self, worker: str = "") -> list[TaskView]:
        """Wait until somebody computes a task of it."""

        def leased() -> list[TaskView]:
            view = self.handle.status()
            assert view.state in (JobState.QUEUED, JobState.RUNNING), f"it ended too soon: {view.state} {view.error}"
            return [
                task
                for task in view.tasks or []
                if task.state is TaskState.LEASED
                and worker in ("", task.worker)
                and task.attempts[-1].state is AttemptState.STARTED
            ]

        return until(leased)

    def is_right_and_once(self) -> JobView:
        """It is done, right, checked and signed; every task was accepted once."""
        ratio = expect("matmul", {"a": self.A, "b": self.B}, {}, "float32").ratio(self.handle.result(DEADLINE_S))
        assert (ratio <= 1.0).all()
        view = self.handle.status()
        assert view.checked and view.signed
        tasks = view.tasks or []
        for task in tasks:
            assert [one.state for one in task.attempts].count(AttemptState.ACCEPTED) == 1
        assert sorted(grain for task in tasks for grain in range(*task.grains)) == list(range(view.grains))
        return view


def attempts(view: JobView) -> list[AttemptState]:
    """Of all tasks."""
    return [one.state for task in view.tasks or [] for one in task.attempts]


def until(condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """Wait for something that other processes bring about."""
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found
