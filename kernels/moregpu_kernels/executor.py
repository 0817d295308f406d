"""Runs operations on a device: a list of steps becomes dispatches in as few submits as its slices allow.

Tensors live in buffers shared by lifetime; uniforms lie in one buffer; results come back through one reused staging
buffer. Work between two calls of `between` takes about `slice_s`: sizes of slices follow measured rates, so that the
throttle and the desktop stay in charge. A device that is lost in the middle is built again, once.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from moregpu_kernels.catalogue import Catalogue
from moregpu_kernels.compiled import RELEASED, Compiled, Part, Resident, compile_steps
from moregpu_kernels.device import Device, recover
from moregpu_kernels.errors import BadBinding, BadShape, BudgetExceeded, TooLargeToBind
from moregpu_kernels.fuse import Step
from moregpu_kernels.layout import Plan, Request
from moregpu_kernels.native import Call, Copy
from moregpu_kernels.plan import ELEMENTS_LIMIT, Choices, plan
from moregpu_kernels.program import UNIFORM_STEP, Programs
from moregpu_kernels.slices import host_slices
from moregpu_kernels.template import Value
from moregpu_kernels.transfer import Buffers, write_array

Array = NDArray[Any]

SLICE_S: Final = 0.012
"""Aim of one submit; they must stay below 20 ms."""
DISPATCHES_LIMIT: Final = 256
"""Most dispatches of one submit."""
KEPT_COMPILED: Final = 64
KEPT_FITTING: Final = 1024
"""Of how many operations on given shapes it is remembered that they need not be cut: finding that out takes 150 µs."""

_ALL: Final = (0.0, 1.0)
"""A run that is no piece of another one: nothing is done before it, and it is all there is."""

_FIRST_RATE: Final = {"software": 1e-9, "integrated": 2e-11, "discrete": 5e-12, "unknown": 2e-11}
"""Seconds a unit of work before anything was measured: on the slow side, so that a first slice is not too long."""
_RATE_STEP: Final = 8.0
"""A rate changes at most this much at once: one hiccup must not make slices tiny, nor one lucky slice huge."""
_MEASURABLE_S: Final = 0.001


class Executor:
    """Runs operations on one device, from the thread that owns it."""

    def __init__(self, device: Device, *, choices: Choices | None = None, slice_s: float = SLICE_S):
        self.device = device
        self.programs = Programs(device)
        self.choices: Choices = choices or {}
        self.catalogue = Catalogue()
        self.slice_s = slice_s
        self.submits = 0
        self.longest_slice_s = 0.0
        self.share_done = 0.0
        """Of what runs now, as `between` may ask."""
        self._piece = _ALL
        self._buffers = Buffers(device)
        self._compiled: OrderedDict[Any, Compiled] = OrderedDict()
        self._fitting: set[Hashable] = set()
        self._rates: dict[str, float] = {}
        self._warm: set[str] = set()
        self._generation = device.generation
        self._cores = (os.cpu_count() or 1) if device.traits.is_software else 1

    def apply(
        self,
        operation: str,
        arrays: Mapping[str, Array | Resident],
        parameters: Mapping[str, Value] | None = None,
        *,
        between: Callable[[], None] | None = None,
        variant: str | None = None,
    ) -> Array:
        """Run one operation on arrays of any size; what does not fit the device goes through it in pieces.

        Arrays that were uploaded stay where they are, except where the operation has to be cut.

        Raises
        ------
        BadShape, BadFormula, BadBinding
            The arrays do not fit the operation.
        BudgetExceeded
            Even one piece is more than the device's memory budget.
        DeviceLost
            The device went away and did not come back.

        """
        given = {n: a if isinstance(a, Resident) else np.asarray(a) for n, a in arrays.items()}
        parameters = dict(parameters or {})
        one = Step(operation, {name: name for name in given}, "out", parameters)
        shaped = (one.key, tuple([(a.shape, a.dtype) for a in given.values()]), variant)
        if shaped in self._fitting or operation in self.catalogue:
            return self.run([one], given, ["out"], between=between, variant=variant)["out"]
        request = Request(operation, {n: a.shape for n, a in given.items()}, _dtype(given), parameters)
        planned = self._plan(request, variant)
        pieces = host_slices(request, self.device.traits, self.device.ledger.budget_bytes, planned)
        if pieces is None:
            if len(self._fitting) >= KEPT_FITTING:
                self._fitting.clear()
            self._fitting.add(shaped)
            return self.run([one], given, ["out"], between=between, variant=variant)["out"]
        out = np.empty(pieces.out_shape, _dtype(given))
        done = 0.0
        try:
            for piece in pieces.pieces:
                if done and between:
                    self.share_done = done
                    between()
                part = {n: piece.take(n, a.array if isinstance(a, Resident) else a) for n, a in given.items()}
                self._piece = (done, piece.share(out))
                piece.put(out, self.run([one], part, ["out"], between=between, variant=variant)["out"])
                done += self._piece[1]
        finally:
            self._piece = _ALL
        return out

    def _plan(self, request: Request, variant: str | None) -> Plan | None:
        """Plan a request whole; None where it is too large for that."""
        if any(math.prod(shape) > ELEMENTS_LIMIT for shape in request.shapes.values()):
            return None
        try:
            return plan(request, self.device.traits, self.choices, variant=variant)
        except TooLargeToBind:
            return None

    def run(
        self,
        steps: Sequence[Step],
        feeds: Mapping[str, Array | Resident],
        outputs: Sequence[str],
        *,
        between: Callable[[], None] | None = None,
        variant: str | None = None,
        fused: bool = True,
    ) -> dict[str, Array]:
        """Run steps on named tensors; return the `outputs`. Where all fits one slice, it is one submit.

        `between` is called between two submits, and between the pieces of what is long to upload or to read back; what
        it raises stops the run. Raises as `apply`.
        """
        self.device.check_thread()
        return cast(
            "dict[str, Array]",
            recover(self.device, lambda: self._run(tuple(steps), feeds, tuple(outputs), between, variant, fused)),
        )

    def upload(self, array: Array) -> Resident:
        """Keep an array on the device, to feed it many times. The array is remembered: a lost device gets it again."""
        resident = Resident(array)
        recover(self.device, lambda: self._settle(resident))
        return resident

    def release(self, resident: Resident) -> None:
        """Free an uploaded array's buffer."""
        for key in [key for key, one in self._compiled.items() if resident.number in one.residents]:
            self._drop(key)
        if resident.buffer is not None and resident.generation == self.device.generation:
            self.device.free(resident.buffer)
        resident.buffer, resident.generation = None, RELEASED

    def trim(self) -> None:
        """Free every buffer that only serves speed: pooled, staged, and those of compiled runs."""
        for key in list(self._compiled):
            self._drop(key)
        self._buffers.trim()

    # ---- one run ----------------------------------------------------------------------------------------------------

    def _run(
        self,
        steps: tuple[Step, ...],
        feeds: Mapping[str, Array | Resident],
        outputs: tuple[str, ...],
        between: Callable[[], None] | None,
        variant: str | None,
        fused: bool,
    ) -> dict[str, Array]:
        if self._generation != self.device.generation:
            self._forget()
        self.share_done = self._piece[0]
        for feed in feeds.values():
            if isinstance(feed, Resident) and feed.generation != self._generation:
                self._settle(feed)
        compiled = self._prepared(steps, feeds, outputs, variant, fused)
        for name, buffer in compiled.feeds.items():
            write_array(self.device, buffer, cast("Array", feeds[name]), between)
        self._submit_all(compiled, between)
        return compiled.results.fetch(self.device, self._buffers, between)

    def _prepared(
        self,
        steps: tuple[Step, ...],
        feeds: Mapping[str, Array | Resident],
        outputs: tuple[str, ...],
        variant: str | None,
        fused: bool,
    ) -> Compiled:
        key = (
            tuple([one.key for one in steps]),
            tuple(
                [
                    (name, feed.number) if isinstance(feed, Resident) else (name, feed.shape, feed.dtype)
                    for name, feed in feeds.items()
                ]
            ),
            outputs,
            variant,
            fused,
        )
        compiled = self._compiled.get(key)
        if compiled is not None:
            self._compiled.move_to_end(key)
            return compiled
        while True:
            try:
                compiled = compile_steps(
                    self.device, self.programs, self._buffers, steps, feeds, outputs,
                    choices=self.choices, catalogue=self.catalogue, variant=variant, fused=fused,
                )  # fmt: skip
                break
            except BudgetExceeded:
                if not self._compiled and not self._buffers.pooled_bytes:
                    raise
                self.trim()
        self._compiled[key] = compiled
        if len(self._compiled) > KEPT_COMPILED:
            self._drop(next(iter(self._compiled)))
        self._warm_up(compiled)
        return compiled

    def _warm_up(self, compiled: Compiled) -> None:
        """Dispatch each new pipeline over no groups: drivers compile on first use, and that is not the work's time."""
        cold = [piece for piece in compiled.pieces if piece.program.digest not in self._warm]
        for piece in {piece.program.digest: piece for piece in cold}.values():
            self._write_uniforms(compiled, [(piece, 0, 0)])
            self._submit([(piece.call, 1, 1)])
            self._warm.add(piece.program.digest)
        if cold:
            self.device.wait()

    def _submit_all(self, compiled: Compiled, between: Callable[[], None] | None) -> None:
        """Record and submit all pieces, slice by slice. The last submit is waited for by reading back."""
        done = 0.0
        for batch, planned_s, is_last in self._slices(compiled):
            calls = self._calls(compiled, batch)
            copies = compiled.results.copies(self.device.fast, self._buffers) if is_last else ()
            started = self._submit(calls, copies)
            if not is_last or planned_s > self.slice_s / 4:
                self.device.wait()
                self._learn(batch, planned_s, time.perf_counter() - started)
            if between and not is_last:
                done += sum([piece.work * count / piece.groups for piece, _, count in batch])
                before, share = self._piece
                self.share_done = before + share * done / sum(compiled.work.values())
                between()

    def _slices(self, compiled: Compiled) -> Iterator[tuple[list[Part], float, bool]]:
        """Cut pieces where a slice is full, by the rates known when it begins: parts, their seconds, whether the last.

        A slice has a piece once at most: its uniforms have one place.
        """
        planned_s = sum([self._rate(digest) * work for digest, work in compiled.work.items()])
        if planned_s <= self.slice_s and len(compiled.pieces) <= DISPATCHES_LIMIT:
            yield compiled.whole, planned_s, True
            return
        batch: list[Part] = []
        planned_s = 0.0
        for piece in compiled.pieces:
            first = 0
            while first < piece.groups:
                each_s = self._rate(piece.program.digest) * piece.work / piece.groups
                room = int((self.slice_s - planned_s) / each_s) if each_s > 0 else piece.groups
                if (room < 1 and batch) or len(batch) >= DISPATCHES_LIMIT:
                    yield batch, planned_s, False
                    batch, planned_s = [], 0.0
                    continue
                count = min(self._whole(room), piece.groups - first)
                batch.append((piece, first, count))
                planned_s += count * each_s
                first += count
                if first < piece.groups:
                    yield batch, planned_s, False
                    batch, planned_s = [], 0.0
        yield batch, planned_s, True

    def _whole(self, room: int) -> int:
        """How many groups to dispatch where there is room for `room`: on software adapters as many for each core."""
        return max(room - room % self._cores if room > self._cores else room, 1)

    def _calls(self, compiled: Compiled, batch: Sequence[Part]) -> list[tuple[Call, int, int]]:
        """The dispatches of a slice, whose uniforms are written where they are not yet."""
        if batch is compiled.whole and compiled.calls is not None:
            return compiled.calls
        self._write_uniforms(compiled, batch)
        limit = self.device.traits.limits.max_groups
        calls: list[tuple[Call, int, int]] = []
        for piece, _, count in batch:
            if count <= limit:
                calls.append((piece.call, count, 1))
            else:
                rows = -(-count // limit)
                calls.append((piece.call, -(-count // rows), rows))
        if batch is compiled.whole:
            compiled.calls = calls
        return calls

    def _submit(self, calls: Sequence[tuple[Call, int, int]], copies: Sequence[Copy] = ()) -> float:
        self.submits += 1
        return self.device.fast.submit(calls, copies)

    def _rate(self, digest: str) -> float:
        return self._rates.get(digest, _FIRST_RATE[self.device.traits.kind])

    def _learn(self, batch: Sequence[Part], planned_s: float, took_s: float) -> None:
        """Correct the rates by what the slice really took."""
        self.longest_slice_s = max(self.longest_slice_s, took_s)
        if not batch or planned_s <= 0:
            return
        ratio = max(took_s, _MEASURABLE_S / 4) / planned_s
        ratio = min(max(ratio, 1 / _RATE_STEP), _RATE_STEP)
        if 0.5 < ratio < 1.0:
            ratio **= 0.25  # slower counts at once, faster little by little: 95 of 100 slices must hold, not half
        for digest in {piece.program.digest for piece, _, _ in batch}:
            self._rates[digest] = self._rate(digest) * ratio

    def _write_uniforms(self, compiled: Compiled, batch: Sequence[Part]) -> None:
        """Write, at once, from the first place of uniforms that are not as these parts need them to the last one."""
        written = compiled.written
        new = [part for part in batch if written[part[0].slot] != part[1:]]
        if not new:
            return
        compiled.calls = None
        for piece, first, count in new:
            data, place = piece.program.pack(first, count, piece.uniforms), piece.slot * UNIFORM_STEP
            compiled.packed[place : place + len(data)] = data
            written[piece.slot] = (first, count)
        start, stop = (UNIFORM_STEP * slot for slot in (new[0][0].slot, new[-1][0].slot + 1))
        self.device.fast.write(compiled.uniforms, start, compiled.packed[start:stop])

    # ---- what is kept -----------------------------------------------------------------------------------------------

    def _settle(self, resident: Resident) -> None:
        """Have an uploaded array on the device as it is now."""
        if resident.buffer is not None and resident.generation == self.device.generation:
            return
        if resident.released:
            raise BadBinding("This resident tensor was released", "Upload it again")
        resident.buffer = self.device.buffer(resident.array.nbytes + 16)
        resident.generation = self.device.generation
        write_array(self.device, resident.buffer, resident.array)

    def _drop(self, key: Any) -> None:
        for buffer in self._compiled.pop(key).owned:
            self._buffers.give(buffer)

    def _forget(self) -> None:
        self._compiled.clear()
        self._buffers.forget()
        self._warm.clear()
        self._generation = self.device.generation


def _dtype(arrays: Mapping[str, Array | Resident]) -> str:
    """The dtype of an operation: that of its float inputs (scales of quantised products apart)."""
    kinds = {str(array.dtype) for name, array in arrays.items() if name not in ("quants", "scales")}
    if len(kinds) != 1:
        raise BadShape(
            f"The inputs must have one dtype, not {', '.join(sorted(kinds)) or 'none'}", "Convert one of them"
        )
    return kinds.pop()
