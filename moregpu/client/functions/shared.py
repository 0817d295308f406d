"""Values that were sent to the pool once, to be named in many calls."""

from __future__ import annotations

import dataclasses
from typing import Any

from moregpu.encoding import Unencodable
from moregpu.jobs import Tensor
from moregpu.workloads.function.spec import SHARED


@dataclasses.dataclass(frozen=True)
class Shared:
    """A value that `pool.scatter` sent: pass it as an argument, alone or inside lists, tuples and dicts.

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


class Scattered:
    """Where a pool's shared values lie."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._tensors

    def put(self, digest: str, tensor: Tensor) -> Shared:
        """Remember one."""
        self._tensors[digest] = tensor
        return Shared(digest)

    def named_in(self, value: Any) -> dict[str, Tensor]:
        """Those that arguments name, as inputs of a job."""
        found: dict[str, Tensor] = {}
        if self._tensors:
            self._look(value, found)
        return found

    def _look(self, value: Any, found: dict[str, Tensor]) -> None:
        match value:
            case Shared(digest=digest):
                if digest not in self._tensors:
                    raise KeyError("a shared value of another pool: call pool.scatter of this one")
                found[SHARED + digest] = self._tensors[digest]
            case list() | tuple():
                for item in value:
                    self._look(item, found)
            case dict():
                for item in value.values():
                    self._look(item, found)
            case _:
                pass
