"""joblib over the pool: `moregpu.register_joblib(pool)`, then `with joblib.parallel_config("moregpu"):`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Unpack

from moregpu.client.functions.accelerate import default_pool
from moregpu.client.functions.on_workers import run_items
from moregpu.client.functions.options import THIS_PYTHON, CallOptions
from moregpu.client.functions.program import dumps
from moregpu.errors import MissingExtra

if TYPE_CHECKING:
    from moregpu.client.functions.functions import Functions


def register_joblib(pool: Functions | None = None, **options: Unpack[CallOptions]) -> None:
    """Make `backend="moregpu"` known to joblib: its calls run on `pool` (by default the one `accelerate` uses).

    Workers need no joblib. What the calls return must travel as data. Raises `MissingExtra`.
    """
    try:
        from joblib import parallel  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingExtra("joblib is not installed here", "pip install joblib") from error
    base: Any = parallel.ParallelBackendBase

    class Backend(base):
        """What joblib asks of a backend."""

        supports_retrieve_callback = True
        supports_sharedmem = False
        uses_threads = False
        default_n_jobs = -1

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
            """Begin a `Parallel`."""
            self.parallel = parallel
            self._calls = (pool if pool is not None else default_pool()).calls(**options)
            self._under_way: set[Future[Any]] = set()
            return self.effective_n_jobs(n_jobs)

        def effective_n_jobs(self, n_jobs: int) -> int:
            """How many calls joblib keeps under way: the pool decides how many run.

            Two at the least: where it is told of one, joblib asks no backend and makes the calls in this program.
            """
            asked = pool if pool is not None else default_pool()
            cores = sum(max(1, device.cores) for device in asked.devices())
            return max(2, cores if n_jobs in (-1, None) else n_jobs if n_jobs > 0 else cores + 1 + n_jobs)

        def submit(self, func: Any, callback: Callable[[Any], Any] | None = None) -> Future[Any]:
            """Send a batch of joblib's calls."""
            items = list(getattr(func, "items", [(func, (), {})]))
            future = self._calls.submit(run_items, dumps(items, options.get("python") or THIS_PYTHON))
            self._under_way.add(future)
            future.add_done_callback(self._under_way.discard)
            if callback is not None:
                future.add_done_callback(callback)
            return future

        def apply_async(self, func: Any, callback: Callable[[Any], Any] | None = None) -> Future[Any]:
            """`submit`, as older versions call it."""
            return self.submit(func, callback)

        def retrieve_result_callback(self, out: Future[Any]) -> Any:
            """What a batch gave."""
            return out.result()

        def abort_everything(self, ensure_ready: bool = True) -> None:
            """End what is under way: one of the calls failed, or nobody takes the others' results."""
            for future in list(self._under_way):
                future.cancel()

    parallel.register_parallel_backend("moregpu", Backend)
