"""A process that was forked: what its parent has open is the parent's alone.

The threads that hear the answers are not in the child, the connections are shared, and a lock that another thread held
is held for ever. So the child begins with nothing open; what it closes is its copy of the descriptors, without a word
to the other end.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod


class Forkable(ABC):
    """Something with connections, threads or locks, that finds itself in a child with nothing of it."""

    @abstractmethod
    def start_over(self) -> None:
        """Begin again, in a child that has one thread. Takes no lock, and says nothing to anybody."""
        ...


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def starts_over_in_a_child(one: Forkable) -> None:
    """Have it start over in each process that is forked from this one."""
    _known.add(one)


def _in_a_child() -> None:
    for one in list(_known):
        one.start_over()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_in_a_child)
