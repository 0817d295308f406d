"""Light workers: the real session, channel, signatures and sockets, without processes, cache or compute child.

They answer tiny tasks by the real engine in place, and calls of functions, which nobody can check, by `None`: so a
coordinator cannot tell them from others. `python -m benchmarks.light ADDRESS COUNT SEED INVITES < invites` runs that
many in one process and tells about them, a line of JSON a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from benchmarks.lean import LeanLink, Prepared
from moregpu.encoding import encode
from moregpu.encoding.records import Status, record
from moregpu.errors import MoreGPUError
from moregpu.jobs import Tensor
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.invite import Invite, parse_invite
from moregpu.wire.messages import Assignment, Device, FromCoordinator, LeaseRef, Limits, TaskError
from moregpu.wire.statement import Ran, content_digest, described, statement_of
from moregpu.worker.decisions import Run, Settled
from moregpu.worker.leases import is_tiny
from moregpu.worker.session import Identity, WorkerSession
from moregpu.workloads import workload
from moregpu.workloads.function.spec import RESULTS, CallPlan
from moregpu.workloads.protocol import Cost, TaskSpec

DRIVER = "light"
CORES = 1
WINDOW_S = 10.0
"""Round trips of the last so many seconds are told."""

OPEN_S = 10.0
LEAST_WAIT_S = 0.02

NO_VALUE = b"".join(record(Status.VALUE, encode(None)))
"""The record of a call that gave `None`."""

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
                kinds=("kernel", "function"),
                consent={"function": ["*"]},
                isolation="sandbox",
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
        self._prepared: Prepared | None = None
        self._link: LeanLink | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()

    async def run(self, gate: asyncio.Semaphore) -> None:
        """Until cancelled."""
        host, _, port = self._address.rpartition(":")
        while True:
            try:
                async with gate, asyncio.timeout(OPEN_S):
                    link = LeanLink(self._address, self._ready(), self._hear, self._lost.set)
                    await asyncio.get_running_loop().create_connection(lambda link=link: link, host, int(port))
                    await link.opened
                await self._serve(link)
            except (MoreGPUError, OSError):
                pass
            self.session.closed()
            self.welcomed_at = 0.0
            self._ready()  # now, while there is nothing else to do
            await asyncio.sleep(self.session.retry_s())

    def _ready(self) -> Prepared:
        """A handshake that has not been used."""
        if self._prepared is None or self._prepared.channel.established or self._prepared.channel.dead:
            self._prepared = Prepared(self.session.keys, self._cs_pub, self.session.identity.pool)
        return self._prepared

    async def _serve(self, link: LeanLink) -> None:
        """From the handshake to the end; in between nothing of this runs, only `_hear` and the timer."""
        self._lost.clear()
        self._link = link
        self.session.opened(link.channel.h, link.leaf, time.monotonic())
        try:
            self._say()
            await self._lost.wait()
        finally:
            self._link = None
            if self._timer is not None:
                self._timer.cancel()
            link.close()

    def _hear(self, message: FromCoordinator) -> None:
        self._receive(message, time.monotonic())
        self._say()

    def _say(self) -> None:
        """Send what is due, and come back when the next is."""
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            now = time.monotonic()
            self._link.send(self.session.outgoing(now))
            wait_s = max(LEAST_WAIT_S, self.session.due(now) - now)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._say)

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
    """What the task is about; a task of zeros (no work) is known to give zeros, and a call is taken to give `None`."""
    if given.kind == "function":
        calls = msgspec.msgpack.decode(given.parameters, type=CallPlan).calls
        data = NO_VALUE * len(calls)
        return {RESULTS: Tensor(dtype="uint8", shape=(len(data),), data=data)}
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


async def run_many(address: str, invites: Sequence[Invite], count: int, seed: int) -> None:
    """Run them, and say how they are once a second on standard output, until nobody reads it."""
    gate = asyncio.Semaphore(AT_ONCE)
    workers = [
        LightWorker(address, invites[number % len(invites)], f"light-{seed}-{number}", seed + number)
        for number in range(count)
    ]
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
    invites = [parse_invite(sys.stdin.readline()) for _ in range(int(sys.argv[4]))]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 200)), hard))
    runner = asyncio.Runner(loop_factory=_loop)
    with runner:
        runner.run(run_many(address, invites, count, seed))


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    main()
