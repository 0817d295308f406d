"""Workers to test a coordinator with: an honest one that computes for real, and five that lie.

They speak the true protocol with true keys over any socket that looks like the coordinator's (`WorkerSocket`): real
Noise, real signatures, the real workload on the real CPU engine. A rogue differs from the honest worker in one method.
These are tools, not tests: `ROGUES` lists them by name, for tests of every layer and for trying a pool by hand.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np

from moregpu.blobs.format import open_range, seal
from moregpu.blobs.local import BlobFiles
from moregpu.blobs.regions import read_part
from moregpu.coordinator.protocol import WorkerSocket
from moregpu.jobs import Blob, Tensor
from moregpu.wire.identity import PoolKeys, WorkerKeys
from moregpu.wire.messages import (
    MAX_INLINE_BYTES,
    Acknowledged,
    Assign,
    Assignment,
    Bye,
    Cancel,
    Device,
    FromCoordinator,
    Heartbeat,
    Hello,
    LeaseRef,
    Limits,
    Policy,
    Pulse,
    Reject,
    Result,
    ResultEntry,
    Verdict,
    Welcome,
)
from moregpu.wire.session import Channel, pack_result
from moregpu.wire.statement import Ran, batch_message, content_digest, described, digest, statement_of
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.workloads import workload
from moregpu.workloads.arrays import as_array, as_bytes
from moregpu.workloads.protocol import Cost, TaskSpec

CPU = Device(id="cpu", kind="cpu", name="test CPU", driver="1", engine="numpy", memory_bytes=1 << 32, cores=1)


class Unthrottled:
    """A slicer that never waits."""

    slice_s = 0.05

    def pause_point(self, share_done: float | None = None) -> None:
        pass


class HonestWorker:
    """One worker process: keys and boot id last, connections come and go (`run` once for each)."""

    def __init__(
        self,
        pool: PoolKeys,
        blobs: BlobFiles,
        name: str = "honest",
        keys: WorkerKeys | None = None,
        invite: tuple[str, bytes] | None = None,
    ) -> None:
        self.pool = pool
        self.blobs = blobs
        self.name = name
        self.keys = keys or WorkerKeys.generate()
        self.boot = os.urandom(16)
        self.invite = invite
        self.devices = [CPU]
        self.engine = NumpyEngine()
        self.welcome: Welcome | None = None
        self.rejected: Reject | None = None
        self.policy: Policy | None = None
        self.assigned: list[Assignment] = []
        self.cancelled: list[LeaseRef] = []
        self.verdicts: list[Verdict] = []
        self.pulses: list[Pulse] = []
        self.kept: dict[tuple[str, int, bytes], ResultEntry] = {}
        """Results without a last word."""
        self.computes = True
        """Set to False, it takes tasks and does nothing with them."""
        self.record: Callable[[str, int], Awaitable[None]] | None = None
        """Told of each upload (digest, sealed bytes), as the doors tell the store."""
        self.uploads: list[tuple[str, int]] = []
        self.heard = asyncio.Event()
        """Set at every message; waiters clear it."""
        self.id = self.keys.worker_id
        self._channel: Channel[FromCoordinator] | None = None
        self._socket: WorkerSocket | None = None
        self._sending = asyncio.Lock()

    # -- a connection

    async def run(self, socket: WorkerSocket) -> None:
        """Connect, come in, and work until the connection ends."""
        channel = Channel.initiator(self.keys.ws, self.pool.cs_pub, self.pool.pool_id)
        self._channel, self._socket = channel, socket
        await socket.send(channel.start())
        reply = await socket.receive()
        if reply is None:
            return
        channel.receive(reply)
        await self.send(self.hello(channel.h))
        work: set[asyncio.Task[None]] = set()
        try:
            while (data := await socket.receive()) is not None:
                for message in channel.receive(data):
                    task = self._received(message)
                    if task is not None:
                        work.add(task)
                        task.add_done_callback(work.discard)
                self.heard.set()
        finally:
            self._socket = None
            for task in list(work):
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def send(self, message: Any) -> None:
        """Seal and write one message; nothing when the connection is gone."""
        async with self._sending:
            if self._channel is None or self._socket is None:
                return
            self._channel.send(message)
            try:
                while (record := self._channel.next_record()) is not None:
                    await self._socket.send(record)
            except ConnectionError:
                pass

    def hello(self, h: bytes) -> Hello:
        """The first message."""
        invite_id, secret = self.invite or (None, None)
        return Hello(
            wi_pub=self.keys.wi_pub,
            signature=self.keys.hello_signature(h),
            ws_number=self.keys.ws_number,
            ws_signature=self.keys.ws_signature(),
            boot=self.boot,
            name=self.name,
            system="test",
            version="0",
            devices=self.devices,
            kinds=["kernel"],
            limits=Limits(ceiling=1.0),
            invite_id=invite_id,
            invite_secret=secret,
        )

    async def heartbeat(self, held: list[LeaseRef] | None = None, duty: float = 1.0, reason: str = "") -> None:
        """Say what is held (what has no last word yet, unless given)."""
        if held is None:
            held = [ref_of(entry) for entry in self.kept.values()]
        await self.send(Heartbeat(sent=time.monotonic(), duty={"cpu": duty}, held=held, reason=reason))

    async def bye(self) -> None:
        await self.send(Bye(reason="test"))

    def _received(self, message: FromCoordinator) -> asyncio.Task[None] | None:
        match message:
            case Welcome():
                self.welcome = message
            case Reject():
                self.rejected = message
            case Assign():
                self.assigned += message.entries
                if self.computes:
                    return asyncio.create_task(self.work(message.entries))
            case Acknowledged():
                self.verdicts += message.entries
                for verdict in message.entries:
                    self.kept.pop((verdict.task, verdict.attempt, verdict.token), None)
            case Cancel():
                self.cancelled += message.leases
            case Pulse():
                self.pulses.append(message)
            case Policy():
                self.policy = message
        return None

    # -- work

    async def work(self, assignments: list[Assignment]) -> None:
        """Compute and report."""
        entries = [self.compute(assignment) for assignment in assignments]
        for entry in entries:
            self.kept[entry.task, entry.attempt, entry.token] = entry
        uploads, self.uploads = self.uploads, []
        for name, length in uploads:
            if self.record is not None:
                await self.record(name, length)
        await self.report(entries)

    async def report(self, entries: list[ResultEntry]) -> None:
        """Send results, signed, as they came."""
        for message in pack_result(entries, self.sign):
            await self.send(message)

    def compute(self, assignment: Assignment) -> ResultEntry:
        """One task's result."""
        inputs = {name: self.open(tensor) for name, tensor in assignment.inputs.items()}
        arrays = {
            name: as_array(inputs[name], tensor.dtype, tensor.part_shape) for name, tensor in assignment.inputs.items()
        }
        outputs = self.outputs(assignment, arrays)
        given = {name: self.give(assignment, name, array) for name, array in outputs.items()}
        key = assignment.digest_key
        described_inputs = {
            name: described(tensor, content_digest(key, tensor.dtype, tensor.part_shape, inputs[name]))
            for name, tensor in assignment.inputs.items()
        }
        described_outputs = {
            name: described(tensor, content_digest(key, tensor.dtype, tensor.shape, as_bytes(outputs[name])))
            for name, tensor in given.items()
        }
        statement = statement_of(
            assignment,
            pool=self.pool.pool_id,
            worker=self.id,
            inputs=described_inputs,
            outputs=described_outputs,
            ran=Ran(device=self.devices[0].id, driver="1", duty=1.0, seconds=0.0),
        )
        return self.entry(assignment, statement, given)

    def entry(self, assignment: Assignment, statement: bytes, outputs: dict[str, Tensor]) -> ResultEntry:
        return ResultEntry(
            task=assignment.task,
            attempt=assignment.attempt,
            token=assignment.token,
            statement=statement,
            outputs=outputs,
        )

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """What an honest worker computes."""
        return dict(workload(assignment.kind).run(task_of(assignment), arrays, self.engine, Unthrottled()))

    def open(self, tensor: Tensor) -> Any:
        blob = tensor.data
        if not isinstance(blob, Blob):
            return read_part(tensor, lambda start, stop, out: None)
        with self.blobs.open_reader(blob.digest) as reader:
            return read_part(tensor, lambda start, stop, out: open_range(blob, reader.read_at, start, stop, out))

    def give(self, assignment: Assignment, name: str, array: Any) -> Tensor:
        planned = assignment.outputs[name]
        plain = as_bytes(array)
        if len(plain) <= MAX_INLINE_BYTES // len(assignment.outputs):
            return Tensor(dtype=planned.dtype, shape=array.shape, data=bytes(plain))
        blob, sealed = seal(plain)
        upload = self.blobs.begin(self.id, blob.digest, len(sealed))
        upload.write(sealed)
        upload.finish()
        self.uploads.append((blob.digest, len(sealed)))
        return Tensor(dtype=planned.dtype, shape=array.shape, data=blob)

    def sign(self, entries: Any) -> bytes:
        digests = [digest(entry.statement) for entry in entries]
        return self.keys.sign(batch_message(self.pool.pool_id, self.id, digests))

    # -- waiting, for tests

    async def until(self, condition: Callable[[], bool], within_s: float = 10.0) -> None:
        """Wait until something that messages bring about is so."""
        async with asyncio.timeout(within_s):
            while not condition():
                self.heard.clear()
                await self.heard.wait()

    async def welcomed(self) -> Welcome:
        await self.until(lambda: self.welcome is not None)
        assert self.welcome is not None
        return self.welcome

    def result(self, entry: ResultEntry, signature: bytes | None = None) -> Result:
        """A Result of one entry; signed, unless a signature is given."""
        return Result(entries=[entry], signature=self.sign([entry]) if signature is None else signature)


