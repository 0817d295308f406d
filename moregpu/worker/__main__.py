"""`python -m moregpu.worker [--state DIR] …`: a worker without the command line's extras, for services and scripts.

The invite of a worker that has not joined yet is read from standard input.
"""

from __future__ import annotations

import argparse
import sys

from moregpu.errors import MoreGPUError
from moregpu.wire.text import clean
from moregpu.worker.config import WorkerConfig
from moregpu.worker.death import die_with
from moregpu.worker.enrol import find_invite
from moregpu.worker.home import has_joined, worker_folder
from moregpu.worker.supervisor import run_worker


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    defaults = WorkerConfig()
    parser = argparse.ArgumentParser(prog="python -m moregpu.worker", description="Run a worker of a MoreGPU pool.")
    parser.add_argument("--state", default=defaults.state, help="state folder")
    parser.add_argument("--name", default=defaults.name, help="name (default: the machine's)")
    parser.add_argument("--cores", type=int, default=defaults.cores, help="CPU cores to lend (default: all but one)")
    parser.add_argument("--ceiling", type=float, default=defaults.ceiling, help="highest share of a device (0.85)")
    parser.add_argument("--schedule", default=defaults.schedule, help="always, 22:00-07:00, …")
    parser.add_argument("--engine", default=defaults.engine, help="auto, gpu (a software adapter, too) or cpu")
    parser.add_argument("--device", default=defaults.device, help="only graphics adapters whose key begins so")
    parser.add_argument(
        "--with", type=int, default=None, metavar="PID", help="end when this process does; it starts us"
    )
    given = vars(parser.parse_args(arguments))
    parent: int | None = given.pop("with")
    if parent is not None:
        die_with(parent)
    try:
        config = WorkerConfig.checked(**given)
        invite = None if has_joined(worker_folder(config.state)) else find_invite()
        return run_worker(config, invite)
    except MoreGPUError as error:
        sys.stderr.write(f"moregpu: {clean(str(error), 1000)}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
