"""Starts the first process of a sandbox: the same command whatever confines it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from moregpu.worker.sandbox import bubblewrap
from moregpu.worker.sandbox.box import CODE, Box, Isolation, code_folder, variables

ENTRY = "import sys; sys.path[:0] = {paths!r}; from {module} import main; main(*sys.argv[1:])"


def start(
    box: Box, level: Isolation, folder: Path, module: str, *arguments: str, fds: tuple[int, ...], output: int
) -> subprocess.Popen[bytes]:
    """Start `module.main(*arguments)` in the box, with these descriptors and what it prints going to `output`.

    `folder` is the sandbox's own on this machine: made-up files, and under Landlock the only place to write. Raises
    `OSError` where it cannot be started. Must be called on a thread that lives as long as the agent.
    """
    environment = variables(box)
    if level == "bubblewrap":
        bwrap = bubblewrap.executable()
        if bwrap is None:
            raise FileNotFoundError("bubblewrap is not installed any more")
        etc = folder / "etc"
        user = os.getuid() if box.user is None else box.user
        if not etc.exists():
            bubblewrap.write_etc(etc, user, os.getgid() if box.group is None else box.group)
        prefix, code = bubblewrap.arguments(box, bwrap, etc), CODE
    else:
        scratch = folder / "scratch"
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        if box.user is not None:
            os.chown(scratch, box.user, -1 if box.group is None else box.group)
        environment |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
        prefix, code = [], str(code_folder())
    entry = ENTRY.format(paths=[code, *box.runtime.paths], module=module)
    return subprocess.Popen(
        [*prefix, box.runtime.python, "-I", "-c", entry, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=fds,
        env=environment,
        start_new_session=level != "bubblewrap",
    )
