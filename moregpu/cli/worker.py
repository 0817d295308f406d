"""`moregpu worker …`: what an admin does to workers, by their names or ids."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, print_json, say
from moregpu.errors import InvalidRequest, NotFound
from moregpu.ids import beginning_of
from moregpu.wire.api import WorkerChange, WorkerView

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

WorkerArgument = Annotated[str, typer.Argument(help="Its name, its id, or a beginning of the id that is unique.")]
WorkersArgument = Annotated[
    list[str],
    typer.Argument(metavar="WORKER...", help="Names, ids, or beginnings of ids that are unique; one or several."),
]

LISTED = 8
"""Workers that a name may mean, in the hint of an error."""


@app.callback()
def worker() -> None:
    """Pause, limit, approve or remove a worker."""


@app.command()
def pause(workers: WorkersArgument, as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """Give it nothing; what it runs is handed back."""
    _act(workers, "pause", as_json, profile)


@app.command()
def resume(workers: WorkersArgument, as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """Let it work again."""
    _act(workers, "resume", as_json, profile)


@app.command()
def drain(workers: WorkersArgument, as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """Let it finish what it runs, and give it nothing new."""
    _act(workers, "drain", as_json, profile)


@app.command()
def approve(workers: WorkersArgument, as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """Take in a worker that waits for it, or trust again one that was put aside."""
    _act(workers, "approve", as_json, profile)


@app.command("set")
def change(
    workers: WorkersArgument,
    name: Annotated[str | None, typer.Option(help="What the pool calls it.")] = None,
    ceiling: Annotated[
        float | None, typer.Option(min=0.05, max=1.0, help="Highest share of a device; its owner's limit stands.")
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="always, 22:00-07:00, or mon-fri 19:00-07:00")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Its groups, all of them; may be repeated.")] = None,
    no_group: Annotated[bool, typer.Option("--no-group", help="Take it out of every group.")] = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Name it, limit it, group it. Only what is given changes."""
    if group and no_group:
        raise InvalidRequest("--group and --no-group at once", "give one of them")
    change = WorkerChange(
        name=name, ceiling=ceiling, schedule=schedule, groups=[] if no_group else list(group) if group else None
    )
    if change == WorkerChange():
        raise InvalidRequest("nothing to change", "give --name, --ceiling, --schedule or --group")
    if name is not None and len(workers) > 1:
        raise InvalidRequest("one name for several workers", "give --name with one worker")
    _change(workers, change, as_json, profile)


@app.command()
def remove(
    worker: WorkerArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask once more.")] = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Revoke it for good: its key is refused from now on."""
    with reach(profile) as pool:
        found = find_one(pool.workers(), worker)
        if not yes:
            typer.confirm(f"Revoke {found.name} ({found.id}) for good?", abort=True, err=True)
        pool.remove_worker(found.id)
    print_json({"removed": found.id}) if as_json else say("{} is removed", found.name)


def _act(
    workers: list[str], action: Literal["pause", "resume", "drain", "approve"], as_json: bool, profile: str | None
) -> None:
    _change(workers, WorkerChange(action=action), as_json, profile)


def _change(workers: list[str], change: WorkerChange, as_json: bool, profile: str | None) -> None:
    with reach(profile) as pool:
        known = pool.workers()
        # All are found before the first is changed: a name that was mistyped changes nothing.
        views = [pool.change_worker(id, change) for id in dict.fromkeys(find_one(known, name).id for name in workers)]
    if as_json:
        print_json(views[0] if len(workers) == 1 else views)
        return
    for view in views:
        limits = view.limits
        groups = f", groups {' '.join(view.groups)}" if view.groups else ""
        say("{} is {}: ceiling {}, {}{}", view.name, view.state, f"{limits.ceiling:.0%}", limits.schedule, groups)


def find_one(workers: list[WorkerView], named: str) -> WorkerView:
    """The one worker that is meant. Raises `NotFound`, `InvalidRequest` for several."""
    exact = [view for view in workers if named in (view.id, view.name)]
    beginning = beginning_of(named, "w-")
    found = exact or [view for view in workers if beginning and view.id.startswith(beginning)]
    if not found:
        raise NotFound(f"there is no worker {named[:60]!r}", "`moregpu workers` lists them")
    if len(found) > 1:
        # The ids themselves: a narrow terminal cuts them off in the list of workers.
        ids = ", ".join(f"{view.id[:10]} ({view.state})" for view in found[:LISTED]) + ", …" * (len(found) > LISTED)
        raise InvalidRequest(f"{named[:60]!r} means {len(found)} workers", f"name one by its id: {ids}")
    return found[0]
