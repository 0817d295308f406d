"""Every command with its options, read from the commands themselves: for `docs/cli.md` and for completion.

python -m moregpu.cli.reference        prints the page; a test fails where docs/cli.md is another
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from moregpu.cli.main import COMMANDS, PROGRAM
from moregpu.cli.values import metavar
from moregpu.errors import MoreGPUError

HEAD = """# Commands

Made from the commands themselves by `python -m moregpu.cli.reference > docs/cli.md`; a test keeps it so.

Every command takes `--json`: one JSON value on standard output, errors too. Commands that talk to a pool take
`--profile NAME`; without it they look at `MOREGPU_URL` and `MOREGPU_ADMIN_TOKEN`, then at the profile `local`.
Secrets are asked for, or read from standard input; never given as arguments. `NO_COLOR` is obeyed.

## Exit codes

| code | when |
|---|---|
"""

MEANINGS = {
    0: "all is well",
    1: "something else; the line says what. `doctor`: something is wrong here",
    2: "what was typed, or a job, is not understood; or no pool is set up here",
    3: "the token is missing, wrong, or may not do that",
    4: "there is no such thing, or it is not yours",
    5: "the job failed, was cancelled, or its result is gone",
    6: "the wait is over, the job goes on",
    7: "the coordinator does not answer, or cannot take this now",
    8: "the other end could not prove who it is, or speaks another version",
    9: "this machine: a state folder, keyring or port cannot be used",
    10: "the ledger does not verify",
}


class Found(NamedTuple):
    """One command: the words that name it, and what it takes."""

    words: tuple[str, ...]
    help: str
    arguments: list[tuple[str, str, list[str]]]  # name, help, values
    options: list[tuple[list[str], str, str, list[str]]]  # names, metavar, help, values


def commands() -> list[Found]:
    """Every command that can be typed, groups taken apart."""
    found: list[Found] = []
    for name, command in COMMANDS.items():
        loaded: Any = getattr(import_module(command.module), command.attribute)
        if isinstance(loaded, typer.Typer):
            for one in loaded.registered_commands:
                if one.callback is not None:
                    found.append(_found((name, one.name or one.callback.__name__), one.callback))
        else:
            found.append(_found((name,), loaded))
    return found


def page() -> str:
    """The whole of docs/cli.md."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANINGS.items())
    return HEAD + codes + "".join(_section(command) for command in commands())


def exit_codes() -> set[int]:
    """Those that errors of the pool lead to."""
    return {error.exit_code for error in MoreGPUError.registry.values()}


def _found(words: tuple[str, ...], function: Callable[..., Any]) -> Found:
    """Read a command from its signature, as Typer does."""
    arguments: list[tuple[str, str, list[str]]] = []
    options: list[tuple[list[str], str, str, list[str]]] = []
    hints = get_type_hints(function, include_extras=True)
    for name in inspect.signature(function).parameters:
        if hints[name] is typer.Context:  # what was typed at all; nobody types it
            continue
        annotation, told = get_args(hints[name])[:2]
        values = _values(annotation)
        if told.hidden:
            continue
        if isinstance(told, ArgumentInfo):
            arguments.append((told.metavar or "|".join(values) or name.upper(), told.help or "", values))
            continue
        first = [told.default] if isinstance(told.default, str) else []  # in Annotated it stands where a default would
        names = _option_names(name, [*first, *(told.param_decls or ())], is_flag=annotation is bool)
        kind = "" if annotation is bool else "|".join(values) or told.metavar or _kind(annotation, name)
        options.append((names, kind, told.help or "", values))
    return Found(words, inspect.cleandoc(function.__doc__ or ""), arguments, options)


def _option_names(name: str, declared: Sequence[str], *, is_flag: bool) -> list[str]:
    plain = name.replace("_", "-")
    if not declared:
        return [f"--{plain}", f"--no-{plain}"] if is_flag else [f"--{plain}"]
    return [one for names in declared for one in names.split("/")]


def _values(annotation: Any) -> list[str]:
    """The words that an option may have, where they are few."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(value.value) for value in annotation]
    return next((found for part in get_args(annotation) if (found := _values(part))), [])


def _kind(annotation: Any, name: str) -> str:
    """What to write for a value."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return _kind(parts[0], name) if parts else metavar(annotation, name)


def _section(command: Found) -> str:
    usage = " ".join([PROGRAM, *command.words, "[OPTIONS]", *(name for name, _, _ in command.arguments)])
    lines = ["", f"## {' '.join((PROGRAM, *command.words))}", "", command.help, "", "```text", usage, "```", ""]
    rows = [f"| `{name}` | {help} |" for name, help, _ in command.arguments]
    for names, kind, help, _ in command.options:
        shown = ", ".join(f"`{name}`" for name in names)
        rows.append(f"| {shown}{f' `{kind}`' if kind else ''} | {help} |")
    if rows:
        lines += ["| | |", "|---|---|", *(_escaped(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _escaped(row: str) -> str:
    """A row of a table whose code holds bars."""
    parts = row.split("`")
    return "`".join(part.replace("|", "\\|") if place % 2 else part for place, part in enumerate(parts))


if __name__ == "__main__":
    sys.stdout.write(page())