# ---- the five rogues -------------------------------------------------------------------------------------------------


class ReturnsZeros(HonestWorker):
    """Works at nothing: outputs of the right shape, all zero, described and signed in due form."""

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {name: np.zeros_like(array) for name, array in super().outputs(assignment, arrays).items()}


class ReturnsScaled(HonestWorker):
    """Close, but everything is 1 % too large."""

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        honest = super().outputs(assignment, arrays)
        return {name: (array * array.dtype.type(1.01)).astype(array.dtype) for name, array in honest.items()}


class ReturnsHalf(HonestWorker):
    """Does the first half of each output (rounded down) and leaves zeros in the rest."""

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        honest = super().outputs(assignment, arrays)
        for array in honest.values():
            flat = array.reshape(-1)
            flat[flat.size // 2 :] = 0
        return honest


class ReturnsYesterdays(HonestWorker):
    """Honest for a day, then hands in a result of that day for every new task, described and signed anew.

    The day ends when `day_over` is set, or by itself after the first result.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.day_over = False
        self.results: list[dict[str, Any]] = []
        self.statements: list[bytes] = []

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        honest = super().outputs(assignment, arrays)
        if not self.day_over or not self.results:
            self.results.append({name: array.copy() for name, array in honest.items()})
            return honest
        for result in self.results:
            if all(result[name].shape == array.shape for name, array in honest.items()):
                return {name: array.copy() for name, array in result.items()}
        return {name: np.resize(self.results[0][name], array.shape) for name, array in honest.items()}


class SignsNothing(HonestWorker):
    """Computes well, and signs with 64 bytes that are no signature."""

    def sign(self, entries: Any) -> bytes:
        return bytes(64)


class YesterdaysStatement(HonestWorker):
    """Computes well, but sends the statement of its first result, word for word: the other half of the same lie."""

    statement = b""

    def entry(self, assignment: Assignment, statement: bytes, outputs: dict[str, Tensor]) -> ResultEntry:
        self.statement = self.statement or statement
        return super().entry(assignment, self.statement, outputs)


ROGUES: dict[str, type[HonestWorker]] = {
    "zeros": ReturnsZeros,
    "scaled": ReturnsScaled,
    "half": ReturnsHalf,
    "yesterdays": ReturnsYesterdays,
    "unsigned": SignsNothing,
}


def task_of(assignment: Assignment) -> TaskSpec:
    """The task as a workload runs it."""
    return TaskSpec(
        kind=assignment.kind,
        program=assignment.program,
        parameters=assignment.parameters,
        precision=assignment.precision,
        grains=(0, 1),
        inputs=assignment.inputs,
        outputs=assignment.outputs,
        cost=Cost(),
        seed=assignment.seed,
    )


def ref_of(named: Assignment | ResultEntry) -> LeaseRef:
    """The lease that an assignment or a result names."""
    return LeaseRef(task=named.task, attempt=named.attempt, token=named.token)
