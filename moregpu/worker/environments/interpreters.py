"""Which Python to build on: the worker's own, one that pyenv keeps, else whatever uv finds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

OLDEST = (3, 11)
"""Older ones cannot read the pool's own code."""


class _Listed(msgspec.Struct):
    """One line of `uv python list`."""

    version: str
    implementation: str = "cpython"


def best_of(listed: bytes) -> str | None:
    """The minor version to run functions on, of those that `uv python list --output-format json` names.

    This program's own where the machine has it, else the newest; None where there is none that is new enough.
    """
    found: set[tuple[int, int]] = set()
    for each in msgspec.json.decode(listed, type=list[_Listed]):
        major, _, rest = each.version.partition(".")
        minor, _, patch = rest.partition(".")
        # Pre-releases ("3.15.0a3") have no wheels yet.
        if each.implementation == "cpython" and major.isdigit() and minor.isdigit() and patch.isdigit():
            found.add((int(major), int(minor)))
    fit = {version for version in found if version >= OLDEST}
    own = (sys.version_info.major, sys.version_info.minor)
    best = own if own in fit else max(fit, default=None)
    return None if best is None else f"{best[0]}.{best[1]}"


def find(python: str) -> str:
    """What uv is told to build on: a path, or the version for it to look for.

    pyenv's own commands on the path answer for versions that are not chosen by failing, so its folder is looked at.
    """
    for folder in _folders(python):
        path = folder / "bin" / f"python{python}"
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return python


def _folders(python: str) -> list[Path]:
    own = [Path(sys.base_prefix)] if python == f"{sys.version_info.major}.{sys.version_info.minor}" else []
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = root / "versions"
    found = [path for path in kept.glob(f"{python}.*") if path.name.removeprefix(f"{python}.").isdigit()]
    return own + sorted(found, key=lambda path: int(path.name.rpartition(".")[2]), reverse=True)
