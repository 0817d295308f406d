"""Measured choices: which variant is the fastest on this very device, among those that pass the bound on it.

Every choice is a file of its own, named by digests of the device and of the library's kernels: a choice from another
driver or an older kernel is simply not found. Files are written whole and moved into place, and carry a checksum: one
that is half written or damaged counts as absent, and two processes that tune at once both end with a good file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from moregpu_kernels.errors import KernelError
from moregpu_kernels.executor import Executor
from moregpu_kernels.layout import Request
from moregpu_kernels.plan import bucket, candidates
from moregpu_kernels.reference_others import expect_any
from moregpu_kernels.template import FOLDER, Value

log = logging.getLogger(__name__)

RUNS: Final = 5
"""Timed runs of a variant; the median counts."""
MARGIN: Final = 0.97
"""Another variant than the default must be faster by this factor: noise must not make choices."""

_FORMAT: Final = 1


class TuneCache:
    """Choices on disk for one device. Reads as a mapping bucket → variant."""

    def __init__(self, folder: Path, identity: str):
        self.folder = folder / f"{identity}-{kernels_digest()}"
        self._known: dict[str, str] | None = None

    def choices(self) -> Mapping[str, str]:
        """All choices that can be read."""
        if self._known is None:
            self._known = dict(self._read())
        return self._known

    def store(self, name: str, variant: str, seconds: Mapping[str, float]) -> None:
        """Write one choice: whole or not at all. A folder that cannot be written is logged, not an error."""
        body = {"format": _FORMAT, "bucket": name, "variant": variant, "seconds": dict(seconds), "at": time.time()}
        text = json.dumps(body, sort_keys=True)
        content = json.dumps({"checksum": _checksum(text), "body": text})
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self._path(name))
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            log.warning("The measured choice for %s could not be kept: %s", name, error)
        self._known = {**self.choices(), name: variant}

    def _path(self, name: str) -> Path:
        return self.folder / f"{hashlib.blake2b(name.encode(), digest_size=10).hexdigest()}.json"

    def _read(self) -> Iterator[tuple[str, str]]:
        if not self.folder.is_dir():
            return
        for path in sorted(self.folder.glob("*.json")):
            try:
                outer = json.loads(path.read_text(encoding="utf-8"))
                if outer["checksum"] != _checksum(outer["body"]):
                    raise ValueError("its checksum is wrong")
                body = json.loads(outer["body"])
                if body["format"] == _FORMAT:
                    yield str(body["bucket"]), str(body["variant"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("The measured choice in %s is left out: %s", path.name, error)


def default_folder() -> Path:
    """Where choices are kept: MOREGPU_KERNEL_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("MOREGPU_KERNEL_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "moregpu" / "kernels"


def kernels_digest() -> str:
    """A digest of all WGSL and of the planners: choices made for other kernels say nothing about these."""
    digest = hashlib.blake2b(digest_size=8)
    for path in (*sorted(FOLDER.glob("*.wgsl")), *sorted(FOLDER.parent.glob("plan*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def tune(
    executor: Executor,
    cache: TuneCache,
    request: Request,
    *,
    runs: int = RUNS,
    progress: Callable[[str, float], None] | None = None,
) -> str:
    """Measure the variants of a request on made-up data, keep the best and return it.

    A variant that fails to compile here, or whose result leaves the bound, is out. `progress` gets each variant and
    its median seconds (infinite where it is out).
    """
    arrays = sample(request)
    dtype = request.dtype
    expected = expect_any(request.operation, arrays, request.parameters, dtype)
    seconds: dict[str, float] = {}
    names = candidates(request, executor.device.traits)
    for variant in names:
        seconds[variant] = _measure(executor, request, arrays, variant, expected.ratio, runs)
        if progress:
            progress(variant, seconds[variant])
    default = names[0]
    best = min(names, key=lambda name: seconds[name])
    if seconds[best] > MARGIN * seconds[default]:
        best = default
    if not np.isfinite(seconds[best]):
        raise KernelError(
            f"No variant of {request.operation} is right on {executor.device.info.label}",
            "This device must not be used: update its driver",
        )
    cache.store(bucket(request), best, {name: value for name, value in seconds.items() if np.isfinite(value)})
    return best


def sample(request: Request, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Zero-mean data for a request, the same for the same seed."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, NDArray[Any]] = {}
    for name, shape in request.shapes.items():
        if name == "quants":
            arrays[name] = rng.integers(0, 2**32, shape, dtype=np.uint32)
        elif name == "scales":
            arrays[name] = (rng.random(shape) * 0.01).astype(np.float16)
        else:
            arrays[name] = rng.standard_normal(shape, dtype=np.float32).astype(request.dtype)
    return arrays


def _measure(
    executor: Executor,
    request: Request,
    arrays: Mapping[str, NDArray[Any]],
    variant: str,
    ratio: Callable[[NDArray[Any]], NDArray[np.float64]],
    runs: int,
) -> float:
    parameters: dict[str, Value] = dict(request.parameters)
    try:
        output = executor.apply(request.operation, arrays, parameters, variant=variant)
    except KernelError as error:
        log.warning("%s/%s does not run here: %s", request.operation, variant, error)
        return float("inf")
    if not bool(np.all(ratio(output) <= 1.0)):
        log.warning("%s/%s leaves its bound on %s", request.operation, variant, executor.device.info.label)
        return float("inf")
    times: list[float] = []
    for _ in range(runs):
        started = time.perf_counter()
        executor.apply(request.operation, arrays, parameters, variant=variant)
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
