"""`moregpu join`: give this machine's idle time to a pool, and go on doing so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from moregpu.cli.kept import together, typed
from moregpu.cli.show import JsonOption
from moregpu.errors import InvalidRequest, InviteRefused
from moregpu.platform.asking import ask_for_line
from moregpu.wire.invite import Invite, lacks_its_end, parse_invite
from moregpu.worker.adapters import EngineChoice
from moregpu.worker.config import WorkerConfig, kept_settings
from moregpu.worker.enrol import find_invite, introduction, refuse_argument
from moregpu.worker.home import has_joined, worker_folder
from moregpu.worker.supervisor import run_worker


def join(
    context: typer.Context,
    given: Annotated[str, typer.Argument(hidden=True)] = "",
    cores: Annotated[int, typer.Option(min=0, help="CPU cores to lend; 0: all but one.")] = 0,
    name: Annotated[str, typer.Option(help="What the pool calls this machine; by default its own name.")] = "",
    ceiling: Annotated[float, typer.Option(min=0.05, max=1.0, help="Highest share of a device to use.")] = 0.85,
    schedule: Annotated[str, typer.Option(help="always, 22:00-07:00, or mon-fri 19:00-07:00; sat,sun")] = "always",
    engine: Annotated[
        EngineChoice, typer.Option(help="auto: real GPUs and the CPU. gpu: a software adapter, too. cpu: no GPU.")
    ] = "auto",
    device: Annotated[
        str, typer.Option(help="Only graphics adapters whose key begins so: python -m moregpu_kernels info.")
    ] = "",
    hang: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a compute process that gives no sign is replaced.")
    ] = 120.0,
    yields: Annotated[
        bool,
        typer.Option(
            "--yield/--no-yield",
            help="Give way to whoever uses this machine, to its battery and heat; or keep to the ceiling alone.",
        ),
    ] = True,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="functions[=NAMES]",
            help="Let submitters' Python code run here, in a sandbox: everybody's, or functions=alice,group:lab. "
            "Also: network (for functions that ask for it), interpreters (download a Python that is not here), "
            "unconfined (I trust this pool: also without a sandbox).",
        ),
    ] = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="First list the pools that announce themselves on this network.")
    ] = False,
    state: Annotated[Path | None, typer.Option(help="State folder, one for each worker on this machine.")] = None,
    invite_file: Annotated[Path | None, typer.Option(help="File (0600) that holds the invite.")] = None,
    as_json: JsonOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Join without asking once more.")] = False,
) -> None:
    """Make this machine a worker of a pool, and work until Ctrl-C.

    The invite is asked for, or read from standard input, MOREGPU_TOKEN or --invite-file; never from the command line.
    A machine that has joined before needs none. What is not said here is as `moregpu config set worker.…` keeps it.
    """
    refuse_argument(given)
    whose = whose_functions(allow or [])
    options: dict[str, tuple[str, object]] = {
        "state": ("state", str(state)),
        "name": ("name", name),
        "cores": ("cores", cores),
        "ceiling": ("ceiling", ceiling),
        "schedule": ("schedule", schedule),
        "engine": ("engine", engine),
        "device": ("device", device),
        "hang": ("hang_s", hang),
        "yields": ("yields", yields),
        "as_json": ("json_lines", as_json),
    }
    given_here = typed(context, options) | also_allowed(allow or []) | ({"functions": whose} if whose else {})
    config = together("worker", kept_settings(), given_here, WorkerConfig.checked)
    if discover:
        from moregpu.cli.nearby import find_nearby, told

        typer.echo(told(find_nearby()), err=as_json)
    invite: Invite | None = None
    if invite_file is not None or not has_joined(worker_folder(config.state)):
        invite = find_invite(invite_file)
        if invite is None and sys.stdin.isatty():
            invite = parse_invite(ask_for_line("Invite (one line, from `moregpu invite`)", lacks_its_end))
        if invite is not None:
            typer.echo(introduction(invite, config.functions), nl=False, err=as_json)
            if sys.stdin.isatty() and not yes and not typer.confirm("Join this pool?", default=True):
                raise InviteRefused("this machine did not join", "run `moregpu join` again when you want to")
    raise typer.Exit(run_worker(config, invite))


ALSO = {"network": "functions_network", "interpreters": "python_downloads", "unconfined": "functions_unconfined"}
"""What else an owner may allow to functions: word → setting of the worker."""


def also_allowed(allow: list[str]) -> dict[str, bool]:
    """Settings that `--allow network`, `interpreters` and `unconfined` turn on."""
    return {ALSO[text]: True for text in allow if text in ALSO}


def whose_functions(allow: list[str]) -> tuple[str, ...]:
    """Read `--allow functions` and `--allow functions=alice,group:lab`; raises `InvalidRequest`."""
    whose: list[str] = []
    for text in allow:
        if text in ALSO:
            continue
        what, named, names = text.partition("=")
        listed = [name.strip() for name in names.split(",") if name.strip()] if named else ["*"]
        if what.strip() not in ("functions", "function") or not listed:
            raise InvalidRequest(
                f"--allow {text[:80]!r} is not understood", "--allow functions, or --allow functions=alice,group:lab"
            )
        whose += listed
    return ("*",) if "*" in whose else tuple(dict.fromkeys(whose))
