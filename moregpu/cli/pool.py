"""`moregpu workers`, `invite` and `audit`: the pool as its admin sees it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, ago, counted, print_facts, print_json, print_table, say, seconds
from moregpu.errors import MoreGPUError
from moregpu.wire.api import InviteRequest, InviteView, WorkerView


def workers(as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """List workers."""
    with reach(profile) as pool:
        found = pool.workers()
    if as_json:
        print_json(found)
        return
    print_table(
        ["NAME", "STATE", "SCORE", "DEVICES", "LEASES", "DONE", "FAILED", "ROUND TRIP", "SEEN", "ID"],
        [_row(worker) for worker in found],
        "No worker has joined yet (that of `serve --worker` takes some seconds). Make an invite: moregpu invite",
    )


def invite(
    owner: Annotated[str, typer.Option(help="Whose machine it is; two invites with one label are one owner.")] = "",
    group: Annotated[list[str] | None, typer.Option(help="Group that the worker joins; may be repeated.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Kind of job it may run; may be repeated.")] = None,
    uses: Annotated[int, typer.Option(min=1, max=10_000, help="How many workers may use it.")] = 1,
    expires: Annotated[float, typer.Option(min=1, help="Seconds until it expires.")] = 3600.0,
    auto_approve: Annotated[
        bool, typer.Option("--auto-approve", help="Let its workers in at once, where it has several uses.")
    ] = False,
    listed: Annotated[
        bool,
        typer.Option(
            "--list", help="Make none: list those that can still be used, and those that were used within a day."
        ),
    ] = False,
    withdraw: Annotated[str | None, typer.Option(metavar="ID", help="Make none: end this one.")] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Make an invite for a worker. The line is shown this once."""
    if withdraw is not None:
        with reach(profile) as pool:
            pool.withdraw_invite(withdraw)
        print_json({"id": withdraw}) if as_json else say("{} is no longer good", withdraw)
        return
    if listed:
        with reach(profile) as pool:
            _show_invites(pool.invites(), as_json)
        return
    request = InviteRequest(
        owner=owner, groups=group or [], kinds=kind or [], uses=uses, expires_s=expires, auto_approve=auto_approve
    )
    with reach(profile) as pool:
        made = pool.invite(request)
    if as_json:
        print_json(made)
        return
    say("{}", made.line)
    say(
        "\nOn the other machine: moregpu join   (it asks for this line)\nGood for {}, {}.",
        seconds(expires),
        counted(uses, "use"),
        err=True,
    )
    if made.reach:
        say("Reach: {}", made.reach, err=True)


def _show_invites(found: list[InviteView], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_table(
        ["ID", "FOR", "USES LEFT", "EXPIRES IN", "GROUPS"],
        [
            [
                one.id,
                "anybody" if one.owner in ("", one.id) else one.owner,
                one.uses_left or "used",
                seconds(left) if (left := one.expires_at - time.time()) > 0.0 else "expired",
                ", ".join(one.groups),
            ]
            for one in found
        ],
        "No invite is open. Make one: moregpu invite",
    )


def audit(as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """Verify the ledger: its chains, the workers' signatures, the checkpoints."""
    with reach(profile) as pool:
        found = pool.audit()
    if as_json:
        print_json(found)
    else:
        print_facts(
            [
                ("ledger", "every row, signature and checkpoint verifies" if found.ok else "DOES NOT VERIFY"),
                ("rows", found.rows),
                ("checkpoints", found.checkpoints),
                ("writers", found.writers),
                ("head", found.head),
                *[("problem", problem) for problem in found.problems],
            ]
        )
    if not found.ok:
        raise _BadLedger("the ledger does not verify", "restore a backup, and find out who could write to the folder")


class _BadLedger(MoreGPUError):
    """The ledger was changed, or a signature in it is not good."""

    code, title, exit_code = "bad-ledger", "The ledger does not verify", 10


def _row(worker: WorkerView) -> list[object]:
    devices = ", ".join(
        f"{device.name} ({device.cores} core{'s' * (device.cores > 1)})" if device.cores else device.name
        for device in worker.devices
    )
    state = f"{worker.state}: {worker.reason}" if worker.reason else worker.state
    return [
        worker.name,
        state,
        worker.score,
        devices,
        worker.leases,
        worker.tasks_done,
        worker.tasks_failed,
        seconds(worker.round_trip_s),
        ago(worker.seen_at),
        worker.id[:10],
    ]
