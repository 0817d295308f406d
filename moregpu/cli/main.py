"""The `moregpu` command: finds the command that was typed and loads that one alone.

A command is a function with Typer's annotations, or a Typer group, in a module of its own; the table below names it.
`moregpu --help` imports none of them.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from moregpu.errors import InvalidRequest, MoreGPUError, StateRefused
from moregpu.platform.room import is_full

PROGRAM = "moregpu"

_NOT_LET = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG,
)  # fmt: skip
"""What a place on this machine raises that cannot be used as it is: another user's, read-only, no folder."""

_MISTYPED: Any = typer.BadParameter.__mro__[1]
"""The command line library's `UsageError`, which Typer does not name."""


class Command(NamedTuple):
    """Where a command is, and what `--help` says about it."""

    module: str
    attribute: str
    help: str


COMMANDS: dict[str, Command] = {
    "demo": Command("moregpu.cli.demo", "demo", "Two workers compute, check and sign a matrix product, here and now."),
    "setup": Command("moregpu.cli.setup", "setup", "See what this machine has, and the next line to type."),
    "serve": Command("moregpu.cli.serve", "serve", "Run a coordinator: this machine holds the pool."),
    "join": Command("moregpu.cli.join", "join", "Give this machine's idle time to a pool."),
    "leave": Command("moregpu.cli.leave", "leave", "Leave the pool that this machine works for."),
    "invite": Command("moregpu.cli.pool", "invite", "Make an invite for a worker."),
    "submit": Command("moregpu.cli.submit", "submit", "Submit a kernel on .npy files, a benchmark, or a script."),
    "jobs": Command("moregpu.cli.jobs", "jobs", "List jobs."),
    "job": Command("moregpu.cli.jobs", "job", "Show one job, its tasks, and who signed them."),
    "cancel": Command("moregpu.cli.jobs", "cancel", "End a job."),
    "retry": Command("moregpu.cli.jobs", "retry", "Submit a job again that ended badly."),
    "workers": Command("moregpu.cli.pool", "workers", "List workers."),
    "worker": Command("moregpu.cli.worker", "app", "Pause, limit, approve or remove a worker."),
    "group": Command("moregpu.cli.group", "app", "Name sets of workers."),
    "pool": Command("moregpu.cli.whole", "app", "Look at the pool, rename it, back it up, rotate its key."),
    "network": Command("moregpu.cli.network", "network", "Round trip and throughput per worker."),
    "top": Command("moregpu.cli.network", "top", "Load and workers, again and again."),
    "audit": Command("moregpu.cli.pool", "audit", "Verify the ledger of results."),
    "kernel": Command("moregpu.cli.kernel", "app", "Register WGSL kernels of your own."),
    "token": Command("moregpu.cli.token", "app", "Tokens for clients."),
    "login": Command("moregpu.cli.login", "login", "Save how to reach a pool."),
    "config": Command("moregpu.cli.config", "app", "Read and change settings."),
    "doctor": Command("moregpu.cli.doctor", "doctor", "Say what is wrong here, and what mends it."),
    "bench": Command("moregpu.cli.bench", "bench", "Measure what the pool gives."),
    "completion": Command("moregpu.cli.completion", "completion", "Print the completion for a shell."),
    "version": Command("moregpu.cli.main", "version", "Print the version."),
}


def main() -> NoReturn:
    """Run the command line; errors of the pool become one line on stderr and their own exit status."""
    from moregpu.cli.values import settle_values

    arguments = sys.argv[1:]
    _say_into_nothing_where_nobody_listens()
    try:
        command = typer.main.get_command(build(arguments))
        settle_values(command)
        if "--json" in arguments:
            _run_for_a_program(command)
        command(prog_name=PROGRAM)
    except MoreGPUError as error:
        _show(error, as_json="--json" in arguments)
        sys.exit(error.exit_code)
    except OSError as error:
        refused = of_this_machine(error)
        if refused is None:
            raise
        _show(refused, as_json="--json" in arguments and not is_full(error))
        sys.exit(refused.exit_code)
    sys.exit(0)


def of_this_machine(error: OSError) -> StateRefused | None:
    """What is wrong with a place on this machine, in words; None for what is no place's."""
    if is_full(error):
        return StateRefused(f"{error.filename or 'it'} cannot be written: {error.strerror}", "make room there")
    if error.errno in _NOT_LET and error.filename is not None:
        return StateRefused(
            f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}",
            "mend it, or choose another place: MOREGPU_HOME moves everything, --state one part",
        )
    return None


def _say_into_nothing_where_nobody_listens() -> None:
    """Give a command that was started without standard output or errors (`>&-`, some services) what leads nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (to the end of the process)
            setattr(sys, name, nowhere)


def _run_for_a_program(command: Any) -> NoReturn:
    """Run a command whose caller reads JSON: what was typed wrong is one of our errors, not a text about usage."""
    try:
        status = command.main(prog_name=PROGRAM, standalone_mode=False)
    except _MISTYPED as error:
        path = error.ctx.command_path if error.ctx is not None else PROGRAM
        raise InvalidRequest(error.format_message(), f"{path} --help") from error
    except typer.Abort:
        typer.echo("Aborted.", err=True)
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def build(arguments: list[str]) -> typer.Typer:
    """Make the application for these arguments: the one command that they name, or all of them as names for help."""
    app = typer.Typer(
        help="One private pool of the GPUs and CPUs you already own.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_program)
    named = next((word for word in arguments if not word.startswith("-")), "")
    if named in COMMANDS:
        command = COMMANDS[named]
        found: Any = getattr(import_module(command.module), command.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=named, help=command.help)
        else:
            app.command(named, help=command.help)(found)
    else:
        for name, command in COMMANDS.items():
            app.command(name, help=command.help)(_not_loaded)
    return app


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the version."""
    import moregpu

    typer.echo(f'{{"version":"{moregpu.__version__}"}}' if as_json else f"MoreGPU {moregpu.__version__}")


def _say_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Hold the options of the program itself."""


def _not_loaded() -> None:
    """Stand for a command in the list of commands; the one that is typed is always loaded."""


def _show(error: MoreGPUError, *, as_json: bool) -> None:
    """Print an error: for a person one line and a hint on stderr, for a program one object on stdout."""
    if as_json:
        import json

        problem = {"type": error.code, "title": error.title, "detail": error.detail, "hint": error.hint}
        typer.echo(json.dumps({"error": problem}))
        return
    from moregpu.wire.text import clean

    colour: Callable[[str], str] = (
        (lambda text: typer.style(text, fg=typer.colors.RED)) if "NO_COLOR" not in os.environ else str
    )
    typer.echo(f"{colour('moregpu:')} {clean(error.detail, 1000)}", err=True)
    if error.hint:
        typer.echo(f"  → {clean(error.hint, 1000)}", err=True)
