"""The calls that change or look at a real pool. Each runs on a thread: the client blocks, the screen does not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import msgspec

from moregpu.client.doors import Doors, path_of
from moregpu.client.pool import Pool
from moregpu.errors import (
    DigestMismatch,
    Forbidden,
    HandshakeFailed,
    InvalidRequest,
    MoreGPUError,
    NotFound,
    Unauthorized,
)
from moregpu.wire.api import (
    InviteRequest,
    InviteView,
    JobView,
    LogLine,
    Me,
    PlanView,
    PoolChange,
    PoolView,
    RotateRequest,
    RotateView,
    Signed,
    TokenRequest,
    TokenView,
    WorkerChange,
    WorkerView,
)
from moregpu.wire.retry import delays
from moregpu.wire.text import NAME_LIMIT, clean
from moregpu.workloads import FunctionSpec, JobSpec
from moregpu_tui.feed.live_log import Following
from moregpu_tui.feed.preview import array_lines, call_lines
from moregpu_tui.feed.source import Draft, Offer
from moregpu_tui.state.events import (
    JobGone,
    JobRow,
    Preview,
    Signatures,
    WorkerRow,
    about,
    job_of,
    log_of,
    tasks_of,
    worker_of,
)
from moregpu_tui.state.model import Signature

T = TypeVar("T")

LARGEST_PREVIEW_BYTES = 64 << 20

LARGEST_INLINE_BYTES = 40 * 1024
"""Of one input: a larger one is a blob."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0


