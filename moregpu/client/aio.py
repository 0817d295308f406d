"""The pool for coroutines: the same core, driven by `await`. Jobs are awaited without a thread; uploads take one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from moregpu.client.access import find_access
from moregpu.client.doors import PATIENCE_S
from moregpu.client.kernels import Kernels
from moregpu.client.pool import Pool, output_of
from moregpu.client.programs import Fetch, Program, Step
from moregpu.jobs import Tensor

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, Any]

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(
    method: Callable[Concatenate[Pool, P], T],
) -> Callable[Concatenate[AsyncPool, P], Coroutine[Any, Any, T]]:
    """A method of `Pool`, called on a thread."""

    async def call(self: AsyncPool, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.pool, *args, **kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class AsyncPool(Kernels["Coroutine[Any, Any, Floats]", "Coroutine[Any, Any, float]"]):
    """What `Pool` is, for coroutines: `async with moregpu.connect_async() as pool: C = await pool.matmul(A, B)`."""

    def __init__(self, pool: Pool, timeout_s: float = PATIENCE_S):
        self.pool = pool
        self._timeout_s = timeout_s

    async def __aenter__(self) -> AsyncPool:
        try:
            await self.me(patience_s=self._timeout_s)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await asyncio.to_thread(self.pool.end_calls, cancel=error is not None)
        finally:
            await self.close()  # whoever is cancelled meanwhile waits for no result

    kernel = _in_thread(Pool.kernel)
    formula_job = _in_thread(Pool.formula_job)
    custom_job = _in_thread(Pool.custom_job)
    benchmark = _in_thread(Pool.benchmark)
    submit_job = _in_thread(Pool.submit_job)
    plan = _in_thread(Pool.plan)
    retry = _in_thread(Pool.retry)
    job = _in_thread(Pool.job)
    jobs = _in_thread(Pool.jobs)
    put = _in_thread(Pool.put)
    upload_weight = _in_thread(Pool.upload_weight)
    tensor = _in_thread(Pool.tensor)
    tensors = _in_thread(Pool.tensors)
    drop = _in_thread(Pool.drop)
    fetch = _in_thread(Pool.fetch)
    me = _in_thread(Pool.me)
    info = _in_thread(Pool.info)
    workers = _in_thread(Pool.workers)
    invite = _in_thread(Pool.invite)
    create_token = _in_thread(Pool.create_token)
    tokens = _in_thread(Pool.tokens)
    revoke_token = _in_thread(Pool.revoke_token)
    change_worker = _in_thread(Pool.change_worker)
    network = _in_thread(Pool.network)
    audit = _in_thread(Pool.audit)
    close = _in_thread(Pool.close)

    async def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Call `fn` on the pool: `await (await pool.submit(f, x))`. Cancelling it kills the call."""
        return asyncio.wrap_future(await asyncio.to_thread(self.pool.submit, fn, *args, **kwargs))

    async def map(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> list[Any]:
        """Call `fn` for all items on the pool; all results, in order."""
        calls = self.pool.calls()
        sent = await asyncio.to_thread(calls.submit_all, fn, list(zip(*iterables, strict=False)))
        try:
            return list(await asyncio.gather(*map(asyncio.wrap_future, sent)))
        finally:
            for future in sent:
                future.cancel()  # where one of them failed, nobody will see what the others give

    distribute = _in_thread(Pool.distribute)
    scatter = _in_thread(Pool.scatter)

    async def _array(self, program: Program[Any]) -> Any:
        return await self._run(program)

    async def _number(self, program: Program[float]) -> float:
        return await self._run(program)

    async def _run(self, program: Program[T]) -> T:
        """Drive a program in this coroutine."""
        answer: Any = None
        while True:
            try:
                asked = program.send(answer)
            except StopIteration as end:
                return end.value
            answer = await (self.fetch(asked.tensor) if isinstance(asked, Fetch) else self._carry_out(asked))

    async def _carry_out(self, step: Step) -> Tensor:
        handle = await asyncio.to_thread(self.pool.begin, step)
        await handle.ended()
        return output_of(await asyncio.to_thread(handle.outputs))


def connect_async(
    url: str | None = None,
    token: str | None = None,
    *,
    profile: str | None = None,
    pin: str | None = None,
    timeout_s: float = PATIENCE_S,
) -> AsyncPool:
    """`connect` for coroutines: `async with moregpu.connect_async() as pool:`. The pool is reached on entering."""
    return AsyncPool(Pool(find_access(url, token, profile=profile, pin=pin), progress=False), timeout_s)
