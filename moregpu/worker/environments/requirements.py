"""What a function may ask to be installed: packages by name, from the index that the worker's owner uses."""

from __future__ import annotations

import re

from blake3 import blake3

from moregpu.errors import EnvironmentRefused

BASE = ("cloudpickle>=3", "msgspec>=0.19")
"""What the pool's own code needs inside a sandbox."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(
    rf"{_NAME}\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?(?:\s*;[^\n\r@]*)?"
)
_PYTHON = re.compile(r"3\.\d{1,2}")


def checked(python: str, requires: tuple[str, ...]) -> tuple[str, ...]:
    """The requirements in one order. Raises `EnvironmentRefused` for what is not a package by name.

    An address, a path, a repository or an option of the installer would be fetched or run outside the sandbox.
    """
    if not _PYTHON.fullmatch(python):
        raise EnvironmentRefused(f"there is no Python {python[:20]!r}", "write its minor version, as in 3.12")
    for each in requires:
        if not _REQUIREMENT.fullmatch(each.strip()):
            raise EnvironmentRefused(
                f"{each[:100]!r} is not a package by name and version",
                'write it as pip does: "numpy", "pandas>=2", "torch==2.6"; addresses and options are not taken',
            )
    return tuple(sorted({each.strip() for each in requires}))


def name_of(python: str, requires: tuple[str, ...]) -> str:
    """The name of the environment that holds these."""
    return blake3("\n".join((python, *BASE, *requires)).encode()).hexdigest()[:32]
