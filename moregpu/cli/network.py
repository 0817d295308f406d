"""`moregpu network` and `top`: how well workers are connected, and what the pool does now."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, print_json, print_table, say, seconds, size

if TYPE_CHECKING:
    from moregpu.client.pool import Pool


CLEAR = "\x1b[H\x1b[2J"


def network(as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """Show round trip and throughput for each worker, and which work that allows."""
    with reach(profile) as pool:
        view = pool.network()
    if as_json:
        print_json(view)
        return
    print_table(
        ["NAME", "ROUND TRIP", "TO IT", "FROM IT", "MOVED", "ALLOWS"],
        [
            [
                link.name,
                seconds(link.round_trip_s),
                _rate(link.to_worker_bytes_s),
                _rate(link.from_worker_bytes_s),
                size(link.moved_bytes),
                link.allows,
            ]
            for link in view.links
        ],
        "No worker is connected.",
    )


def top(
    every: Annotated[float, typer.Option(min=0.2, max=86_400, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and leave.")] = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Show load and workers, again and again until Ctrl-C; moregpu-tui shows more."""
    with reach(profile) as pool:
        while True:
            _look(pool, as_json, clear=not (once or as_json) and sys.stdout.isatty())
            if once:
                return
            time.sleep(every)


def _look(pool: Pool, as_json: bool, *, clear: bool) -> None:
    info, workers = pool.info(), pool.workers()
    if as_json:
        print_json({"pool": info, "workers": workers})
        return
    if clear:
        typer.echo(CLEAR, nl=False)
    say(
        "{}: {} of {} workers, {} jobs queued, {} running\n",
        info.name,
        info.workers_online,
        info.workers_total,
        info.jobs_queued,
        info.jobs_running,
    )
    print_table(
        ["NAME", "STATE", "DUTY", "OWNER'S LOAD", "LEASES", "DONE", "FAILED", "ROUND TRIP"],
        [
            [
                worker.name,
                worker.state,
                " ".join(f"{duty:.0%}" for duty in worker.duty.values()),
                f"{worker.user_load:.0%}",
                worker.leases,
                worker.tasks_done,
                worker.tasks_failed,
                seconds(worker.round_trip_s),
            ]
            for worker in workers
        ],
        "No worker has joined.",
    )


def _rate(bytes_s: float | None) -> str:
    return "–" if bytes_s is None else f"{size(bytes_s)}/s"
