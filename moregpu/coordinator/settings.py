"""What an admin may change about a pool while it runs: its name, its words, its limits. Kept in the store."""

from __future__ import annotations

import msgspec

from moregpu.coordinator.quotas import Quotas
from moregpu.coordinator.store.protocol import Store
from moregpu.errors import StateRefused
from moregpu.wire.api import PoolChange

NAME_SETTING = "pool.name"
_LIMITS_SETTING = "pool.limits"
_GROUPS_SETTING = "pool.groups"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """As kept; a newer version may know more."""

    description: str = ""
    keep_bytes: int | None = None
    """Outputs of ended jobs beyond this go, oldest first."""
    max_blob_bytes: int = 1 << 40
    """Largest sealed blob that a client may upload."""
    quotas: Quotas = Quotas()
    """Of each submitter."""


class PoolSettings:
    """The settings of one pool, as they now are."""

    def __init__(self, store: Store, name: str, limits: Limits, groups: dict[str, str]):
        self._store = store
        self.name = name
        self.limits = limits
        self.groups = groups
        """Groups that were made by name, with their descriptions; workers may carry others."""

    @classmethod
    async def load(cls, store: Store, name: str) -> PoolSettings:
        """Read what is kept; raises `StateRefused` when it is damaged. `name`: given now, or before."""
        limits, groups = await store.setting(_LIMITS_SETTING), await store.setting(_GROUPS_SETTING)
        try:
            return cls(
                store,
                name,
                Limits() if limits is None else msgspec.json.decode(limits, type=Limits),
                {} if groups is None else msgspec.json.decode(groups, type=dict[str, str]),
            )
        except msgspec.DecodeError as error:
            raise StateRefused(f"the pool's settings are damaged: {error}", "restore a backup") from error

    async def change(self, wanted: PoolChange) -> None:
        """Keep what the change names."""
        limits = self.limits
        if wanted.description is not None:
            limits = msgspec.structs.replace(limits, description=wanted.description)
        if wanted.keep_bytes is not None:
            limits = msgspec.structs.replace(limits, keep_bytes=wanted.keep_bytes or None)
        if wanted.max_blob_bytes is not None:
            limits = msgspec.structs.replace(limits, max_blob_bytes=wanted.max_blob_bytes)
        quotas = limits.quotas
        if wanted.submitter_jobs is not None:
            quotas = msgspec.structs.replace(quotas, jobs=wanted.submitter_jobs)
        if wanted.submitter_bytes is not None:
            quotas = msgspec.structs.replace(quotas, stored_bytes=wanted.submitter_bytes or None)
        limits = msgspec.structs.replace(limits, quotas=quotas)
        if limits != self.limits:
            await self._store.set_setting(_LIMITS_SETTING, msgspec.json.encode(limits).decode())
            self.limits = limits
        if wanted.name is not None and wanted.name != self.name:
            await self._store.set_setting(NAME_SETTING, wanted.name)
            self.name = wanted.name

    async def describe_group(self, name: str, description: str | None) -> None:
        """Keep a group's description; None lets go of it."""
        groups = {key: text for key, text in self.groups.items() if key != name}
        if description is not None:
            groups[name] = description
        await self._store.set_setting(_GROUPS_SETTING, msgspec.json.encode(groups).decode())
        self.groups = groups
