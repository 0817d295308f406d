"""Adapters and devices: which there are, opening one, its byte ledger, its loss and recovery.

Importing this module does not import wgpu (a second when cold): that happens when a device is opened. The native
library and its drivers print to standard error as they please, so listing adapters for a person goes through a child
process (`probe`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from moregpu_kernels.errors import BudgetExceeded, DeviceLost, KernelError, NoAdapter, ProbeFailed, WrongThread
from moregpu_kernels.layout import Limits, Traits
from moregpu_kernels.native import Native

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S: Final = 30.0
LEAST_BUDGET_BYTES: Final = 1 << 30
MOST_BUDGET_BYTES: Final = 4 << 30

_FEATURES: Final = ("subgroup",)
"""What kernels use where it is there. Float16 needs none: it is stored as pairs of bits."""
_BACKENDS: Final = ("Vulkan", "Metal", "D3D12", "OpenGL", "OpenGLES")
"""Of one device seen through several backends, the first of these is kept."""
_KINDS: Final = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "software"}


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """One adapter. `key` names it to `open_device`; two identical cards get `…#0` and `…#1`."""

    key: str
    name: str
    vendor: str
    driver: str
    backend: str
    kind: str  # discrete, integrated, software or unknown
    position: int  # in the library's own list
    features: tuple[str, ...]
    limits: Mapping[str, int]
    subgroup_size: int = 0  # the smallest that it may use; 0: not known

    @property
    def is_software(self) -> bool:
        """A CPU that plays GPU: right, but no faster than NumPy; never chosen unless asked for."""
        return self.kind == "software"

    @property
    def label(self) -> str:
        """The name as shown to people."""
        return f"{self.name} (software)" if self.is_software else self.name

    @property
    def identity(self) -> str:
        """A digest of device, driver and backend: what a measurement on this adapter is worth for."""
        text = "\0".join((self.name, self.vendor, self.driver, self.backend, self.kind))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def describe(found: Iterable[tuple[Mapping[str, Any], Sequence[str], Mapping[str, int]]]) -> tuple[AdapterInfo, ...]:
    """Turn what the library lists (info, features, limits) into adapters, each device once, the best first.

    A device that several backends show is kept under the best backend. Two equal entries of one backend are two
    cards, except where they are software: Mesa's is listed twice on some systems.
    """
    entries = [(position, *entry) for position, entry in enumerate(found)]
    entries.sort(key=lambda entry: (_backend_rank(str(entry[1].get("backend_type", ""))), entry[0]))
    cards: dict[tuple[str, Any], list[tuple[int, Mapping[str, Any], Sequence[str], Mapping[str, int]]]] = {}
    for entry in entries:
        info = entry[1]
        same = cards.setdefault((str(info.get("device", "")), info.get("device_id")), [])
        is_other_backend = bool(same) and same[0][1].get("backend_type") != info.get("backend_type")
        if not same or not (is_other_backend or info.get("adapter_type") == "CPU"):
            same.append(entry)
    adapters = [
        _adapter(*entry, number if len(same) > 1 else None)
        for same in cards.values()
        for number, entry in enumerate(same)
    ]
    order = ("discrete", "integrated", "unknown", "software")
    return tuple(sorted(adapters, key=lambda adapter: (order.index(adapter.kind), adapter.position)))


def _backend_rank(backend: str) -> int:
    return _BACKENDS.index(backend) if backend in _BACKENDS else len(_BACKENDS)


def _adapter(
    position: int, info: Mapping[str, Any], features: Sequence[str], limits: Mapping[str, int], number: int | None
) -> AdapterInfo:
    name = str(info.get("device") or "unnamed adapter")
    backend = str(info.get("backend_type", ""))
    slug = "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())[:48]
    return AdapterInfo(
        key=f"{backend.lower()}:{slug}" + ("" if number is None else f"#{number}"),
        name=name,
        vendor=str(info.get("vendor", "")),
        driver=str(info.get("description", "")),
        backend=backend,
        kind=_KINDS.get(str(info.get("adapter_type", "")), "unknown"),
        position=position,
        features=tuple(sorted(features)),
        limits={str(name): int(value) for name, value in limits.items()},
        subgroup_size=_subgroup_size(name, info),
    )


def _subgroup_size(name: str, info: Mapping[str, Any]) -> int:
    """The smallest subgroup that the adapter may use.

    The graphics library says 4 of every Vulkan adapter. Mesa's llvmpipe has its vector's width in its name, and a
    subgroup is one vector of 32-bit lanes there: `llvmpipe (LLVM 15.0.6, 256 bits)` has subgroups of 8.
    """
    if found := re.fullmatch(r"llvmpipe \(LLVM [\d.]+, (128|256|512) bits\)", name):
        return int(found.group(1)) // 32
    # wgpu-py 0.32 spells "subgroup" so.
    return int(info.get("subgroup_min_size", info.get("stackgroup_min_size", 0)) or 0)


# ---- listing -------------------------------------------------------------------------------------------------------


def probe(timeout_s: float = PROBE_TIMEOUT_S, command: Sequence[str] | None = None) -> tuple[AdapterInfo, ...]:
    """List the adapters in a child process, whose crash, hang or chatter stays its own. Empty: there is none.

    Raises
    ------
    ProbeFailed
        The child crashed, said nothing that can be read, or did not end within `timeout_s`.

    """
    arguments = list(command or (sys.executable, "-m", "moregpu_kernels.device"))
    hint = "The graphics driver may be broken: try `vulkaninfo`, or run on the CPU"
    try:
        done = subprocess.run(arguments, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        tail = _tail(error.stderr)
        raise ProbeFailed(f"Listing the graphics adapters took longer than {timeout_s:g} s", hint, tail) from None
    except OSError as error:
        raise ProbeFailed(f"The adapter probe could not be started: {error}", hint) from None
    try:
        answer = json.loads(done.stdout.decode(errors="replace").strip().rpartition("\n")[2])
        if "error" in answer:
            raise ProbeFailed(str(answer["error"]), str(answer.get("hint", "")), _tail(done.stderr))
        return tuple(_read_adapter(entry) for entry in answer["adapters"])
    except (ValueError, KeyError, TypeError):
        raise ProbeFailed(
            f"The adapter probe ended with status {done.returncode} and no answer", hint, _tail(done.stderr)
        ) from None


def _read_adapter(entry: dict[str, Any]) -> AdapterInfo:
    fields: dict[str, Any] = {**entry, "features": tuple(entry["features"])}
    return AdapterInfo(**fields)


def list_adapters() -> tuple[AdapterInfo, ...]:
    """List the adapters in this process (drivers may print to standard error).

    Raises
    ------
    NoAdapter
        wgpu is not installed, or its native library cannot be loaded.

    """
    return describe(_raw(adapter) for adapter in _enumerate())


def _enumerate() -> list[Any]:
    try:
        import wgpu

        return wgpu.gpu.enumerate_adapters_sync()
    except (ImportError, RuntimeError, OSError) as error:
        raise NoAdapter(
            f"The graphics library cannot be used: {error}", "Install it with: pip install 'moregpu[gpu]'"
        ) from None


def _raw(adapter: Any) -> tuple[Mapping[str, Any], Sequence[str], Mapping[str, int]]:
    return dict(adapter.info), sorted(adapter.features), {str(k): int(v) for k, v in dict(adapter.limits).items()}


def _tail(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")[-2000:]


# ---- the byte ledger -----------------------------------------------------------------------------------------------


class Ledger:
    """Counts the bytes held on a device: software adapters, and some real ones, do not report running out."""

    def __init__(self, budget_bytes: int):
        self.budget_bytes = budget_bytes
        self.held_bytes = 0
        self.peak_bytes = 0

    def charge(self, size_bytes: int) -> None:
        """Take `size_bytes` from the budget, or raise BudgetExceeded and take nothing."""
        if self.held_bytes + size_bytes > self.budget_bytes:
            raise BudgetExceeded(size_bytes, self.held_bytes, self.budget_bytes)
        self.held_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def refund(self, size_bytes: int) -> None:
        """Give back what was charged."""
        self.held_bytes -= size_bytes

    @property
    def free_bytes(self) -> int:
        """What may still be charged."""
        return self.budget_bytes - self.held_bytes


# ---- a device ------------------------------------------------------------------------------------------------------


class Device:
    """An open device. One thread owns it: the one that opened it.

    `generation` counts how often it was built again after a loss: whoever keeps buffers or pipelines compares it.
    """

    def __init__(self, info: AdapterInfo, budget_bytes: int, limits: Mapping[str, int] | None = None):
        self.info = info
        self.ledger = Ledger(budget_bytes)
        self.generation = 0
        self._lowered = dict(limits or {})
        self._owner = threading.get_ident()
        self._open()

    def _open(self) -> None:
        adapter = _find(self.info)
        wanted = {
            name: self._lowered.get(name, self.info.limits[name])
            for name in ("max-buffer-size", "max-storage-buffer-binding-size")
            if name in self.info.limits
        }
        features = [name for name in _FEATURES if name in self.info.features]
        try:
            self.native: Any = adapter.request_device_sync(
                label="moregpu", required_limits=wanted, required_features=features
            )
        except Exception as error:
            if not is_native_error(error):
                raise
            raise NoAdapter(
                f"{self.info.label} does not open: {error}", "Update its driver, or run on the CPU"
            ) from None
        self.queue: Any = self.native.queue
        self.fast = Native(self.native)
        self.ledger.held_bytes = 0
        self.traits = _traits(self.info, dict(self.native.limits), set(self.native.features))

    def buffer(self, size_bytes: int, *, staging: bool = False) -> Any:
        """Allocate at least `size_bytes` (rounded up to 256), for compute, or as a staging buffer that can be mapped.

        Raises
        ------
        BudgetExceeded
            The ledger's budget does not allow it, or the device has no such buffer.

        """
        import wgpu

        self.check_thread()
        size = round_up(max(size_bytes, 256))
        if size > self.traits.limits.max_buffer_bytes:
            raise BudgetExceeded(size, 0, self.traits.limits.max_buffer_bytes)
        self.ledger.charge(size)
        usage = wgpu.BufferUsage
        flags = (
            usage.MAP_READ | usage.COPY_DST
            if staging
            else usage.STORAGE | usage.UNIFORM | usage.COPY_SRC | usage.COPY_DST
        )
        try:
            return self.native.create_buffer(size=size, usage=flags)
        except BaseException as error:
            self.ledger.refund(size)
            if type(error).__name__ == "GPUOutOfMemoryError":
                raise BudgetExceeded(size, self.ledger.held_bytes, self.ledger.held_bytes) from None
            raise

    def free(self, buffer: Any) -> None:
        """Give a buffer back at once."""
        self.ledger.refund(buffer.size)
        buffer.destroy()

    def check_thread(self) -> None:
        """Raise WrongThread unless the calling thread owns this device."""
        if threading.get_ident() != self._owner:
            raise WrongThread(
                f"{self.info.label} belongs to another thread", "Open a device for each thread, or hand the work over"
            )

    def wait(self) -> None:
        """Block until everything submitted is done."""
        self.fast.wait()

    def is_lost(self) -> bool:
        """Ask the device for a trifle: whether it is gone."""
        import wgpu

        try:
            self.native.create_buffer(size=256, usage=wgpu.BufferUsage.COPY_DST).destroy()
        except Exception as error:
            if not is_native_error(error):
                raise
            return "lost" in str(error)
        return False

    def rebuild(self) -> None:
        """Open the device again after a loss; everything that lived on it is gone.

        Raises
        ------
        DeviceLost
            The adapter is gone or does not open.

        """
        log.warning("%s was lost, it is built again", self.info.label)
        try:
            self._open()
        except KernelError as error:
            raise DeviceLost(
                f"{self.info.label} was lost and does not come back: {error.detail}", "Run on the CPU, or restart"
            ) from None
        self.generation += 1

    def close(self) -> None:
        """Release the device and everything on it."""
        self.native.destroy()


def open_device(
    key: str | None = None,
    *,
    budget_bytes: int | None = None,
    allow_software: bool = True,
    limits: Mapping[str, int] | None = None,
) -> Device:
    """Open the adapter named `key` (or a unique beginning of it), or the best one.

    `limits` lowers `max-buffer-size` or `max-storage-buffer-binding-size`, to behave like a smaller device.

    Raises
    ------
    NoAdapter
        There is none, none of that name, or only software where `allow_software` is false.

    """
    adapters = list_adapters()
    fitting = [a for a in adapters if (key is None or a.key.startswith(key)) and (allow_software or not a.is_software)]
    exact = [a for a in fitting if a.key == key]
    if exact:
        fitting = exact
    if not fitting:
        there = ", ".join(a.key for a in adapters) or "none"
        raise NoAdapter(
            f"No graphics adapter fits {key or 'the request'}; there are: {there}", "Run on the CPU instead"
        )
    return Device(fitting[0], default_budget_bytes(fitting[0]) if budget_bytes is None else budget_bytes, limits)


def default_budget_bytes(info: AdapterInfo) -> int:
    """A careful budget, since nobody tells a device's memory: half the largest buffer, between 1 and 4 GiB.

    What shares the machine's own memory takes at most a quarter of it, a software adapter half.
    """
    memory = _machine_bytes()
    if info.is_software:
        return memory // 2
    budget = min(max(int(info.limits.get("max-buffer-size", 0)) // 2, LEAST_BUDGET_BYTES), MOST_BUDGET_BYTES)
    return budget if info.kind == "discrete" else min(budget, memory // 4)


def _machine_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 4 * LEAST_BUDGET_BYTES


def is_native_error(error: BaseException) -> bool:
    """Tell whether an exception comes from the graphics library (its classes have no common base of their own)."""
    return type(error).__name__.startswith("GPU") or isinstance(error, RuntimeError | OSError)


def recover(device: Device, work: Callable[[], Any]) -> Any:
    """Do `work`; where the device is lost in the middle, build it again and do it once more.

    Raises
    ------
    DeviceLost
        It was lost again.
    KernelError
        The graphics library refused the work for another reason.

    """
    for is_last in (False, True):
        try:
            return work()
        except Exception as error:
            if not is_native_error(error):
                raise
            if not device.is_lost():
                refused = _refused(error)
                if refused is None:
                    raise
                raise refused from error
            if is_last:
                hint = "Run on the CPU, and check its driver"
                raise DeviceLost(f"{device.info.label} was lost twice in a row", hint) from None
        device.rebuild()
    return None


def _refused(error: Exception) -> KernelError | None:
    """An error of the graphics library as one of ours; None for others, such as a caller's own RuntimeError."""
    if not type(error).__name__.startswith("GPU"):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return KernelError(f"The graphics driver refused the work: {lines[-1] if lines else type(error).__name__}")


