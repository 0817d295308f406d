"""Starts the first process of a sandbox: the same command whatever confines it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec

from moregpu.worker.sandbox import bubblewrap
from moregpu.worker.sandbox.box import CODE, Box, Isolation, code_folder, variables

_ENTRY = "import sys; sys.path.insert(0, {code!r}); from moregpu.worker.sandbox.enter import main; main(*sys.argv[1:])"


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox is started, and what its processes may take."""

    box: Box
    level: Isolation
    folder: Path  # its own on this machine: made-up files, and under Landlock the only place to write
    memory_bytes: int  # of all its processes together
    processes: int
    file_bytes: int
    read: list[str]  # Landlock: what may be read

    @property
    def scratch(self) -> Path:
        """Its folder to write in, where it has no root of its own."""
        return self.folder / "scratch"


ONE_TO_ALL = 10
"""A process meets its own limit, by an error that it can catch, this part before all are ended for theirs."""


def start(how: Confinement, module: str, *arguments: str, fds: tuple[int, ...], output: int) -> subprocess.Popen[bytes]:
    """Start `module.main(*arguments)` confined, with these descriptors and what it prints going to `output`.

    Raises `OSError` where it cannot be started. Must be called on a thread that lives as long as the agent.
    """
    box, environment = how.box, variables(how.box)
    if how.level == "bubblewrap":
        bwrap = bubblewrap.executable()
        if bwrap is None:
            raise FileNotFoundError("bubblewrap is not installed any more")
        etc = how.folder / "etc"
        if not etc.exists():
            user = os.getuid() if box.user is None else box.user
            bubblewrap.write_etc(etc, user, os.getgid() if box.group is None else box.group)
        prefix, code = bubblewrap.arguments(box, bwrap, etc), CODE
    else:
        how.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        if box.user is not None:
            os.chown(how.scratch, box.user, -1 if box.group is None else box.group)
        environment |= {"HOME": str(how.scratch), "TMPDIR": str(how.scratch)}
        prefix, code = [], str(code_folder())
    return subprocess.Popen(
        [*prefix, box.runtime.python, "-I", "-S", "-c", _ENTRY.format(code=code), _facts(how), module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=fds,
        env=environment,
        start_new_session=how.level != "bubblewrap",
    )


def _facts(how: Confinement) -> str:
    """What `enter` is told."""
    box = how.box
    facts = {
        "level": how.level, "user": box.user, "group": box.group, "network": box.network, "read": how.read,
        "memory_bytes": how.memory_bytes - how.memory_bytes // ONE_TO_ALL, "processes": how.processes,
        "file_bytes": how.file_bytes, "scratch": str(how.scratch), "paths": list(box.runtime.paths),
    }  # fmt: skip
    return json.dumps(facts)
