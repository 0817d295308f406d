"""Which modules are somebody's own files, that no worker has: they travel with the functions that use them."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

_STANDARD = tuple(
    {
        Path(folder).resolve()
        for folder in (
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
            Path(sys.base_prefix, "DLLs"),  # of Windows
        )
        if folder
    }
)
_INSTALLERS = frozenset({"site-packages", "dist-packages"})
"""Folders that installers fill, wherever they are: a person's own ones and the system's, too. The folders that Python
itself was installed to say nothing: `python -m venv .` makes one's project such a folder, and /usr holds /usr/src."""

_OURS = ("moregpu", "moregpu_kernels", "moregpu_tui", "moregpu_tray")
_known: dict[str, bool] = {"__main__": True}
_sent: set[str] = set()


def is_own(name: str | None) -> bool:
    """Whether a module is of the person's own files, or the program that was started.

    None: what `exec` made among names that say no module; nobody can import that.
    """
    if name is None:
        return True
    if name not in _known:
        _known[name] = _is_own(name, sys.modules.get(name))
    return _known[name]


def send_own_modules(send: Callable[[ModuleType], object]) -> None:
    """Have every module that is loaded and one's own sent by value."""
    for name, module in list(sys.modules.items()):
        if name not in _sent and isinstance(module, ModuleType) and name != "__main__":
            _sent.add(name)
            if is_own(name):
                send(module)


def _is_own(name: str, module: ModuleType | None) -> bool:
    if name.partition(".")[0] in _OURS:
        return False
    file = getattr(module, "__file__", None)
    # A package without `__init__.py` has folders alone.
    places = [file] if file is not None else [*getattr(module, "__path__", ())]
    return bool(places) and not any(map(_is_installed, map(Path, places)))


def _is_installed(place: Path) -> bool:
    whole = place.resolve()
    # Its name as it was found counts, too: some installers link to a store of theirs.
    return not _INSTALLERS.isdisjoint((*place.parts, *whole.parts)) or any(map(whole.is_relative_to, _STANDARD))