def round_up(size_bytes: int, step: int = 256) -> int:
    """Round up to a multiple of `step`: 256 is WebGPU's largest offset alignment."""
    return -(-size_bytes // step) * step


def _find(info: AdapterInfo) -> Any:
    adapters = _enumerate()
    for found in describe(_raw(adapter) for adapter in adapters):
        if found.key == info.key:
            return adapters[found.position]
    raise NoAdapter(f"{info.label} is not there any more", "Check the cable and the driver, or run on the CPU")


def _traits(info: AdapterInfo, limits: Mapping[str, int], features: set[str]) -> Traits:
    return Traits(
        kind=info.kind,
        vendor=info.vendor,
        identity=info.identity,
        features=frozenset(features & set(_FEATURES)),
        subgroup_size=info.subgroup_size if "subgroup" in features else 0,
        limits=Limits(
            max_binding_bytes=int(limits["max-storage-buffer-binding-size"]),
            max_buffer_bytes=int(limits["max-buffer-size"]),
            max_groups=int(limits["max-compute-workgroups-per-dimension"]),
            workgroup_bytes=int(limits["max-compute-workgroup-storage-size"]),
            invocations=int(limits["max-compute-invocations-per-workgroup"]),
            offset_alignment=max(int(limits["min-storage-buffer-offset-alignment"]), 16),
        ),
    )


def _probe_here() -> int:
    """The child's side of `probe`: one line of JSON on standard output."""
    try:
        answer: dict[str, Any] = {"adapters": [asdict(adapter) for adapter in list_adapters()]}
    except NoAdapter as error:
        answer = {"error": error.detail, "hint": error.hint}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_probe_here())
