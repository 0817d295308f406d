"""What a child calls: a function that came as a cloudpickle, or a script. Opened in the sandbox and nowhere else."""

from __future__ import annotations

import dataclasses
import functools
import linecache
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from moregpu.encoding import Unknown, decode
from moregpu.encoding.standing import replaced

SharedBytes = Mapping[str, memoryview]


class Program:
    """A program that was loaded: `call(arguments, shared)` gives what it returns, or raises what it raises."""

    def __init__(self, call: Callable[[memoryview, SharedBytes], Any], types: dict[str, type]):
        self.call = call
        self.types = types
        """Classes that its results may hold, by name: the encoder adds those it meets."""


def load(form: str, content: memoryview) -> Program:
    """Load a program; raises whatever its modules raise."""
    return _script(bytes(content).decode()) if form == "script" else _function(content)


def _function(content: memoryview) -> Program:
    import cloudpickle

    function, types = cloudpickle.loads(content)
    opened: dict[str, Any] = {}

    def call(arguments: memoryview, shared: SharedBytes) -> Any:
        args, kwargs = decode(arguments, types=types, importing=True)
        if shared:
            args, kwargs = _with_shared((args, kwargs), shared, opened, types)
        return function(*args, **kwargs)

    return Program(call, dict(types))


def _script(text: str) -> Program:
    code = compile(text, "script.py", "exec")
    # There is no such file: tracebacks find its lines here.
    linecache.cache["script.py"] = (len(text), None, text.splitlines(keepends=True), "script.py")

    def call(arguments: memoryview, shared: SharedBytes) -> Any:
        del shared
        module = ModuleType("__main__")
        module.__dict__.update(payload=decode(arguments), __file__="script.py")
        before, sys.modules["__main__"] = sys.modules.get("__main__"), module
        sys.argv[:] = ["script.py"]
        try:
            exec(code, module.__dict__)  # noqa: S102 — the sandbox is for this
            return module.__dict__.get("result")
        finally:
            if before is not None:
                sys.modules["__main__"] = before

    return Program(call, {})


def _with_shared(value: Any, shared: SharedBytes, opened: dict[str, Any], types: dict[str, type]) -> Any:
    """The value with what was scattered put in its place."""

    def scattered(digest: str) -> Any:
        if digest not in opened:
            opened[digest] = decode(shared[digest], types=types, importing=True)
        return opened[digest]

    def stands_for(each: Any) -> Callable[[], Any] | None:
        digest = _digest_of(each)
        return functools.partial(scattered, digest) if digest else None

    return replaced(value, stands_for)


def _digest_of(value: Any) -> str:
    if isinstance(value, Unknown):
        return str(value.fields.get("digest", "")) if value.type.endswith(":Shared") else ""
    if type(value).__name__ == "Shared" and (dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct)):
        return str(getattr(value, "digest", ""))
    return ""
