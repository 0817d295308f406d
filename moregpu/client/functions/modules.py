"""Which modules are somebody's own files, that no worker has: they travel with the functions that use them."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

_INSTALLED = tuple(
    {
        str(Path(folder).resolve())
        for folder in (*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, sys.exec_prefix)
    }
)
_OURS = ("moregpu", "moregpu_kernels", "moregpu_tui", "moregpu_tray")
_known: dict[str, bool] = {"__main__": True}
_sent: set[str] = set()


def is_own(name: str) -> bool:
    """Whether a module is of the person's own files, or the program that was started."""
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
    file = getattr(module, "__file__", None)
    if file is None or name.partition(".")[0] in _OURS:
        return False
    return not str(Path(file).resolve()).startswith(_INSTALLED)
