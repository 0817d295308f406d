"""Values that were sent to the pool once, to be named in many calls."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from moregpu.encoding import Unencodable
from moregpu.encoding.standing import replaced
from moregpu.jobs import Tensor
from moregpu.workloads.function.spec import SHARED


@dataclasses.dataclass(frozen=True)
class Shared:
    """A value that `pool.scatter` sent: pass it as an argument, alone or inside lists, tuples and dicts of any kind.

    The function gets the value itself. Workers fetch it once.
    """

    digest: str


SHARED_TYPE = f"{Shared.__module__}:{Shared.__qualname__}"


def misplaced() -> Unencodable:
    """The error for a shared value that nobody would put the value itself in place of."""
    return Unencodable(
        "what `scatter` gave stands for its value as an argument, or in lists, tuples and dicts of arguments, and "
        "nowhere else: not in a function, a partial, an object or what goes by pickle"
    )


def opened_in(value: Any, opened: Mapping[str, Any]) -> Any:
    """Arguments that were decoded, with the values themselves, by digest, in the place of what stands for them."""

    def stands_for(each: Any) -> Callable[[], Any] | None:
        return functools.partial(opened.__getitem__, each.digest) if isinstance(each, Shared) else None

    return replaced(value, stands_for)


class Scattered:
    """Where a pool's shared values lie, and the classes that they hold."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._types: dict[str, dict[str, type]] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._tensors

    def put(self, digest: str, tensor: Tensor) -> Shared:
        """Remember one."""
        self._tensors[digest] = tensor
        return Shared(digest)

    def holds(self, digest: str, types: dict[str, type]) -> None:
        """Note what a value holds: its bytes name classes that no worker has, so they go with each call of it."""
        # The same bytes may come to mean another class of that name: a notebook's cell that was run again.
        self._types[digest] = types

    def named_in(self, value: Any) -> tuple[dict[str, Tensor], dict[str, type]]:
        """Those that arguments name, as inputs of a job, and the classes in them. Raises `Unencodable`, `KeyError`."""
        found: dict[str, Tensor] = {}
        types: dict[str, type] = {}
        if self._tensors:
            self._look(value, found, set())
            for name in found:
                types |= self._types.get(name.removeprefix(SHARED), {})
        return found, types

    def _look(self, value: Any, found: dict[str, Tensor], seen: set[int], is_in_place: bool = True) -> None:
        if not isinstance(value, Shared):
            if id(value) in seen:  # what goes by pickle may lead back to itself
                return
            seen.add(id(value))
        match value:
            case Shared(digest=digest):
                if not is_in_place:
                    raise misplaced()
                if digest not in self._tensors:
                    raise KeyError("a shared value of another pool: call pool.scatter of this one")
                found[SHARED + digest] = self._tensors[digest]
            case list() | tuple() | collections.deque():
                for item in value:
                    self._look(item, found, seen, is_in_place)
            case dict():
                for key, item in value.items():
                    self._look(key, found, seen, False)
                    self._look(item, found, seen, is_in_place)
            case set() | frozenset():
                for item in value:
                    self._look(item, found, seen, False)
            case _ if dataclasses.is_dataclass(type(value)):
                held = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
                for item in (held | getattr(value, "__dict__", {})).values():
                    self._look(item, found, seen, False)
            case _:
                pass
