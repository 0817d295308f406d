"""Doors to invites. The secret is in the answer to the making, once; the store keeps its hash."""

from __future__ import annotations

import os
from collections.abc import Callable

from moregpu import ids
from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.store.protocol import InviteRow
from moregpu.errors import InvalidRequest, NotFound
from moregpu.wire.api import InviteRequest, InviteView
from moregpu.wire.invite import Invite, secret_hash
from moregpu.workloads import KINDS

MANY_USES_EXPIRE_S = 86_400.0
"""An invite that lets more than one worker in is good for at most a day."""


async def create(ask: Ask) -> Answer:
    """Make an invite; its line is shown this once."""
    wanted = await ask.decoded(InviteRequest)
    return ask.answer(await make_invite(ask.services, wanted, created_by=ask.who.id), 201)


async def list_invites(ask: Ask) -> Answer:
    """Invites that could still be used, and those used in the last day; newest first."""
    rows = await ask.services.desk.store.invites()
    return ask.answer([_view(row) for row in sorted(rows, key=lambda row: row.created_at, reverse=True)])


async def withdraw(ask: Ask) -> Answer:
    """Withdraw an invite; workers that used it stay."""
    id = ids.normalise(ask.params["id"])
    if not await ask.services.desk.store.drop_invite(id):
        raise NotFound(f"there is no invite {id[:40]!r}", "`moregpu invite --list` shows them")
    return Answer(status=204)


async def make_invite(
    services: Services,
    wanted: InviteRequest,
    created_by: str,
    entropy: Callable[[int], bytes] = os.urandom,
    addresses: tuple[str, ...] = (),
) -> InviteView:
    """Keep a new invite and show it with its line. `addresses`: where its worker comes in, if not as all others.

    Raises `InvalidRequest`.
    """
    unknown = [kind for kind in wanted.kinds if kind not in KINDS]
    if unknown:
        raise InvalidRequest(f"there is no kind of job called {unknown[0][:40]!r}", f"kinds: {', '.join(KINDS)}")
    wall = services.clock.wall()
    id, secret = ids.named("i", entropy(16)), entropy(16)
    expires_s = min(wanted.expires_s, MANY_USES_EXPIRE_S) if wanted.uses > 1 else wanted.expires_s
    row = InviteRow(
        id=id,
        secret_hash=secret_hash(secret),
        owner=wanted.owner or id,
        groups=tuple(dict.fromkeys(wanted.groups)),
        kinds=tuple(dict.fromkeys(wanted.kinds)),
        expires_at=wall + expires_s,
        uses_left=wanted.uses,
        auto_approve=wanted.uses == 1 or wanted.auto_approve,
        created_at=wall,
        created_by=created_by,
    )
    await services.desk.store.add_invite(row)
    pool = services.pool
    line = Invite(
        addresses=addresses or pool.reach.addresses,
        pool_id=pool.id,
        cs_pub=services.keys.next_cs_pub or services.keys.cs_pub,  # good after a rotation, too
        invite_id=id,
        secret=secret,
        pin=pool.pin,
        pool_name=services.settings.name,
    ).line()
    return _view(row, line=line, reach=pool.reach.note)


def _view(row: InviteRow, line: str = "", reach: str = "") -> InviteView:
    return InviteView(
        id=row.id,
        owner=row.owner,
        groups=list(row.groups),
        kinds=list(row.kinds),
        uses_left=row.uses_left,
        expires_at=row.expires_at,
        created_at=row.created_at,
        auto_approve=row.auto_approve,
        line=line,
        reach=reach,
    )
