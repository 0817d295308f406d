"""What commands on the coordinator's own machine may do through its state folder, running or not.

`moregpu token create --local` mends a lost admin token for whoever can write the folder: it leaves the new token's
hash in `tokens/`, and the coordinator takes it in when the token is first shown.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from moregpu.coordinator.store.protocol import TokenRow
from moregpu.errors import NotConfigured, StateRefused
from moregpu.platform.private import private_folder, read_private, write_private
from moregpu.wire.api import Role, Scope
from moregpu.wire.invite import ClientLine, new_token, token_hash

LOCAL_TOKEN_S = 86400.0
"""A local token must be shown for the first time within this; its own expiry counts from then on."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """`listening.json`: where the coordinator of this folder is reached, now or when it last ran."""

    addresses: tuple[str, ...]
    pin: bytes
    pool_name: str


def create_local_token(
    state: Path,
    role: Role = "admin",
    label: str = "",
    expires_s: float | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    *,
    weight: float = 1.0,
    scope: Scope = "all",
    kinds: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
) -> ClientLine:
    """Make a token for a coordinator on this machine, running or not; its `line()` is shown once.

    Raises `NotConfigured` where no coordinator ever ran, `StateRefused` where the folder is not this user's.
    """
    listening = read_listening(state)
    id, token = new_token(entropy)
    wall = time.time()
    row = TokenRow(
        id=id,
        hash=token_hash(token),
        role=role,
        label=label or "made on this machine",
        created_at=wall,
        expires_at=None if expires_s is None else wall + expires_s,
        weight=weight,
        scope=scope,
        kinds=kinds,
        groups=groups,
    )
    write_private(local_tokens_folder(state) / id, msgspec.json.encode(row))
    return ClientLine(addresses=listening.addresses, pin=listening.pin, token=token)


def read_local_token(state: Path, id: str) -> TokenRow | None:
    """A token that waits to be taken in."""
    if not re.fullmatch(r"[a-z0-9]{8}", id):
        return None
    try:
        data = read_private(local_tokens_folder(state) / id)
        row = None if data is None else msgspec.json.decode(data, type=TokenRow)
    except (StateRefused, msgspec.DecodeError, OSError):
        return None
    return row if row is not None and row.id == id else None


def local_tokens_folder(state: Path) -> Path:
    """Where they wait."""
    return state / "tokens"


def save_listening(state: Path, listening: Listening) -> None:
    """Called by the coordinator once it listens."""
    private_folder(private_folder(state) / local_tokens_folder(state).name)
    write_private(state / "listening.json", msgspec.json.encode(listening))


def read_listening(state: Path) -> Listening:
    """Raises `NotConfigured` where no coordinator ever listened."""
    data = read_private(state / "listening.json") if state.is_dir() else None
    if data is None:
        raise NotConfigured(f"no coordinator ever ran from {state}", "start one: moregpu serve")
    try:
        return msgspec.json.decode(data, type=Listening)
    except msgspec.DecodeError as error:
        raise StateRefused(
            f"{state / 'listening.json'} is damaged: {error}", "start the coordinator: it writes it anew"
        ) from error
