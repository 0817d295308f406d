"""`moregpu pool …`: the pool as a whole."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from moregpu.cli.backup import backup, restore
from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, ago, print_facts, print_json, size
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
    name: Annotated[str, typer.Argument(help="The new name.")],
    description: Annotated[str | None, typer.Option(help="A sentence about it.")] = None,
    keep_bytes: Annotated[
        int | None, typer.Option(min=0, help="Bytes of ended jobs' outputs that are kept; 0: no limit.")
    ] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Give it another name; workers hear it when they next connect."""
    with reach(profile) as pool:
        _show(pool.change(PoolChange(name=name, description=description, keep_bytes=keep_bytes)), as_json)


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
