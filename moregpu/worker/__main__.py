"""`python -m moregpu.worker [--state DIR] …`: a worker without the command line's extras, for services and scripts.

The invite of a worker that has not joined yet is read from standard input.
"""

from __future__ import annotations

import argparse
import sys

from moregpu.errors import MoreGPUError
from moregpu.wire.text import clean
from moregpu.worker.config import WorkerConfig, kept_settings
from moregpu.worker.death import die_with
from moregpu.worker.enrol import find_invite
from moregpu.worker.home import has_joined, worker_folder
from moregpu.worker.supervisor import run_worker


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m moregpu.worker",
        description="Run a worker of a MoreGPU pool. What is not given is as [worker] of config.toml says.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--state", help="state folder")
    parser.add_argument("--name", help="name (default: the machine's)")
    parser.add_argument("--cores", type=int, help="CPU cores to lend (default: all but one)")
    parser.add_argument("--ceiling", type=float, help="highest share of a device (0.85)")
    parser.add_argument("--schedule", help="always, 22:00-07:00, …")
    parser.add_argument("--engine", help="auto, gpu (a software adapter, too) or cpu")
    parser.add_argument("--device", help="only graphics adapters whose key begins so")
    parser.add_argument("--with", type=int, metavar="PID", help="end when this process does; it starts us")
    given = vars(parser.parse_args(arguments))
    parent: int | None = given.pop("with", None)
    if parent is not None:
        die_with(parent)
    try:
        config = WorkerConfig.checked(**{**kept_settings(), **given})
        invite = None if has_joined(worker_folder(config.state)) else find_invite()
        return run_worker(config, invite)
    except MoreGPUError as error:
        sys.stderr.write(f"moregpu: {clean(str(error), 1000)}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
