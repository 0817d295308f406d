"""Simulated submitters: they send jobs, wait, cancel, vanish, hang up; and check every answer against the truth.

The decisions are those of `moregpu.client` (`Doors.call`, `JobHandle.wait`), whose own code blocks on sockets: a call
is repeated under one idempotency key while the coordinator does not answer, with the pauses of `moregpu.wire.retry`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from moregpu.blobs.format import seal
from moregpu.client.job import WAIT_S
from moregpu.coordinator.desk import PoolDesk
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.store.protocol import JobRow
from moregpu.errors import MoreGPUError, NotFound, OutOfSpace, TooManyRequests, Unavailable, Unreachable
from moregpu.jobs import JOB_ENDED, JobState, Tensor
from moregpu.wire.retry import delays
from moregpu.workloads import KernelSpec
from moregpu.workloads.arrays import as_array
from moregpu.workloads.function.spec import ARGUMENTS, FunctionSpec
from tests.simulation.calls import CALL, call_spec, names_of, wrong_results
from tests.simulation.loop import Entropy, Process
from tests.simulation.script import Work

if TYPE_CHECKING:
    from tests.simulation.history import History

T = TypeVar("T")


class Submitter:
    """Somebody with a token and a piece of work; each piece is a program of its own."""

    def __init__(self, history: History, number: int, work: Work) -> None:
        self.history = history
        self.number = number
        self.work = work
        self.who = Principal(id=f"t-{work.submitter}", role="submitter", label=work.submitter)
        self.random = random.Random(f"{history.script.seed} submitter {number}")
        self.process = Process(f"{work.submitter}{number}")
        self.entropy = Entropy(random.Random(f"{history.script.seed} submitter {number} entropy"))
        self.key = self.entropy(16).hex()
        self.job = ""
        self.told = asyncio.Event()
        self.cancelled = False
        self.row: JobRow | None = None
        """The job's end, as it was told."""
        self.over = False
        """It wants nothing more."""

    def start(self) -> None:
        self.history.loop.spawn(self.process, self.run())

    async def run(self) -> None:
        """The whole story of one piece of work."""
        await asyncio.sleep(self.work.at)
        arrays = self.arrays()
        spec = await self.spec(arrays)
        if spec is None:
            self.over = True
            return
        if self.work.then == "vanish":
            self.history.loop.call_later(self.work.later_s, self.vanish, context=self.history.nobody())
        if self.work.then == "cancel":
            self.history.loop.create_task(self.cancel())
        if self.work.twice:
            self.history.loop.create_task(self.submit(spec))
        row = await self.submit(spec)
        while row.state not in JOB_ENDED:
            row = await self.repeated(lambda desk: desk.wait(self.job, WAIT_S))
        self.row, self.over = row, True
        self.verify(row, spec, arrays)

    def vanish(self) -> None:
        """The program ends without a word."""
        self.history.trace(f"{self.process.name} vanishes")
        self.over = True
        self.history.loop.kill(self.process)

    # -- calls

    async def submit(self, spec: KernelSpec | FunctionSpec) -> JobRow:
        if self.work.then == "hang up":
            # Its first request is broken off, whatever has become of it by then.
            try:
                async with asyncio.timeout(self.work.later_s):
                    await self.call(lambda desk: desk.submit(self.who, spec, self.key, self.work.wait_s))
            except (TimeoutError, MoreGPUError):
                pass
        row = await self.repeated(lambda desk: desk.submit(self.who, spec, self.key, self.work.wait_s))
        if self.job and row.id != self.job:
            self.history.watch.broken(f"1: one idempotency key gave {self.job} and {row.id}")
        self.job = row.id
        self.told.set()
        return row

    async def cancel(self) -> None:
        """End the job once its name is known; or not, if it ended before."""
        await asyncio.sleep(self.work.later_s)
        await self.told.wait()
        self.cancelled = True
        row = await self.repeated(lambda desk: desk.cancel(self.who, self.job))
        if row.state not in JOB_ENDED:
            self.history.watch.broken(f"1: {row.id} was cancelled and is {row.state}")

    async def repeated(self, work: Callable[[PoolDesk], Awaitable[T]]) -> T:
        """As `Doors.call`: again while nobody answers. A person's patience has no end here."""
        pauses = delays(0.05, 2.0, self.random.uniform)
        while True:
            try:
                return await self.call(work)
            except (Unreachable, Unavailable, TooManyRequests, OutOfSpace):
                await asyncio.sleep(next(pauses))

    def call(self, work: Callable[[PoolDesk], Awaitable[T]]) -> Awaitable[T]:
        lossy = self.history.loop.now < self.history.lossy_until.get(self.work.submitter, 0.0)
        return self.history.coordinator.call(self.random, work, lossy=lossy)

    # -- data

    def arrays(self) -> dict[str, Any]:
        """The inputs, made from the seed."""
        rng = np.random.default_rng([self.history.script.seed, self.number])
        size, operation = self.work.size, self.work.operation
        if self.work.data == "made":
            return {}
        if operation == CALL:
            return {ARGUMENTS: np.frombuffer(b"".join(names_of(self.work, self.number)), "uint8")}
        if operation == "matmul":
            shapes = {"a": (size, 24), "b": (24, size)}
        elif operation == "softmax":
            shapes = {"a": (size, 16)}
        elif operation in ("scale", "relu"):
            shapes = {"a": (size,)}
        else:
            shapes = {"a": (size,), "b": (size,)}
        return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}

    async def spec(self, arrays: dict[str, Any]) -> KernelSpec | FunctionSpec | None:
        """The job; None when the one it is to follow never came to be."""
        work = self.work
        after: tuple[str, ...] = ()
        if work.after is not None:
            earlier = self.history.submitters[work.after]
            while not earlier.job:
                if earlier.over:
                    return None
                await asyncio.sleep(0.5)
            after = (earlier.job,)
        inputs: dict[str, Tensor] = {}
        for name, array in arrays.items():
            data: Any = array.tobytes()
            if work.data == "blob":
                data, sealed = seal(memoryview(data), entropy=self.entropy)
                await self.repeated(lambda desk, sealed=sealed: self.history.coordinator.upload(self.who.id, sealed))
            inputs[name] = Tensor(dtype=str(array.dtype), shape=array.shape, data=data)
        fields: dict[str, Any] = {
            "check": work.check,
            "after": after,
            "priority": work.priority,
            "group": "lab" if work.lab else None,
        }
        if work.operation == CALL:
            return call_spec(work, inputs[ARGUMENTS], self.number, **fields)
        fields |= {
            "operation": work.operation,
            "inputs": inputs,
            "scalar": 1.5,
        }
        if work.data == "made":
            fields |= {"size": work.size, "seed": self.number}
        return KernelSpec(**fields)

    # -- the truth

    def verify(self, row: JobRow, spec: KernelSpec | FunctionSpec, arrays: dict[str, Any]) -> None:
        """What was told of the job's end is so, and right."""
        watch, history = self.history.watch, self.history
        if row.state is JobState.CANCELLED and not self.cancelled:
            watch.broken(f"1: {row.id} is cancelled, and nobody did that")
        if row.state is JobState.FAILED and not (history.unruly or spec.after or self.work.once):
            watch.broken(f"1: {row.id} failed in a pool of honest workers: {row.error and row.error.detail}")
        if row.state is not JobState.DONE or row.result is None or row.purged or self.work.data == "made":
            return
        made_here = isinstance(spec, KernelSpec)  # who hands in other results than were computed takes no calls
        if made_here and (
            (spec.check == "none" and history.unruly) or (spec.check == "agree" and history.may_collude)
        ):  # fmt: skip
            return
        if isinstance(spec, FunctionSpec):
            self.verify_calls(row.id, row.result.outputs)
            return
        try:
            tensor = row.result.outputs["out"]
            found = as_array(history.coordinator.plain(tensor), tensor.dtype, tensor.shape)
        except (MoreGPUError, KeyError) as error:
            if isinstance(error, NotFound) and history.coordinator.drive.rows.job(row.id).purged:
                return
            watch.broken(f"6: the result of {row.id} cannot be opened: {error!r}")
            return
        expected = _expected(self.work.operation, arrays)
        if found.shape != expected.shape or not np.all(np.abs(found - expected) <= 1e-4 * (1.0 + np.abs(expected))):
            watch.broken(f"the result of {row.id} is wrong")

    def verify_calls(self, job: str, outputs: dict[str, Tensor]) -> None:
        """Each call has the result of its own."""
        try:
            wrong = wrong_results(self.history, self.work, self.number, outputs)
        except MoreGPUError as error:
            if isinstance(error, NotFound) and self.history.coordinator.drive.rows.job(job).purged:
                return
            wrong = f"cannot be opened: {error!r}"
        if wrong:
            self.history.watch.broken(f"the result of {job}: its records {wrong}")


def _expected(operation: str, arrays: dict[str, Any]) -> Any:
    wide = {name: array.astype("float64") for name, array in arrays.items()}
    a, b = wide["a"], wide.get("b")
    match operation:
        case "vector_add":
            return a + b
        case "vector_mul":
            return a * b
        case "saxpy":
            return 1.5 * a + b
        case "scale":
            return 1.5 * a
        case "relu":
            return np.maximum(a, 0.0)
        case "softmax":
            power = np.exp(a - a.max(axis=-1, keepdims=True))
            return power / power.sum(axis=-1, keepdims=True)
        case _:
            return a @ b
