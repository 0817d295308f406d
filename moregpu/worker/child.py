"""The compute child: one process a device, nice 19, that runs tasks one after another on its engine.

`python -m moregpu.worker.child AGENT_PID FRAMES_FD PASSING_FD DEVICE MEMORY_BYTES [ADAPTER]`, started by the agent
alone. With an adapter's key it computes on that one, else with NumPy on the CPU. It ends when its agent does: by the
parent-death signal where the system has one, by the closed socket anywhere.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace

from moregpu.errors import EngineError, MoreGPUError
from moregpu.jobs import Planned, Tensor
from moregpu.wire.text import clean
from moregpu.worker.death import die_with
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.worker.engines.unfit import DeviceUnfit
from moregpu.worker.frames import (
    Beat,
    Done,
    Failed,
    Forget,
    FrameReader,
    FromChild,
    Place,
    Ready,
    RunTask,
    SetDuty,
    Stopped,
    StopTask,
    Unfit,
    frame,
)
from moregpu.worker.memory import AttachedRegions
from moregpu.worker.slicing import DutySlicer, OutOfTime
from moregpu.workloads import workload
from moregpu.workloads.protocol import Cost, KernelEngine, TaskSpec, TaskStopped

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind).newbyteorder("<")
    for name, kind in {
        "float32": np.float32, "float16": np.float16, "float64": np.float64, "int8": np.int8, "int16": np.int16,
        "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "bool": np.bool_,
    }.items()
}  # fmt: skip
"""The dtypes that NumPy knows; a name from outside never reaches `np.dtype`."""

_READ_BYTES = 1 << 18

PARTS = 256
"""Parts of tensors that are kept open that an engine is told of at once."""

_Part = tuple[int, str, tuple[int, ...], tuple[tuple[int, int], ...] | None]


def main() -> None:
    """Serve the agent until it goes."""
    agent, frames_fd, passing_fd, device, memory, *adapter = sys.argv[1:7]
    die_with(int(agent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the agent decides
    os.nice(19 - os.nice(0))
    frames = socket.socket(fileno=int(frames_fd))
    passing = socket.socket(fileno=int(passing_fd))
    try:
        engine = _engine(device, int(memory), adapter[0] if adapter else "")
        ComputeChild(frames, passing, engine).serve()
    except EngineError as error:  # there is nothing to compute with: say so, and let the agent end this process
        frames.sendall(frame(Unfit(reason=clean(error.detail))))
        while frames.recv(_READ_BYTES):
            pass
    except (EOFError, ConnectionError):
        sys.exit(0)


class Engine(KernelEngine, Protocol):
    """An engine that says what it computes with, and may keep what comes again."""

    driver: str

    def hold(self, array: Any) -> None:
        """Be told that this very array will come again, unchanged, until `let_go`."""
        ...

    def let_go(self, array: Any) -> None:
        """It will not come again."""
        ...


def _engine(device: str, memory_bytes: int, adapter: str) -> Engine:
    """The engine of a device, ready for its first task. Raises `EngineError`."""
    if not adapter:
        return NumpyEngine(device, memory_bytes)
    from moregpu.worker.engines.wgpu_engine import WgpuEngine  # a second, when cold

    engine = WgpuEngine(device, adapter, memory_bytes)
    engine.warm_up()
    return engine


class ComputeChild:
    """Queue, engine and slicer of one device."""

    def __init__(self, frames: socket.socket, passing: socket.socket, engine: Engine):
        self._frames = frames
        self._regions = AttachedRegions(passing)
        self._engine = engine
        self._parts: dict[_Part, Any] = {}  # of tensors that are kept open
        self._reader = FrameReader()
        self._queue: deque[tuple[RunTask, bytes]] = deque()
        self._running: int | None = None
        self._slicer = DutySlicer(self._listen, self._beat)

    def serve(self) -> None:
        """Run tasks until the agent is gone (`EOFError`), or the device is (`DeviceUnfit`)."""
        self._send(Ready(driver=self._engine.driver, memory_budget_bytes=self._engine.memory_budget_bytes))
        while True:
            while not self._queue:
                self._listen(None)
            task, raw = self._queue.popleft()
            self._run(task, raw)

    # -- one task

    def _run(self, task: RunTask, raw: bytes) -> None:
        self._running = task.number
        try:
            self._slicer.begin(task.time_limit_s)
            memory = memoryview(raw) if task.memory is None else memoryview(self._regions.map(task.memory))
            outputs = workload(task.kind).run(
                _spec(task), {name: self._input(place, memory) for name, place in task.inputs.items()}, self._engine,
                self._slicer,
            )  # fmt: skip
            done, values = self._placed(task, outputs, memory)
            self._send(done, *values)
        except OutOfTime as error:
            self._send(Failed(number=task.number, code="time-limit", message=str(error), fault="task"))
        except TaskStopped:
            self._send(Stopped(number=task.number))
        except DeviceUnfit:
            raise  # it ends this process; the agent knows which task it was
        except EngineError as error:
            self._send(Failed(number=task.number, code=error.code, message=clean(str(error)), fault="engine"))
        except MoreGPUError as error:
            self._send(Failed(number=task.number, code=error.code, message=clean(str(error)), fault="task"))
        except MemoryError:
            text = "not enough memory for the task"
            self._send(Failed(number=task.number, code=EngineError.code, message=text, fault="engine"))
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            # A defect of engine or workload; it must cost one attempt, not the process.
            text = clean(f"{type(error).__name__}: {error}")
            self._send(Failed(number=task.number, code=EngineError.code, message=text, fault="engine"))
        finally:
            self._running = None

    def _placed(self, task: RunTask, outputs: Mapping[str, Any], memory: memoryview) -> tuple[Done, list[memoryview]]:
        """Bring outputs to where they were planned: into the region, or behind the frame's header."""
        if set(outputs) != set(task.outputs):
            raise EngineError(f"outputs {sorted(outputs)} instead of {sorted(task.outputs)}")
        values: list[memoryview] = []
        for name, place in task.outputs.items():
            array = outputs[name]
            if tuple(array.shape) != place.shape or array.dtype != DTYPES[place.dtype]:
                raise EngineError(f"output {name} is {array.dtype} {array.shape}, not {place.dtype} {place.shape}")
            if task.memory is None:
                values.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            else:
                np.copyto(_array(place, memory, writeable=True), array)
        return Done(number=task.number, seconds=self._slicer.end(), outputs=task.outputs), values

    def _input(self, place: Place, memory: memoryview) -> Any:
        """An input's array; the same one each time where its tensor is kept open, so that an engine can know it."""
        if place.resident is None:
            return _array(place, memory)
        name = (place.resident, place.dtype, place.whole_shape, place.region)
        array = self._parts.get(name)
        if array is None:
            whole = _array(replace(place, shape=place.whole_shape), memoryview(self._regions.map(place.resident)))
            array = whole[tuple(slice(*span) for span in place.region or ())]
            if len(self._parts) == PARTS:
                self._let_go([next(iter(self._parts))])
            self._parts[name] = array
            self._engine.hold(array)
        return array

    def _let_go(self, parts: list[_Part]) -> None:
        for part in parts:
            self._engine.let_go(self._parts.pop(part))

    # -- the agent

    def _listen(self, timeout_s: float | None) -> None:
        """Take in what the agent says, waiting at most so long for it to begin."""
        # A read that waits would also be woken when the agent takes what was sent: once more for each task.
        ready, _, _ = select.select([self._frames], [], [], timeout_s)
        if not ready:
            return
        data = self._frames.recv(_READ_BYTES)
        if not data:
            raise EOFError("the agent is gone")
        self._reader.feed(data)
        for header, raw in self._reader.to_child():
            match header:
                case RunTask():
                    self._queue.append((header, raw))
                case StopTask(number=number):
                    self._stop(number)
                case SetDuty(duty=duty):
                    self._slicer.set_duty(duty)
                case Forget(regions=regions):
                    self._let_go([part for part in self._parts if part[0] in regions])
                    self._regions.forget(regions)

    def _stop(self, number: int) -> None:
        if number == self._running:
            self._slicer.stop()
        for entry in self._queue:
            if entry[0].number == number:
                self._queue.remove(entry)
                self._send(Stopped(number=number))
                return

    def _beat(self, share: float | None, paused: bool) -> None:
        if self._running is not None:
            worked = self._slicer.meter.worked_s
            self._send(Beat(number=self._running, share=share, paused=paused, worked_s=worked))

    def _send(self, header: FromChild, *values: memoryview) -> None:
        self._frames.sendall(frame(header, *values))


def _spec(task: RunTask) -> TaskSpec:
    """The task as its workload knows it: tensors without keys, since their arrays are open already."""
    return TaskSpec(
        kind=task.kind,
        program=task.program,
        parameters=task.parameters,
        precision=task.precision,
        grains=(0, 0),
        inputs={
            name: Tensor(dtype=place.dtype, shape=place.whole_shape, data=b"", region=place.region)
            for name, place in task.inputs.items()
        },
        outputs={name: Planned(dtype=place.dtype, shape=place.shape) for name, place in task.outputs.items()},
        cost=Cost(),
        seed=task.seed,
    )


def _array(place: Place, memory: memoryview, writeable: bool = False) -> Any:
    """The array that lies there, without a copy."""
    if place.dtype not in DTYPES:
        raise EngineError(f"this engine does not know {place.dtype}")
    if place.size_bytes == 0:
        return np.empty(place.shape, DTYPES[place.dtype])
    values = memory[place.start : place.start + place.size_bytes]
    array = np.frombuffer(values, DTYPES[place.dtype]).reshape(place.shape)
    array.flags.writeable = writeable
    return array


if __name__ == "__main__":
    main()
