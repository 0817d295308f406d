"""Light workers: the real session, channel, signatures and sockets, without processes, cache or compute child.

They answer tiny tasks by the real engine in place, so a coordinator cannot tell them from others. `python -m
benchmarks.light ADDRESS COUNT < invite` runs that many in one process and tells about them, a line of JSON a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from moregpu.errors import MoreGPUError
from moregpu.jobs import Tensor
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.invite import Invite, parse_invite
from moregpu.wire.messages import Assignment, Device, LeaseRef, Limits, TaskError
from moregpu.wire.statement import Ran, content_digest, described, statement_of
from moregpu.worker.link import Link
from moregpu.worker.session import Identity, Run, Settled, WorkerSession, is_tiny
from moregpu.workloads import workload
from moregpu.workloads.protocol import Cost, TaskSpec

DRIVER = "light"
CORES = 1
WINDOW_S = 10.0
"""Round trips of the last so many seconds are told."""

AT_ONCE = 24
"""Handshakes of one process at a time: the coordinator serves 64 unconfirmed ones."""


class LightWorker:
    """One worker's session over its own connection; comes back when the connection ends, as the agent does."""

    def __init__(self, address: str, invite: Invite, name: str, seed: int):
        self.session = WorkerSession(
            WorkerKeys.generate(),
            Identity(
                pool=invite.pool_id,
                name=name,
                boot=os.urandom(16),
                devices=(Device(id="cpu", kind="cpu", name=DRIVER, memory_bytes=1 << 30, cores=CORES),),
                kinds=("kernel",),
            ),
            Limits(),
            Random(seed),
        )
        self.session.invite = (invite.invite_id, invite.secret)
        self.session.set_duty({"cpu": 1.0}, "", time.monotonic())
        self.accepted = 0
        self.round_trips: deque[tuple[float, float]] = deque(maxlen=64)
        """(when, seconds) of heartbeats."""
        self.welcomed_at = 0.0
        self._address = address
        self._cs_pub = invite.cs_pub
        self._wake = asyncio.Event()
        self._broken = False

    async def run(self, gate: asyncio.Semaphore) -> None:
        """Until cancelled."""
        while True:
            try:
                async with gate:
                    link = await Link.open(self._address, self.session.keys, self._cs_pub, self.session.identity.pool)
                await self._serve(link)
            except MoreGPUError:
                pass
            self.session.closed()
            self.welcomed_at = 0.0
            await asyncio.sleep(self.session.retry_s())

    async def _serve(self, link: Link) -> None:
        self.session.opened(link.h, link.leaf, time.monotonic())

        def hear(record: bytes | str) -> None:
            try:
                now = time.monotonic()
                for message in link.opened(record):
                    self._receive(message, now)
                link.send(self.session.outgoing(time.monotonic()))
            except MoreGPUError:
                self._broken = True
            self._wake.set()

        self._broken = False
        link.listen(hear, self._wake.set)
        ended = asyncio.create_task(link.closed())
        try:
            while not ended.done() and not self._broken:
                now = time.monotonic()
                if not link.is_full:
                    link.send(self.session.outgoing(now))
                waiting = asyncio.create_task(self._wake.wait())
                await asyncio.wait(
                    {ended, waiting}, timeout=self.session.due(now) - now, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
                self._wake.clear()
        finally:
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError, MoreGPUError):
                await ended
            await link.close()

    def _receive(self, message: Any, now: float) -> None:
        before = self.session.round_trip_s
        for action in self.session.receive(message, now):
            if isinstance(action, Run):
                self._compute(action.assignment)
            elif isinstance(action, Settled):
                self.accepted += action.verdict == "accepted"
        if self.session.round_trip_s != before:
            self.round_trips.append((now, self.session.round_trip_s))
        if self.session.member and not self.welcomed_at:
            self.welcomed_at = time.time()

    def _compute(self, given: Assignment) -> None:
        ref = LeaseRef(task=given.task, attempt=given.attempt, token=given.token)
        now = time.monotonic()
        self.session.begun(ref, now)
        if not is_tiny(given) or not given.inputs:  # measurements make large arrays; a light worker lets them go
            self.session.failed(ref, TaskError(code="engine-error", message="too large for a light worker"), now)
            return
        outputs = _outputs(given)
        statement = statement_of(
            given,
            pool=self.session.identity.pool,
            worker=self.session.keys.worker_id,
            inputs=_described(given, given.inputs),
            outputs=_described(given, outputs),
            ran=Ran(device="cpu", driver=DRIVER, duty=1.0, seconds=0.0),
        )
        self.session.finished(ref, statement, outputs, now)


def _described(given: Assignment, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {
        name: described(tensor, content_digest(given.digest_key, tensor.dtype, tensor.part_shape, bytes(tensor.data)))
        for name, tensor in tensors.items()
        if isinstance(tensor.data, bytes)
    }


def _outputs(given: Assignment) -> dict[str, Tensor]:
    """What the task is about; a task of zeros (no work) is known to give zeros."""
    if given.program == b"relu" and not any(any(bytes(each.data)) for each in given.inputs.values()):  # type: ignore[arg-type]
        values = {name: bytes(4 * _count(planned.shape)) for name, planned in given.outputs.items()}
    else:
        values = _run(given)
    return {
        name: Tensor(dtype=planned.dtype, shape=planned.shape, data=values[name])
        for name, planned in given.outputs.items()
    }


def _run(given: Assignment) -> dict[str, bytes]:
    import numpy as np

    from moregpu.worker.engines.numpy_engine import NumpyEngine

    task = TaskSpec(
        kind=given.kind,
        program=given.program,
        parameters=given.parameters,
        precision=given.precision,
        grains=(0, 1),
        inputs=given.inputs,
        outputs=given.outputs,
        cost=Cost(),
        seed=given.seed,
    )
    arrays = {
        name: np.frombuffer(bytes(tensor.data), "<f4").reshape(tensor.part_shape)  # type: ignore[arg-type]
        for name, tensor in given.inputs.items()
    }
    found = workload(given.kind).run(task, arrays, NumpyEngine(), _NoRest())
    return {name: np.ascontiguousarray(array).tobytes() for name, array in found.items()}


class _NoRest:
    """A slicer that never pauses."""

    slice_s = 0.05

    def pause_point(self, share_done: float | None = None) -> None:
        """Go on."""


def _count(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


async def run_many(address: str, invite: Invite, count: int, seed: int) -> None:
    """Run them, and say how they are once a second on standard output, until standard input closes."""
    gate = asyncio.Semaphore(AT_ONCE)
    workers = [LightWorker(address, invite, f"light-{seed}-{number}", seed + number) for number in range(count)]
    tasks = [asyncio.create_task(worker.run(gate)) for worker in workers]
    while True:
        await asyncio.sleep(0.25 if count < 100 else 1.0)
        since = time.monotonic() - WINDOW_S
        trips = [trip for worker in workers for at, trip in worker.round_trips if at > since]
        said = {
            "online": sum(worker.session.member for worker in workers),
            "accepted": sum(worker.accepted for worker in workers),
            "last_welcome": max((worker.welcomed_at for worker in workers), default=0.0),
            "trips": len(trips),
            "p99_s": percentile(trips, 0.99),
            "at": time.time(),
        }
        try:
            print(json.dumps(said), flush=True)
        except BrokenPipeError:
            break
    for task in tasks:
        task.cancel()


def main() -> None:
    """Command line."""
    address, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    invite = parse_invite(sys.stdin.readline())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 200)), hard))
    runner = asyncio.Runner(loop_factory=_loop)
    with runner:
        runner.run(run_many(address, invite, count, seed))


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    main()
