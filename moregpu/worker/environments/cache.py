"""The environments of a worker: found by what they hold, built once, the longest unused thrown away.

Bounded by count and by bytes on disk, but one that a sandbox uses, or a task here waits for, is never thrown away.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from moregpu.errors import EnvironmentUnavailable, MoreGPUError
from moregpu.worker.environments import index
from moregpu.worker.environments.build import build, installed_version, save
from moregpu.worker.environments.requirements import checked, name_of
from moregpu.worker.sandbox.box import Runtime, is_frozen, own_runtime
from moregpu.worker.sandbox.usage import folder_bytes

KEPT = 16
"""Environments at most, whatever they take."""

MOST_BYTES = 20 << 30
"""Of disk for all of them, unless the owner says otherwise; one with torch takes five gigabytes."""

AGAIN_S = 60.0
"""What could not be built is not tried again before: a job's retries would only wait for the network each time."""

BASE_S = 60.0
"""What every sandbox needs is two small wheels: longer than that a worker does not wait for them at its start."""

_SIZE = "size"  # a file in each: bytes on disk
_log = logging.getLogger(__name__)


class Environments:
    """All environments below one folder. Lives on the event loop."""

    def __init__(self, folder: Path, *, downloads: bool = False, most_bytes: int = MOST_BYTES):
        """`downloads`: whether a Python that the machine lacks may be fetched. `most_bytes`: of disk, for all."""
        self._folder = folder
        self._downloads = downloads
        self._most_bytes = most_bytes
        self.used: Callable[[], Iterable[Runtime]] = tuple
        """Gives those that must stay: asked before any is thrown away."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._failed: dict[str, tuple[float, MoreGPUError]] = {}

    async def base(self) -> Runtime:
        """The Python that a sandbox is tried with: the worker's own, or for a packaged program one of the machine's.

        Raises `EnvironmentUnavailable` where there is none.
        """
        if not is_frozen():
            return own_runtime()
        variables = index.variables(os.environ)
        try:
            async with asyncio.timeout(BASE_S):
                version = await installed_version(variables)
                if version is None and not self._downloads:
                    raise EnvironmentUnavailable(
                        "functions need a Python of this machine's, 3.11 or newer, and there is none",
                        "install one (Debian, Ubuntu: sudo apt install python3), or let it be fetched: "
                        "python_downloads = true under [worker] in config.toml",
                    )
                return await self.runtime(version or f"{sys.version_info.major}.{sys.version_info.minor}", ())
        except TimeoutError:
            raise EnvironmentUnavailable(
                f"what functions need could not be fetched within {BASE_S:.0f} s", "it is tried again at the next start"
            ) from None

    async def runtime(self, python: str, requires: tuple[str, ...]) -> Runtime:
        """The Python of that minor version with these packages, built if need be.

        Without packages it is the worker's own Python where that has the version. Raises `EnvironmentRefused` for what
        no worker could build, `EnvironmentUnavailable` for what this one cannot build now.
        """
        requires = checked(python, requires)
        if not requires and not is_frozen() and importlib.util.find_spec("cloudpickle") is not None:
            own = own_runtime()
            if own.version == python:
                return own
        name = name_of(python, requires)
        async with self._locks.setdefault(name, asyncio.Lock()):
            return self._ready(name) or await self._build(name, python, requires)

    def _ready(self, name: str) -> Runtime | None:
        folder = self._folder / name
        try:
            runtime = msgspec.json.decode((folder / "ready.json").read_bytes(), type=Runtime)
        except (OSError, msgspec.MsgspecError):
            return None
        if not Path(runtime.python).exists():  # the interpreter it was built on is gone
            return None
        os.utime(folder / "ready.json")
        return runtime

    async def _build(self, name: str, python: str, requires: tuple[str, ...]) -> Runtime:
        failed = self._failed.pop(name, None)
        if failed is not None and time.monotonic() - failed[0] < AGAIN_S:
            self._failed[name] = failed
            raise type(failed[1])(failed[1].detail, failed[1].hint)
        folder = self._folder / name
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        started = time.monotonic()
        try:
            runtime = await build(folder, python, requires, index.variables(os.environ), downloads=self._downloads)
            save(runtime, folder)
        except MoreGPUError as error:
            now = time.monotonic()
            self._failed = {each: known for each, known in self._failed.items() if now - known[0] < AGAIN_S}
            self._failed[name] = (now, error)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        except OSError as error:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise EnvironmentUnavailable(f"the environment could not be built: {error.strerror or error}") from error
        except asyncio.CancelledError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        _log.info("an environment with %s was built in %.1f s", requires, time.monotonic() - started)
        await asyncio.to_thread(self._weigh, folder)
        now, used = time.time(), {Path(runtime.python) for runtime in self.used()}
        await asyncio.to_thread(self._throw_away, name, used, now)
        return runtime

    def _weigh(self, folder: Path) -> None:
        """Note what an environment takes: to walk over all files of all of them each time would take seconds."""
        (folder / _SIZE).write_text(str(folder_bytes(folder)))

    def _throw_away(self, but: str, used: set[Path], asked_at: float) -> None:
        """`used`: Pythons that were in use at `asked_at`; what somebody asked for since then is, too."""
        ready = sorted(self._folder.glob("*/ready.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        kept, taken = 0, 0
        for path in ready:
            folder, size = path.parent, _size_of(path.parent)
            stays = folder.name == but or any(python.is_relative_to(folder) for python in used)
            stays = stays or path.stat().st_mtime >= asked_at
            if stays or (kept < KEPT and taken + size <= self._most_bytes):
                kept, taken = kept + 1, taken + size
                continue
            _log.info("the environment %s goes: %d MiB", folder.name, size >> 20)
            shutil.rmtree(folder, ignore_errors=True)


def _size_of(folder: Path) -> int:
    try:
        return int((folder / _SIZE).read_text())
    except (OSError, ValueError):  # of a worker that did not weigh them
        return folder_bytes(folder)
