"""Doors to client tokens. A token is in the answer to its making, once; the store keeps its hash."""

from __future__ import annotations

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.scopes import known_kinds
from moregpu.coordinator.store.protocol import TokenRow
from moregpu.wire.api import Me, TokenRequest, TokenView


async def create(ask: Ask) -> Answer:
    """Make a token; its line (`MGPUC1-…`) is shown this once."""
    wanted = await ask.decoded(TokenRequest)
    row, token = await ask.services.authority.create(
        wanted.role,
        wanted.label,
        wanted.expires_s,
        wanted.scope,
        wanted.weight,
        known_kinds(wanted.kinds),
        tuple(dict.fromkeys(wanted.groups)),
    )
    return ask.answer(_view(row, ask.services.pool.client_line(token)), 201)


async def list_tokens(ask: Ask) -> Answer:
    """Tokens that are not revoked, newest first."""
    rows = await ask.services.authority.tokens()
    return ask.answer([_view(row) for row in rows if not row.revoked])


async def revoke(ask: Ask) -> Answer:
    """End a token at once."""
    await ask.services.authority.revoke(ask.params["id"])
    return Answer(status=204)


async def me(ask: Ask) -> Answer:
    """Who this token is."""
    return ask.answer(
        Me(id=ask.who.id, label=ask.who.label, role=ask.who.role, scope=ask.who.scope, kinds=list(ask.who.kinds))
    )


def _view(row: TokenRow, line: str = "") -> TokenView:
    return TokenView(
        id=row.id,
        label=row.label,
        role=row.role,
        created_at=row.created_at,
        expires_at=row.expires_at,
        used_at=row.used_at,
        line=line,
        scope=row.scope,
        weight=row.weight,
        kinds=list(row.kinds),
        groups=list(row.groups),
    )
