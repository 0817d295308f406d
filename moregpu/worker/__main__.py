"""`python -m moregpu.worker [--state DIR] …`: a worker without the command line's extras, for services and scripts.

The invite of a worker that has not joined yet is read from standard input. With `--until-closed` that is its first
line, and the worker leaves when standard input closes: as whoever started it does by ending, however it ends.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading

from moregpu.errors import MoreGPUError
from moregpu.wire.text import clean
from moregpu.worker.config import WorkerConfig, kept_settings
from moregpu.worker.enrol import find_invite
from moregpu.worker.home import has_joined, wait_until_left, worker_folder
from moregpu.worker.supervisor import STOP_S, run_worker


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
    parser.add_argument("--until-closed", action="store_true", help="leave when standard input closes")
    given = vars(parser.parse_args(arguments))
    until_closed = given.pop("until_closed", False)
    stop = typed = None
    try:
        config = WorkerConfig.checked(**{**kept_settings(), **given})
        folder = worker_folder(config.state)
        if until_closed:
            stop, typed = threading.Event(), io.StringIO(sys.stdin.readline())
            threading.Thread(target=_wait_for_the_end, args=(stop,), name="standard input", daemon=True).start()
            wait_until_left(folder, STOP_S + 1.0)  # the one before may be leaving, its starter having been killed
        invite = None if has_joined(folder) else find_invite(typed=typed)
        return run_worker(config, invite, stop=stop)
    except MoreGPUError as error:
        sys.stderr.write(f"moregpu: {clean(str(error), 1000)}\n")
        return error.exit_code


def _wait_for_the_end(stop: threading.Event) -> None:
    while os.read(0, 4096):  # not by `sys.stdin`: its lock would be held when the interpreter ends
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
