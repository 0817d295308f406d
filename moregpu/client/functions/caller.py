"""Sends calls: at once where nothing else is under way, else gathered for a moment, so that many small ones share jobs.

One thread gathers and sends; the link's thread hears the answers. Nothing here waits for a result.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from blake3 import blake3

from moregpu.blobs.transfer import BlobHTTP
from moregpu.client.functions.batch import Batch
from moregpu.client.functions.call import Call
from moregpu.client.functions.options import Chosen
from moregpu.client.functions.shared import Scattered, Shared
from moregpu.client.link import Link, NoLink
from moregpu.client.words import packed
from moregpu.encoding import Buffers, encode, joined
from moregpu.errors import JobCancelled, MoreGPUError, Unreachable
from moregpu.jobs import Blob, Tensor
from moregpu.platform.memory import forget_rooms, room_for
from moregpu.wire import link as wire
from moregpu.workloads.function.spec import FunctionSpec

MOST_CALLS = 1000
MOST_BYTES = 32 << 20
"""Of one job, unless a single call has more."""

INLINE_BYTES = 40 * 1024
"""Program and arguments that travel inside the request."""

INLINE_PROGRAM_BYTES = 8 * 1024
"""A larger program is sent once."""

GATHER_S = 0.001
MOST_GATHER_S = 0.02
"""How long calls are gathered: longer the more jobs are open, since then nobody waits for the next one alone."""

Key = tuple[Any, ...]


class Caller:
    """Sends one pool's calls. `Sender` of its batches."""

    def __init__(
        self,
        link: Callable[[], Link],
        blobs: Callable[[], BlobHTTP],
        threads: Callable[[], ThreadPoolExecutor],
        by_http: Callable[[FunctionSpec, Batch], None],
        patience_s: float,
    ):
        self.session = secrets.token_hex(8)
        """One `with` block: its jobs share warm processes."""
        self.scattered = Scattered()
        self._link = link
        self._blobs = blobs
        self._threads = threads
        self._by_http = by_http
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._queued: dict[Key, list[Call]] = {}
        self._open: set[Batch] = set()
        self._programs: dict[str, Tensor] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    # -- what is asked

    def call(self, call: Call) -> None:
        """Send one call, now or in a moment."""
        with self._lock:
            self._refuse_closed()
            if self._queued or not all(batch.is_settled for batch in self._open):
                self._queued.setdefault(call.key, []).append(call)
                self._gather()
                return
            batch = self._begin([call])
        self._send(batch)

    def call_all(self, calls: Sequence[Call]) -> None:
        """Send many calls of one program, now."""
        with self._lock:
            self._refuse_closed()
            batches = [self._begin(part) for part in _cut(calls)]
        for batch in batches:
            self._send(batch)

    def again(self, calls: Sequence[Call]) -> None:
        """Send calls once more."""
        with self._lock:
            for call in calls:
                self._queued.setdefault(call.key, []).append(call)
            self._gather()

    def scatter(self, value: Any) -> Shared:
        """Send a value once. Raises `Unencodable`."""
        types: dict[str, type] = {}
        content = joined(encode(value, name="the value", types=types))
        digest = blake3(content).hexdigest()
        self.scattered.holds(digest, types)
        if digest in self.scattered:
            return Shared(digest)
        return self.scattered.put(digest, self._uploaded([content]))

    def wait(self) -> None:
        """Wait until every call has its result."""
        with self._lock:
            while self._open or self._queued:
                self._work.wait()

    def cancel(self, options: Chosen | None = None) -> None:
        """Cancel what has no result; with options, what was called with these very ones."""
        with self._lock:
            calls = [call for calls in self._queued.values() for call in calls]
            calls += [call for batch in self._open for call in batch.calls]
        for call in calls:
            if options is None or call.options is options:
                call.future.cancel()

    def close(self) -> None:
        """Take no more calls."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        forget_rooms()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    # -- gathering

    def _gather(self) -> None:
        """Have what is queued sent in a moment. The lock is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="moregpu-calls", daemon=True)
            self._thread.start()
        self._work.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._queued:
                    if self._closed:
                        return
                    self._work.wait()
                gather_s = min(MOST_GATHER_S, GATHER_S * len(self._open))
            time.sleep(gather_s)
            with self._lock:
                queued, self._queued = self._queued, {}
                batches = [self._begin(part) for calls in queued.values() for part in _cut(_wanted(calls))]
                self._work.notify_all()  # it may be that nothing is left of what somebody waits for
            for batch in batches:
                self._send(batch)

    def _begin(self, calls: Sequence[Call]) -> Batch:
        batch = Batch(self, list(calls))
        self._open.add(batch)
        return batch

    # -- sending

    def _send(self, batch: Batch) -> None:
        """Send a batch: here, or where something large goes ahead of it, on a thread."""
        program = batch.calls[0].program
        size = sum(call.size for call in batch.calls)
        if program.digest not in self._programs:
            size += len(program.content)
        if size <= INLINE_BYTES:
            self._submit(batch)
        else:
            self._threads().submit(self._submit, batch)

    def _submit(self, batch: Batch) -> None:
        if batch.is_unwanted:
            batch.fail(JobCancelled("it was cancelled before it was sent"))
            return
        try:
            program = batch.calls[0].program
            buffers: Buffers = [buffer for call in batch.calls for buffer in call.arguments]
            size = sum(call.size for call in batch.calls)
            shared: dict[str, Tensor] = {}
            for call in batch.calls:
                shared |= call.shared
            kept = self._programs.get(program.digest)
            if kept is None and len(program.content) > INLINE_PROGRAM_BYTES:
                kept = self._programs[program.digest] = self._uploaded([program.content])
            inline = size + (0 if kept is not None else len(program.content))
            spec = batch.spec(
                self.session,
                kept or _line(program.content, len(program.content)),
                _line(joined(buffers) if buffers else b"", size) if inline <= INLINE_BYTES else self._uploaded(buffers),
                shared,
            )
            self._ask(batch, spec)
        except (MoreGPUError, OSError) as error:
            batch.fail(error)

    def _ask(self, batch: Batch, spec: FunctionSpec) -> None:
        raw, key = msgspec.Raw(packed(spec)), batch.idempotency_key
        try:
            self._link().ask(
                lambda id: wire.Submit(id=id, spec=raw, idempotency_key=key, parts=batch.wants_parts, output=True),
                batch.hear,
                self._patience_s,
            )
        except NoLink:
            self._threads().submit(self._by_http, spec, batch)

    def _uploaded(self, pieces: Buffers) -> Tensor:
        blob = self._blobs().upload_pieces(pieces)
        return _line(blob, blob.size_bytes)

    # -- what batches need

    def fetch(self, blob: Blob, then: Callable[[memoryview | MoreGPUError], None]) -> None:
        """Download a blob that an answer of the coordinator's named, on a thread, then call `then` there."""

        def work() -> None:
            try:
                data = room_for(blob.size_bytes)
                self._blobs().download_into(blob, data, is_given=True, is_last=True)
            except MoreGPUError as error:
                then(error)
            except OSError as error:
                then(Unreachable(f"a result could not be fetched: {error}", "try again"))
            else:
                then(data)

        self._threads().submit(work)

    def cancel_job(self, job: str, idempotency_key: str = "") -> None:
        """End a job; whoever cancels does not wait for it."""
        try:
            key = "" if job else idempotency_key
            self._link().ask(lambda id: wire.Cancel(id=id, job=job, idempotency_key=key), lambda _: None)
        except MoreGPUError:
            pass  # the coordinator is away: it ends jobs whose submitter is gone by itself

    def here(self, calls: Sequence[Call]) -> None:
        """Make calls on this machine, on a thread."""
        for call in calls:
            self._threads().submit(call.run_here, self._scattered_bytes)

    def _scattered_bytes(self, tensor: Tensor) -> memoryview:
        """What `scatter` sent, from the pool again. Raises what fetching raises."""
        if not isinstance(tensor.data, Blob):
            return memoryview(tensor.data)
        data = room_for(tensor.data.size_bytes)
        self._blobs().download_into(tensor.data, data)
        return data

    def closed(self, batch: Batch) -> None:
        """Nothing more comes of a batch."""
        with self._lock:
            self._open.discard(batch)
            self._work.notify_all()


def _wanted(calls: Sequence[Call]) -> list[Call]:
    """Those that nobody has cancelled since; whoever waits for the others hears of it."""
    return [call for call in calls if not call.is_cancelled()]


def _cut(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls as jobs of bounded size."""
    parts: list[list[Call]] = []
    size = 0
    for call in calls:
        # What may run only once fails alone when it is lost, and takes no other call with it.
        alone = not call.options.idempotent
        if not parts or alone or len(parts[-1]) >= MOST_CALLS or size + call.size > MOST_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(call)
        size += call.size
    return parts


def _line(data: bytes | Blob, length: int) -> Tensor:
    return Tensor(dtype="uint8", shape=(length,), data=data)