class LiveCalls:
    """Calls through the client's doors; answers become inputs for the store."""

    def __init__(self, pool: Pool, threads: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.threads = threads
        self.offer: Offer = _nobody
        self.seq = 0
        self.me: Me | None = None
        self.watched_job = ""
        self._made: tuple[str, JobSpec | None] = ("", None)
        """The last job that was sent, under its key."""

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a blocking call."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def since(self, seq: int) -> int:
        """The sequence that rows count by which were asked for at `seq`: a lower one where numbers began anew since."""
        return min(seq, self.seq)

    def offer_worker(self, seq: int, view: WorkerView) -> None:
        """A worker as it was when it was asked for, at `seq` or later."""
        seq = self.since(seq)
        self.offer(WorkerRow(seq=seq, worker=worker_of(view, seq)))

    def _offer_job(self, seq: int, view: JobView) -> None:
        seq = self.since(seq)
        self.offer(JobRow(seq=seq, job=job_of(view, seq), tasks=tasks_of(view.tasks)))

    # ---- workers

    async def change_worker(self, id: str, change: WorkerChange) -> None:
        named = {name: value for name, value in msgspec.to_builtins(change).items() if value is not None}
        seq = self.seq
        view = await self.in_thread(lambda: self._call("PATCH", path_of("workers", id), WorkerView, named))
        self.offer_worker(seq, view)

    async def revoke_worker(self, id: str) -> None:
        await self.in_thread(lambda: self._call("DELETE", path_of("workers", id), type(None)))

    # ---- access

    async def invite(self, request: InviteRequest) -> InviteView:
        made = await self.in_thread(lambda: self.pool.invite(request))
        await self.fetch_access()
        return made

    async def withdraw_invite(self, id: str) -> None:
        await self.in_thread(lambda: self._call("DELETE", path_of("invites", id), type(None)))
        await self.fetch_access()

    async def create_token(self, request: TokenRequest) -> TokenView:
        made = await self.in_thread(lambda: self.pool.create_token(request))
        await self.fetch_access()
        return made

    async def revoke_token(self, id: str) -> None:
        await self.in_thread(lambda: self._call("DELETE", path_of("tokens", id), type(None)))
        await self.fetch_access()

    async def fetch_access(self) -> None:
        if self.me is None or self.me.role != "admin":
            return
        invites = await self.in_thread(lambda: self._call("GET", "/v1/invites", list[InviteView]))
        tokens = await self.in_thread(lambda: self._call("GET", "/v1/tokens", list[TokenView]))
        self.offer(about(invites=invites, tokens=tokens))

    async def verify_ledger(self) -> None:
        self.offer(about(audit=await self.in_thread(self.pool.audit)))

    async def change_pool(self, change: PoolChange) -> None:
        named = {name: value for name, value in msgspec.to_builtins(change).items() if value is not None}
        self.offer(about(pool=await self.in_thread(lambda: self._call("PATCH", "/v1/pool", PoolView, named))))

    async def rotate(self, request: RotateRequest) -> RotateView:
        view = await self.in_thread(lambda: self._call("POST", "/v1/pool/rotate", RotateView, request))
        self.offer(about(pool=await self.in_thread(self.pool.info)))
        return view

    # ---- jobs

    async def plan(self, draft: Draft) -> PlanView:
        view = await self.in_thread(lambda: self.pool.plan(_with_program(draft)))
        return msgspec.structs.replace(view, summary=clean(view.summary), waiting_reason=clean(view.waiting_reason))

    async def submit(self, draft: Draft, key: str) -> JobView:
        def send() -> JobView:
            if self._made[0] != key:  # sent again, it is the same job to the byte: inputs are sealed once
                spec = _with_files(self.pool, draft.spec, draft.files) if draft.files else _with_program(draft)
                self._made = key, _carried(self.pool, spec)
            return self.pool.submit_job(cast("JobSpec", self._made[1]), idempotency_key=key).view

        seq = self.seq
        view = await self.in_thread(send)
        self._offer_job(seq, view)
        return view

    async def cancel(self, id: str) -> None:
        seq = self.seq
        view = await self.in_thread(lambda: self._call("DELETE", path_of("jobs", id), JobView))
        self._offer_job(seq, view)

    async def retry(self, id: str) -> JobView:
        seq = self.seq
        view = await self.in_thread(lambda: self._call("POST", path_of("jobs", id, "retry"), JobView))
        self._offer_job(seq, view)
        return view

    async def purge(self, id: str) -> None:
        target = path_of("jobs", id)
        await self.in_thread(lambda: self.pool.doors.call("DELETE", target, JobView, query={"purge": 1}))

    async def fetch_job(self, id: str) -> None:
        seq = self.seq
        try:
            view = await self.in_thread(lambda: self._call("GET", path_of("jobs", id), JobView))
        except NotFound:
            self.offer(JobGone(id=id))
            return
        self._offer_job(seq, view)

    async def follow_log(self, id: str) -> None:
        pauses = delays(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            begin = True

            def tell(lines: list[LogLine]) -> None:
                nonlocal begin
                self.offer(log_of(id, lines, begin=begin))
                begin = False

            try:
                await Following(Doors(self.pool.doors.access), id).lines(tell)
                return
            except (Forbidden, Unauthorized, NotFound):
                return  # not ours to read: what happens to the job is in the stream of events
            except MoreGPUError:
                await asyncio.sleep(next(pauses))

    async def fetch_signatures(self, id: str) -> None:
        signed = await self.in_thread(lambda: self._call("GET", path_of("jobs", id, "statements"), list[Signed]))
        self.offer(Signatures(job=id, signatures=await self.in_thread(lambda: _verified(id, signed))))

    async def fetch_preview(self, id: str) -> None:
        self.offer(Preview(job=id, lines=await self.in_thread(lambda: self._preview(id))))

    # ---- on a thread

    def _call(self, method: str, path: str, answer: type[T], body: Any = None) -> T:
        return self.pool.doors.call(method, path, answer, body=body, patience_s=2.0)

    def _preview(self, id: str) -> tuple[str, ...]:
        handle = self.pool.job(id)
        view = handle.view
        if view.state != "done":
            return (f"the job is {view.state}: there is no result",)
        if view.result is None:
            return ("only the submitter of a job may open its result: the key is sealed to it",)
        if view.result.dropped:
            return ("a benchmark: its output was checked and dropped",)
        size = sum(tensor.whole_bytes for tensor in view.result.outputs.values())
        if size > LARGEST_PREVIEW_BYTES:
            return (f"{size >> 20:,} MiB: fetch it with  moregpu job {id} --output FILE",)
        found = handle.result()
        arrays: dict[str, Any] = found if isinstance(found, dict) else {"result": found}
        if view.kind == "function":
            return tuple(call_lines(arrays))
        return tuple(itertools.chain.from_iterable(array_lines(name, array) for name, array in arrays.items()))


def _nobody(*_inputs: object) -> None:
    """Inputs before anybody listens."""


def _verified(job: str, signed: list[Signed]) -> tuple[Signature, ...]:
    from moregpu.client.signatures import verify_signed

    found: list[Signature] = []
    for one in signed:
        detail = ""
        try:
            verify_signed(job, one)
        except (HandshakeFailed, DigestMismatch) as error:
            detail = clean(str(error))
        found.append(
            Signature(
                task=clean(one.task, NAME_LIMIT),
                attempt=one.attempt,
                worker=clean(one.worker, NAME_LIMIT),
                worker_name=clean(one.worker_name, NAME_LIMIT),
                verified=not detail,
                ledger_row=one.ledger[1],
                detail=detail,
            )
        )
    return tuple(found)


def _with_program(draft: Draft) -> JobSpec:
    """A function's job with its program and its calls, read from this machine."""
    if not isinstance(draft.spec, FunctionSpec):
        return draft.spec
    from moregpu.client.functions.script_file import completed

    return completed(draft.spec, draft.program, draft.payloads, draft.given)


def _carried(pool: Pool, spec: JobSpec) -> JobSpec:
    """Inputs that no message holds, uploaded."""
    inputs = {
        name: msgspec.structs.replace(tensor, data=pool.blobs().upload_stream(memoryview(tensor.data)))
        if isinstance(tensor.data, bytes) and len(tensor.data) > LARGEST_INLINE_BYTES
        else tensor
        for name, tensor in spec.inputs.items()
    }
    return msgspec.structs.replace(spec, inputs=inputs)


def _with_files(pool: Pool, spec: JobSpec, files: dict[str, str]) -> JobSpec:
    """Read, upload and name the inputs. Pickled objects in a file are refused."""
    import numpy as np

    from moregpu.client.arrays import common_floats, send

    arrays: dict[str, Any] = {}
    for name, path in files.items():
        number = _number(path)
        if number is not None:
            arrays[name] = np.float32(number).reshape(())
            continue
        try:
            arrays[name] = np.load(path, allow_pickle=False)
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from error
        except (ValueError, EOFError, SyntaxError, UnicodeError, MemoryError) as error:
            raise InvalidRequest(f"{path} is no .npy file of numbers", "numpy.save writes them") from error
        if not isinstance(arrays[name], np.ndarray):
            raise InvalidRequest(f"{path} holds several arrays", "save one array to a file: numpy.save")
    floats = common_floats(arrays)
    dtype = "float16" if next(iter(floats.values())).dtype.itemsize == 2 else "float32"
    with ThreadPoolExecutor(2, thread_name_prefix="console-upload") as threads:
        inputs = send(floats, pool.blobs(), threads)
    return msgspec.structs.replace(spec, inputs=inputs, dtype=dtype, size=None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
