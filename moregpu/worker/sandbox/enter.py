"""The first program in a sandbox: it confines itself, and only then loads anything of the environment.

Until then it knows the standard library and the pool's own code alone: a package that somebody asked for may hold
whatever it likes, also under another package's name, and some run code when Python merely starts.
"""

from __future__ import annotations

import importlib
import json
import os
import site
import sys
from typing import Any, NoReturn

from moregpu.worker.sandbox import landlock, limits, seccomp

_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")


def main(facts: str, module: str, *arguments: str) -> NoReturn:
    """Confine this process as `facts` (JSON) says, and go on as `module.main(*arguments)`."""
    wanted: dict[str, Any] = json.loads(facts)
    try:
        confine(wanted)
    except OSError as error:
        sys.stdout.write(f"the sandbox could not be entered: {error.strerror or error}\n")
        sys.stdout.flush()
        os._exit(1)
    sys.path += wanted["paths"]
    site.main()
    importlib.import_module(module).main(*arguments)
    os._exit(0)


def confine(wanted: dict[str, Any]) -> None:
    """Give up what a function must not have. Raises `OSError` where the kernel does not go along."""
    limits.orphans_come_here()
    limits.go_first()
    if wanted["user"] is not None:
        limits.become(wanted["user"], wanted["group"] if wanted["group"] is not None else wanted["user"])
    if os.geteuid() == 0:
        raise PermissionError("functions never run as root")
    limits.apply(memory_bytes=wanted["memory_bytes"], processes=wanted["processes"], file_bytes=wanted["file_bytes"])
    limits.hide()
    match wanted["level"]:
        case "landlock":
            landlock.restrict(read=wanted["read"], write=(wanted["scratch"],), devices=_DEVICES)
            _refuse_unless_scoped()
            os.chdir(wanted["scratch"])
            seccomp.install(seccomp.program(sockets=False))
        case "bubblewrap":
            seccomp.install(seccomp.program(unix_sockets=not wanted["network"]))
        case _:
            pass


def _refuse_unless_scoped() -> None:
    """Signals "to all" must end at the sandbox: if the agent can be reached, nobody may ever send one."""
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    raise PermissionError("Landlock does not confine signals here")
