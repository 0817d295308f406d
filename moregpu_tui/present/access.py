"""Invites, tokens, revocations and the ledger as rows."""

from __future__ import annotations

from moregpu.wire.api import AuditView, InviteView, TokenView
from moregpu_tui.present.cells import Column, Line
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.time import ago, moment, until
from moregpu_tui.present.units import NOTHING, plural, short_id
from moregpu_tui.state.model import PoolState

INVITE_COLUMNS: tuple[Column, ...] = (
    Column(key="id", title="INVITE", width=10),
    Column(key="owner", title="FOR", width=12, grow=2),
    Column(key="uses", title="USES LEFT", width=9, right=True),
    Column(key="expires", title="EXPIRES", width=10, right=True),
    Column(key="groups", title="GROUPS", width=12, grow=1, rank=2),
    Column(key="kinds", title="KINDS", width=10, rank=4),
    Column(key="approval", title="APPROVAL", width=9, rank=3),
)

TOKEN_COLUMNS: tuple[Column, ...] = (
    Column(key="id", title="TOKEN", width=10),
    Column(key="label", title="LABEL", width=14, grow=2),
    Column(key="role", title="ROLE", width=9),
    Column(key="groups", title="GROUPS", width=10, grow=1, rank=1),
    Column(key="used", title="USED", width=11, right=True),
    Column(key="expires", title="EXPIRES", width=10, right=True, rank=2),
    Column(key="created", title="MADE", width=16, rank=3),
)


def invite_cell(invite: InviteView, key: str, manner: Manner, now: float) -> Line:
    """What stands in one column of an invite's row."""
    spent = invite.uses_left <= 0 or invite.expires_at <= now
    match key:
        case "id":
            return ((short_id(invite.id), "dim" if spent else "text"),)
        case "owner":
            name = "anybody" if invite.owner in ("", invite.id) else invite.owner
            return ((name, "dim" if spent else "strong"),)
        case "uses":
            return ((str(invite.uses_left) if invite.uses_left else "used", "dim" if spent else "text"),)
        case "expires":
            return ((until(invite.expires_at, now), "dim" if spent else "text"),)
        case "groups":
            return ((", ".join(invite.groups) or NOTHING, "dim"),)
        case "kinds":
            return ((", ".join(invite.kinds) or "all", "dim"),)
        case _:
            return (("at once" if invite.auto_approve else "by hand", "dim" if invite.auto_approve else "text"),)


def token_cell(token: TokenView, key: str, manner: Manner, now: float) -> Line:
    """What stands in one column of a token's row."""
    match key:
        case "id":
            return ((short_id(token.id), "text"),)
        case "label":
            return ((token.label or NOTHING, "strong" if token.label else "dim"),)
        case "role":
            return ((token.role, "warn" if token.role == "admin" else "text"),)
        case "groups":
            return ((", ".join(token.groups) or NOTHING, "dim"),)
        case "used":
            return ((ago(token.used_at, now), "dim"),)
        case "expires":
            return ((until(token.expires_at, now) if token.expires_at else "never", "dim"),)
        case _:
            return ((moment(token.created_at, manner.zone), "dim"),)


def pool_lines(state: PoolState, manner: Manner) -> list[Line]:
    """Who this pool is: what a contributor compares before trusting it."""
    pool = state.pool
    if pool is None:
        return [(("not loaded yet", "dim"),)]
    revoked = sum(worker.revoked for worker in state.workers.values())
    key: Line = (
        (pool.fingerprint, "strong"),
        ("   a next key is announced: K finishes" if pool.rotating else "", "warn"),
    )
    return [
        (("fingerprint  ", "dim"), *key),
        (("addresses    ", "dim"), (", ".join(pool.addresses), "text")),
        (("revoked      ", "dim"), (plural(revoked, "worker"), "text")),
        ledger_line(state.audit, manner),
    ]


def ledger_line(audit: AuditView | None, manner: Manner) -> Line:
    """What the last walk over the ledger found."""
    if audit is None:
        return (
            ("ledger       ", "dim"),
            (f"not checked yet: {manner.key('ledger.verify')} verifies every row and signature", "dim"),
        )
    if audit.ok:
        text = f"{manner.glyphs.check} {plural(audit.rows, 'row')} and {plural(audit.checkpoints, 'checkpoint')} verify"
        return (("ledger       ", "dim"), (text, "good"), (f"  head {audit.head[:16]}", "dim"))
    return (
        ("ledger       ", "dim"),
        (f"{manner.glyphs.cross} {audit.problems[0] if audit.problems else 'bad'}", "bad"),
    )
