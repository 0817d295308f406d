"""`moregpu leave`: this machine leaves its pool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moregpu.cli.show import JsonOption, print_json, say


def leave(
    state: Annotated[
        Path | None, typer.Option(help="The worker's state folder, where it is not the usual one.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask once more.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Forget the pool that this machine works for: keys, enrolment, results and cache go.

    A worker that still runs must be stopped first. The pool's admin removes its entry: moregpu worker remove.
    """
    from moregpu.worker.home import WorkerHome, worker_folder

    home = WorkerHome.existing(worker_folder(str(state) if state else ""))
    try:
        enrolment = home.enrolment
        name = enrolment.pool_name or enrolment.fingerprint if enrolment else ""
        if not yes:
            typer.confirm(f"Leave {name}? Coming back takes a new invite.", abort=True, err=True)
        home.leave()
    finally:
        home.close()
    print_json({"left": name}) if as_json else say("this machine has left {}", name)
