"""Client tokens: who asks, with which role; wrong ones are counted and slowed down.

A token is looked up by its public id and compared by hash in constant time. Tokens that `moregpu token create --local`
left in the state folder are taken in when they are first shown.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

from moregpu.coordinator.local import LOCAL_TOKEN_S, local_tokens_folder, read_local_token
from moregpu.coordinator.protocol import Clock, Principal
from moregpu.coordinator.store.protocol import Store, TokenRow
from moregpu.errors import NotFound, TooManyRequests, Unauthorized
from moregpu.platform.logs import facts
from moregpu.wire.api import Role, Scope
from moregpu.wire.invite import new_token, token_hash, token_id

log = logging.getLogger(__name__)

WRONG_IN_A_MINUTE = 20
"""Wrong credentials from one address in a minute, after which the answer is 429. A right token always passes: whoever
shares an address with an attacker (a tunnel, a proxy, this machine) is not locked out, and 256 bits are not guessed."""
WRONG_IN_A_MINUTE_TOGETHER = 500
_ADDRESSES_KEPT = 10_000
USED_AT_EVERY_S = 60.0
LOOK_S = 15.0
"""How often who stays connected is looked at: for what ends a token without a word to this process."""

_NEUTRAL = "the token is missing, wrong, expired or revoked"
_HINT = (
    "send 'Authorization: Bearer mgt_…'; `moregpu token create --local` on the coordinator's machine makes a new token"
)


class Authority:
    """Answers who a bearer is, and makes, lists and revokes tokens."""

    def __init__(self, store: Store, clock: Clock, entropy: Callable[[int], bytes], state: Path | None = None):
        """`state`: the folder in which local tokens are looked for; None = nowhere."""
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._state = state
        self._wrong = WrongCredentials(clock)
        self._used: dict[str, float] = {}
        self._connected: dict[str, set[asyncio.Future[None]]] = {}

    async def principal(self, authorization: str, peer: str) -> Principal:
        """Who sent this Authorization header.

        Raises `Unauthorized`, with one neutral answer, or `TooManyRequests` once too many were wrong.
        """
        bearer = bearer_of(authorization)
        row = await self.row(bearer) if bearer else None
        if row is None:
            self.refuse(peer)
        self._used[row.id] = self._clock.wall()
        return Principal(id=row.id, role=row.role, label=row.label, scope=row.scope, kinds=row.kinds, groups=row.groups)

    async def row(self, bearer: str) -> TokenRow | None:
        """The token's row, when it is good now."""
        try:
            id = token_id(bearer)
        except Unauthorized:
            return None
        row = await self._store.token(id)
        if row is None:
            row = await self._taken_in(id, bearer)
        if row is None or not hmac.compare_digest(row.hash, token_hash(bearer)):
            return None
        gone = row.revoked or (row.expires_at is not None and not self._clock.wall() < row.expires_at)
        return None if gone else row

    async def holds(self, who: Principal) -> bool:
        """Whether this principal is still good: for streams that outlive their first check."""
        return await self._left_s(who) > 0.0

    async def until_ended(self, who: Principal) -> None:
        """Return when this principal is good no longer: at once when its token is revoked or its time is up."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connected.setdefault(who.id, set()).add(told)  # before the look: nothing is revoked in between unheard
        try:
            while not told.done() and (left_s := await self._left_s(who)) > 0.0:
                await asyncio.wait({told}, timeout=min(left_s, LOOK_S))
        finally:
            others = self._connected[who.id]
            others.discard(told)
            if not others:
                del self._connected[who.id]

    async def _left_s(self, who: Principal) -> float:
        row = await self._store.token(who.id)
        if row is None or row.revoked or row.role != who.role:
            return 0.0
        return math.inf if row.expires_at is None else row.expires_at - self._clock.wall()

    def refuse(self, peer: str) -> NoReturn:
        """Count a wrong credential of this address ("" when it is not the real one), and raise."""
        self._wrong.count(peer)
        log.info("a request without valid token was refused", extra=facts(peer=peer))
        raise Unauthorized(_NEUTRAL, _HINT)

    # making, listing, revoking

    async def create(
        self,
        role: Role,
        label: str = "",
        expires_s: float | None = None,
        scope: Scope = "all",
        weight: float = 1.0,
        kinds: tuple[str, ...] = (),
        groups: tuple[str, ...] = (),
    ) -> tuple[TokenRow, str]:
        """Make a token. The second value is the token itself: shown once, kept nowhere."""
        wall = self._clock.wall()
        id, token = new_token(self._entropy)
        row = TokenRow(
            id=id,
            hash=token_hash(token),
            role=role,
            label=label,
            created_at=wall,
            expires_at=None if expires_s is None else wall + expires_s,
            scope=scope,
            weight=weight,
            kinds=kinds,
            groups=groups,
        )
        await self._store.save_token(row)
        return row, token

    async def revoke(self, id: str) -> TokenRow:
        """End a token, and what is connected by it; raises `NotFound`."""
        row = await self._store.token(id)
        if row is None:
            raise NotFound(f"there is no token {id[:40]!r}", "`moregpu token list` shows them")
        if not row.revoked:
            row = msgspec.structs.replace(row, revoked=True)
            await self._store.save_token(row)
        for told in self._connected.get(id, ()):
            if not told.done():
                told.set_result(None)
        return row

    async def tokens(self) -> list[TokenRow]:
        """All tokens, newest first, with the last use known here."""
        rows = [self._with_use(row) for row in await self._store.tokens()]
        return sorted(rows, key=lambda row: row.created_at, reverse=True)

    async def keep_uses(self) -> None:
        """Write down when tokens were last used: called every minute and at the end, not at every request."""
        used, self._used = self._used, {}
        for id, at in used.items():
            row = await self._store.token(id)
            # Never over a revocation that came meanwhile: the row is read right here, and only this field changes.
            if row is not None and (row.used_at is None or row.used_at < at):
                await self._store.save_token(msgspec.structs.replace(row, used_at=at))

    def _with_use(self, row: TokenRow) -> TokenRow:
        at = self._used.get(row.id)
        return row if at is None else msgspec.structs.replace(row, used_at=at)

    async def _taken_in(self, id: str, bearer: str) -> TokenRow | None:
        """A token made on this machine by whoever can write the state folder."""
        if self._state is None:
            return None
        made = read_local_token(self._state, id)
        if made is None or not hmac.compare_digest(made.hash, token_hash(bearer)):
            return None
        if not self._clock.wall() - made.created_at < LOCAL_TOKEN_S:
            return None
        await self._store.save_token(made)
        (local_tokens_folder(self._state) / id).unlink(missing_ok=True)
        log.info("a token made on this machine was taken in", extra=facts(token=id, role=made.role))
        return made


class WrongCredentials:
    """Counts of wrong credentials in the last minute, by address and together; bounded memory."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._by_peer: OrderedDict[str, deque[float]] = OrderedDict()
        self._together: deque[float] = deque(maxlen=WRONG_IN_A_MINUTE_TOGETHER)

    def count(self, peer: str) -> None:
        """Note one; raises `TooManyRequests` when there were too many before."""
        now = self._clock.monotonic()
        mine = self._by_peer.setdefault(peer, deque(maxlen=WRONG_IN_A_MINUTE))
        self._by_peer.move_to_end(peer)
        if len(self._by_peer) > _ADDRESSES_KEPT:
            self._by_peer.popitem(last=False)
        over = _full(mine, now) or _full(self._together, now)
        mine.append(now)
        self._together.append(now)
        if over:
            raise TooManyRequests("too many wrong credentials came from there", "wait a minute, then use a valid token")


def bearer_of(authorization: str) -> str:
    """The token of an Authorization header; "" when it holds none."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else ""


def _full(times: deque[float], now: float) -> bool:
    return len(times) == times.maxlen and now - times[0] < 60.0
