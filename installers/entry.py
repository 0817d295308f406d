"""Where every frozen program begins.

In a frozen program `sys.executable` is the program itself, so the processes that we start as `python -m MODULE` arrive
here with those words, and the ones that are ours are run.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

PROGRAMS = {
    "moregpu": "moregpu.cli.main",
    "moregpu-tray": "moregpu_tray.__main__",
    "moregpu-tui": "moregpu_tui.__main__",
}
MODULES = {
    "moregpu": "moregpu.cli.main",
    "moregpu_tray": "moregpu_tray.__main__",
    "moregpu_tray.prompt": "moregpu_tray.prompt",
    "moregpu_tray.who": "moregpu_tray.who",
    "moregpu_tui": "moregpu_tui.__main__",
    "moregpu.worker": "moregpu.worker.__main__",
    "moregpu.worker.process": "moregpu.worker.process",
    "moregpu.worker.child": "moregpu.worker.child",
}


def main() -> None:
    """Run the module that was asked for, else the program that this file's name says."""
    _give_back_the_library_path()
    module = MODULES.get(sys.argv[2]) if sys.argv[1:2] == ["-m"] and len(sys.argv) > 2 else None
    if module is not None:
        sys.argv = [sys.argv[2], *sys.argv[3:]]
    else:
        module = PROGRAMS[Path(sys.argv[0]).stem]
    sys.exit(import_module(module).main())


def _give_back_the_library_path() -> None:
    """Programs of the system that we start (a browser, uv, an interpreter) find the system's libraries, not ours.

    PyInstaller sets the variable before Python begins, and only this process needs it. Our own programs set it anew
    where they are told to begin afresh; else they would take this process's word that it is set.
    """
    if not getattr(sys, "frozen", False):
        return
    os.environ["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before
    else:
        os.environ.pop("LD_LIBRARY_PATH", None)


if __name__ == "__main__":
    main()
