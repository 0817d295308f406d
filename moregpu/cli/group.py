"""`moregpu group …`: named sets of workers, for jobs that are to run on some of them alone."""

from __future__ import annotations

from typing import Annotated

import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, counted, print_json, print_table, say
from moregpu.cli.worker import find_one
from moregpu.ids import name_order
from moregpu.wire.api import GroupRequest, WorkerChange

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The group's name.")]


@app.callback()
def groups() -> None:
    """Named sets of workers: `moregpu submit --group NAME` runs on them alone."""


@app.command("list")
def list_groups(as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """List the groups and who is in them."""
    with reach(profile) as pool:
        found = pool.groups()
        names = {} if as_json else {worker.id: worker.name for worker in pool.workers()}
    if as_json:
        print_json(found)
        return
    print_table(
        ["GROUP", "ONLINE", "WORKERS", "ABOUT"],
        [
            [
                view.name,
                f"{view.online}/{len(view.workers)}",
                " ".join(sorted((names.get(id, id[:10]) for id in view.workers), key=name_order)),
                view.description,
            ]
            for view in found
        ],
        "There is no group. Make one: moregpu group add NAME WORKER",
    )


@app.command()
def add(
    name: NameArgument,
    workers: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKER…]", help="Names or ids of workers that join it.")
    ] = None,
    about: Annotated[str | None, typer.Option(help="A sentence about it.")] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Make a group, or put more workers into it. A worker may be in several."""
    with reach(profile) as pool:
        if about is None:  # what is said of it stays
            about = next((view.description for view in pool.groups() if view.name == name), "")
        view = pool.add_group(GroupRequest(name=name, description=about, workers=workers or []))
    print_json(view) if as_json else say("{}: {}", view.name, counted(len(view.workers), "worker"))


@app.command()
def remove(
    name: NameArgument,
    workers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKER…]", help="Only take these out; without any: all of it goes."),
    ] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Take workers out of a group, or let it go. Jobs that ask for a group without workers wait, and say so."""
    with reach(profile) as pool:
        if not workers:
            pool.remove_group(name)
        known = pool.workers() if workers else []
        for worker in workers or []:
            found = find_one(known, worker)
            left = [group for group in found.groups if group != name]
            pool.change_worker(found.id, WorkerChange(groups=left))
    if as_json:
        print_json({"group": name, "removed": workers or "all"})
    else:
        say("{} left {}", ", ".join(workers), name) if workers else say("{} is gone", name)
