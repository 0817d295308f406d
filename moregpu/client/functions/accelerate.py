"""`@accelerate`: a function that runs on the pool wherever it is called."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from moregpu.client.functions.on_workers import itself
from moregpu.client.functions.options import CallOptions
from moregpu.errors import MoreGPUError, NotConfigured

if TYPE_CHECKING:
    from moregpu.client.functions.executor import Calls
    from moregpu.client.functions.functions import Functions

LOCAL_VARIABLE = "MOREGPU_LOCAL"

log = logging.getLogger("moregpu.client")
_lock = threading.Lock()
_installed: list[Functions] = []


class Accelerated:
    """A function on the pool: call it, `.map` it, `.submit` it, send it elsewhere with `.to("cuda")`."""

    def __init__(self, function: Callable[..., Any], pool: Functions | None, options: CallOptions):
        functools.update_wrapper(self, function)
        self.__moregpu_function__ = function
        self._pool = pool
        self._options = options
        self._lock = threading.Lock()
        self._made: tuple[Functions, Calls] | None = None
        """The pool of the last call, and its Executor with our options."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it on the pool and wait for its result."""
        try:
            calls = self._on_pool()
        except NotConfigured as error:
            return self._here(error, args, kwargs)
        from moregpu.client.functions.executor import awaited

        return awaited(calls.submit(self.__moregpu_function__, *args, **kwargs))

    def submit(self, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it on the pool; its future."""
        return self._on_pool().submit(self.__moregpu_function__, *args, **kwargs)

    def map(self, *iterables: Iterable[Any], timeout: float | None = None) -> list[Any]:
        """Call it once for each item on the pool; all results, in order."""
        return list(self._on_pool().map(self.__moregpu_function__, *iterables, timeout=timeout))

    def distribute(self, parameters: Iterable[Any]) -> list[Any]:
        """Call it once for each set of parameters: see `pool.distribute`."""
        return self._pool_or_default().distribute(self.__moregpu_function__, parameters, **self._options)

    def to(self, device: str) -> Accelerated:
        """The same elsewhere: "cuda" and "gpu" mean a GPU, "cpu" a CPU, other text a device of that name."""
        name = device.partition(":")[0]
        gpu: bool | str = name in ("cuda", "gpu", "mps", "xpu") or (name != "cpu" and device)
        options = cast("CallOptions", {**self._options, "gpu": gpu})
        return Accelerated(self.__moregpu_function__, self._pool, options)

    @property
    def local(self) -> Callable[..., Any]:
        """The function itself, to be called here."""
        return self.__moregpu_function__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Work as a method, too."""
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        return itself, (self.__moregpu_function__,)  # on a worker it is the function alone

    def _on_pool(self) -> Calls:
        pool = self._pool_or_default()
        with self._lock:
            if self._made is None or self._made[0] is not pool:  # another one may have been installed since
                options = cast("CallOptions", {"local": _local(), **self._options})
                self._made = pool, pool.calls(**options)
            return self._made[1]

    def _pool_or_default(self) -> Functions:
        return self._pool if self._pool is not None else default_pool()

    def _here(self, error: MoreGPUError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self._options.get("local", _local()) != "ok":
            raise error
        log.warning("%s runs here: %s", getattr(self, "__name__", "a function"), error.detail)
        return self.__moregpu_function__(*args, **kwargs)


def _local() -> str:
    return "ok" if os.environ.get(LOCAL_VARIABLE, "").lower() in ("1", "ok", "yes", "true") else "never"


@overload
def accelerate(target: Callable[..., Any], /) -> Accelerated: ...


@overload
def accelerate(
    target: Functions | None = None, /, **options: Unpack[CallOptions]
) -> Callable[[Callable[..., Any]], Accelerated]: ...


def accelerate(target: Any = None, /, **options: Unpack[CallOptions]) -> Any:
    """Run a function on the pool wherever it is called.

    `@accelerate` (the pool that `accelerate.install` named, else the one that `moregpu.connect()` finds),
    `@accelerate(pool)`, `@accelerate(pool, gpu=True, timeout=300, requires=["numpy"])`, `@accelerate(cores=8)`.
    """
    from moregpu.client.functions.functions import Functions

    if target is None or isinstance(target, Functions):

        def wrapped(function: Callable[..., Any]) -> Accelerated:
            return Accelerated(function, target, options)

        return wrapped
    if not callable(target):
        raise TypeError(f"accelerate takes a function or a pool, not {type(target).__name__}")
    return Accelerated(target, None, options)


def install(pool: Functions) -> None:
    """Make a pool the one that bare `@accelerate` uses."""
    with _lock:
        _installed[:] = [pool]


accelerate.install = install  # type: ignore[attr-defined]


def default_pool() -> Functions:
    """The installed pool; else one that is connected now, and kept. Raises `NotConfigured`, `Unreachable`.

    A pool that was closed is not opened again behind anybody's back: who closed it installs another.
    """
    with _lock:
        if not _installed:
            from moregpu.client.pool import connect

            _installed.append(connect())
        if _installed[0].is_closed:
            raise NotConfigured(
                "the pool that @accelerate uses was closed", "accelerate.install(moregpu.connect()) names another"
            )
        return _installed[0]
