"""What may be said about calls: where they may run, how long, what they need."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from numbers import Real
from typing import Any, Literal, TypedDict, get_args

import msgspec

from moregpu.errors import InvalidJob
from moregpu.jobs import Check, Tensor
from moregpu.workloads.function.spec import Form, FunctionSpec, Isolate

Local = Literal["never", "ok"]

THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


class CallOptions(TypedDict, total=False):
    """Options of `accelerate`, `pool.calls` and `distribute`; all may be left out."""

    gpu: bool | str
    """True: a GPU; text: one whose name holds it ("A100")."""
    cores: int
    memory: str | int
    """Of main memory, for one task: "16GB"."""
    vram: str | int
    timeout: float
    """Seconds for one call."""
    requires: Iterable[str]
    """Packages, as pip takes them."""
    python: str
    retry_on: type[BaseException] | Iterable[type[BaseException]]
    """What a call raised for which it is called again, up to `retries` times. By default only the pool's own failures
    are, by themselves."""
    retries: int
    idempotent: bool
    """False: never called twice; where nobody knows whether it ran, `TaskLost`."""
    isolate: Isolate
    network: bool
    group: str
    priority: int
    name: str
    check: Check
    detach: bool
    """Go on when this program is gone."""
    allow_pickle: bool
    """Arguments that cannot travel as data go by pickle, which is opened in the worker's sandbox."""
    local: Local
    """"ok": call it here where the pool has nobody for it."""
    progress: bool


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Options, read."""

    gpu: bool = False
    device: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    vram_bytes: int | None = None
    time_limit_s: float | None = None
    requires: tuple[str, ...] = ()
    python: str = THIS_PYTHON
    retry_on: tuple[type[BaseException], ...] = ()
    retries: int = 4
    idempotent: bool = True
    isolate: Isolate = "job"
    network: bool = False
    group: str | None = None
    priority: int = 0
    name: str = ""
    check: Check = "none"
    detach: bool = False
    allow_pickle: bool = False
    local: Local = "never"
    progress: bool | None = None

    def spec(
        self, *, function: str, form: Form, calls: tuple[int, ...], inputs: dict[str, Tensor], session: str = ""
    ) -> FunctionSpec:
        """The job of calls with these options. Without a session nobody attends it, so it goes on alone."""
        return FunctionSpec(
            calls=calls,
            inputs=inputs,
            form=form,
            session=session,
            function=function,
            name=self.name or function,
            requires=self.requires,
            python=self.python,
            idempotent=self.idempotent,
            isolate=self.isolate,
            network=self.network,
            cores=self.cores,
            gpu=self.gpu,
            device=self.device,
            vram_bytes=self.vram_bytes,
            memory_bytes=self.memory_bytes,
            time_limit_s=self.time_limit_s,
            group=self.group,
            priority=self.priority,
            check=self.check,
            detach=self.detach or not session,
        )


def chosen(options: CallOptions | dict[str, Any]) -> Chosen:
    """Read options; raises `InvalidJob` for what cannot be meant, `TypeError` for a name that is none."""
    left: dict[str, Any] = {**options}
    read: dict[str, Any] = {}
    gpu = left.pop("gpu", None)
    if gpu is not None:
        read |= {"gpu": bool(gpu), "device": gpu if isinstance(gpu, str) else None}
    for name, field in (("memory", "memory_bytes"), ("vram", "vram_bytes")):
        value = left.pop(name, None)
        if value is not None:
            read[field] = size_in_bytes(value)
    if (timeout := left.pop("timeout", None)) is not None:
        if not isinstance(timeout, Real):
            raise InvalidJob(f"a timeout of {timeout!r}", "give seconds, as a number")
        if not float(timeout) > 0:
            raise InvalidJob(f"a timeout of {timeout!r} seconds", "give more than 0")
        read["time_limit_s"] = float(timeout)
    requires = left.pop("requires", None)
    if requires is not None:
        read["requires"] = (requires,) if isinstance(requires, str) else tuple(sorted(requires))
    retry_on = left.pop("retry_on", None)
    if retry_on is not None:
        kinds = tuple(retry_on) if isinstance(retry_on, Iterable) else (retry_on,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise InvalidJob(f"retry_on={retry_on!r}", "give a class of exceptions, or several")
        read["retry_on"] = kinds
    if left.get("local") not in (None, *get_args(Local)):
        raise InvalidJob(f"local={left['local']!r}", 'give "ok", to let calls run here too, or "never"')
    unknown = left.keys() - set(Chosen.__struct_fields__)
    if unknown:
        raise TypeError(f"there is no option {sorted(unknown)[0]!r}")
    return Chosen(**read, **{name: value for name, value in left.items() if value is not None})


def size_in_bytes(value: str | int | float) -> int:
    """Read "16GB", "512 MiB" or a number of bytes."""
    if isinstance(value, int | float):
        return int(value)
    found = _SIZE.fullmatch(value)
    if found is None:
        raise InvalidJob(f"{value!r} is no size", 'write it as "16GB" or "512MiB"')
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])
