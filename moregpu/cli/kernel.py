"""`moregpu kernel`: register WGSL kernels with their references, list and remove them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, ago, print_json, print_table, say
from moregpu.errors import InvalidRequest

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def kernels() -> None:
    """Kernels that an admin registers, for `moregpu submit custom NAME`."""


@app.command()
def add(
    file: Annotated[
        str, typer.Argument(metavar="FILE.wgsl", help="Its text, with front matter; - reads it from stdin.")
    ],
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Register a kernel. Its front matter holds the reference formula that every result is checked against."""
    try:
        source = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from error
    with reach(profile) as pool:
        view = pool.add_kernel(source)
    print_json(view) if as_json else say("{} is registered ({})", view.name, view.digest)


@app.command("list")
def list_kernels(as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """List the registered kernels."""
    with reach(profile) as pool:
        found = pool.kernels()
    if as_json:
        print_json(found)
        return
    print_table(
        ["NAME", "ARRAYS", "NUMBERS", "REFERENCE", "MADE"],
        [
            [view.name, " ".join(view.inputs), " ".join(view.parameters), view.reference, ago(view.created_at)]
            for view in found
        ],
        "No kernel is registered.",
    )


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="Its name, as `moregpu kernel list` shows it.")],
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Remove a kernel: no new job may name it; jobs that are there go on."""
    with reach(profile) as pool:
        pool.remove_kernel(name)
    print_json({"removed": name}) if as_json else say("{} is removed", name)
