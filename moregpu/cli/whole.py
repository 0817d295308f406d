"""`moregpu pool …`: the pool as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from moregpu.cli.backup import backup, restore
from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, ago, print_facts, print_json, size
from moregpu.cli.sizes import read_size
from moregpu.errors import InvalidRequest
from moregpu.wire.api import PoolChange, PoolView, RotateRequest

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def pool() -> None:
    """Look at the pool, rename it, limit what it keeps, rotate its key, back it up."""


app.command()(backup)
app.command()(restore)


@app.command()
def info(as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """Show its name, fingerprint, load and storage."""
    with reach(profile) as pool:
        _show(pool.info(), as_json)


@app.command()
def rename(
    name: Annotated[str | None, typer.Argument(help="The new name; none: as it is.")] = None,
    description: Annotated[str | None, typer.Option(help="A sentence about it.")] = None,
    keep_bytes: Annotated[
        str | None,
        typer.Option(help="Outputs of ended jobs beyond this go, oldest first: 50GB; 0: no limit.", metavar="SIZE"),
    ] = None,
    max_blob_bytes: Annotated[str | None, typer.Option(help="Most that one upload holds: 1TB.", metavar="SIZE")] = None,
    submitter_jobs: Annotated[
        int | None, typer.Option(min=1, help="Most jobs of one submitter that have not ended.")
    ] = None,
    submitter_bytes: Annotated[
        str | None, typer.Option(help="Most that one submitter keeps here: 10GB; 0: no limit.", metavar="SIZE")
    ] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Give it another name or other limits; workers hear the name when they next connect."""
    change = PoolChange(
        name=name,
        description=description,
        keep_bytes=read_size("--keep-bytes", keep_bytes),
        max_blob_bytes=read_size("--max-blob-bytes", max_blob_bytes),
        submitter_jobs=submitter_jobs,
        submitter_bytes=read_size("--submitter-bytes", submitter_bytes),
    )
    if change == PoolChange():
        raise InvalidRequest("nothing to change", "give a name, or one of its options")
    with reach(profile) as pool:
        _show(pool.change(change), as_json)


@app.command()
def rotate(
    action: Annotated[
        Literal["begin", "finish", "cancel"], typer.Argument(help="Begin, finish, or cancel the change.")
    ] = "begin",
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Change the session key: begin, give the workers a day, finish.

    A worker that did not connect in between needs a new invite.
    """
    with reach(profile) as pool:
        view = pool.rotate(RotateRequest(action=action))
    if as_json:
        print_json(view)
        return
    print_facts(
        [
            ("session key", view.session_key),
            ("next", view.next_session_key),
            ("", "workers learn it as they connect; then: moregpu pool rotate finish" if view.rotating else ""),
        ]
    )


def _show(view: PoolView, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    print_facts(
        [
            ("pool", view.name),
            ("about", view.description),
            ("fingerprint", view.fingerprint),
            ("id", view.id),
            ("version", view.version),
            ("addresses", " ".join(view.addresses)),
            ("workers", f"{view.workers_online} online of {view.workers_total}"),
            ("jobs", f"{view.jobs_queued} queued, {view.jobs_running} running"),
            ("started", ago(view.started_at)),
            ("stored", f"{size(view.storage_bytes)}, {size(view.storage_free_bytes)} free"),
            ("keeps", size(view.keep_bytes)),
            ("key", "is being changed: moregpu pool rotate finish" if view.rotating else ""),
        ]
    )
