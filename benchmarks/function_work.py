"""What every system is given to do: keyword arguments, and each function imports what it needs."""

from __future__ import annotations

from typing import Any


def trivial(i: int) -> int:
    """Cost nothing."""
    return i + 1


def four_mib(i: int) -> Any:
    """Give 4 MiB that nothing compresses."""
    import numpy as np

    return np.random.default_rng(i).random(524_288)


def echo(array: Any) -> Any:
    """Give back what came."""
    return array


def sleeper(i: int, seconds: float) -> int:
    """Take a while."""
    import time

    time.sleep(seconds)
    return i * 10


def has_numpy(i: int) -> int:
    """Use a package that the call has to name."""
    import numpy as np

    return int(np.add(i, 1))
