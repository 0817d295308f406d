"""Which Python of a minor version to build on: the worker's own, one that pyenv keeps, else whatever uv finds."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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
