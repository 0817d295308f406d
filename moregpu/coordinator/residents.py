"""Named tensors: a name that holds a reference to a blob, so that it stays here and workers keep it in their caches.

Each submitter has its own names. The list of one submitter is kept as one setting of the store, sealed: it holds keys.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from moregpu.coordinator.store.protocol import Store
from moregpu.coordinator.store.sealing import RowSealer
from moregpu.errors import NotFound, StateRefused, TooLarge
from moregpu.ids import name_order
from moregpu.jobs import Blob, Tensor

MAX_NAMES = 10_000
"""Of one submitter."""
_LIST = "tensors.submitters"
_PLACE = "tensors"


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A named tensor."""

    name: str
    tensor: Tensor
    created_at: float
    note: dict[str, str] = {}
    """What a door wants to remember about it."""


class Residents:
    """All named tensors of a pool."""

    def __init__(self, store: Store, key: bytes, entropy: Callable[[int], bytes]):
        self._store = store
        self._sealer = RowSealer(key, entropy)
        self._by_submitter: dict[str, dict[str, Resident]] = {}

    async def load(self) -> None:
        """Read what is kept; raises `StateRefused` when it is damaged."""
        listed = await self._store.setting(_LIST)
        for submitter in msgspec.json.decode(listed, type=list[str]) if listed else []:
            text = await self._store.setting(_setting(submitter))
            if text is None:
                continue
            try:
                plain = self._sealer.open(_PLACE, submitter, base64.b64decode(text))
                rows = msgspec.msgpack.decode(plain, type=list[Resident])
            except (msgspec.DecodeError, ValueError) as error:
                raise StateRefused(f"the named tensors are damaged: {error}", "restore a backup") from error
            self._by_submitter[submitter] = {row.name: row for row in rows}

    def of(self, submitter: str) -> list[Resident]:
        """A submitter's, by name."""
        return sorted(self._by_submitter.get(submitter, {}).values(), key=lambda row: name_order(row.name))

    def get(self, submitter: str, name: str) -> Resident:
        """One; raises `NotFound`."""
        row = self._by_submitter.get(submitter, {}).get(name)
        if row is None:
            raise NotFound(f"there is no tensor {name[:80]!r} of yours", "GET /v1/tensors lists them")
        return row

    async def put(self, submitter: str, row: Resident) -> None:
        """Keep one, in place of an earlier one of that name. Raises `TooLarge` for one too many."""
        mine = self._by_submitter.get(submitter, {})
        if row.name not in mine and len(mine) >= MAX_NAMES:
            raise TooLarge(f"you have {MAX_NAMES:,} named tensors", "DELETE /v1/tensors/{name} lets one go")
        await self._save(submitter, {**mine, row.name: row})

    async def drop(self, submitter: str, name: str) -> None:
        """Let one go; raises `NotFound`. Its blob goes once no job names it."""
        self.get(submitter, name)
        await self._save(submitter, {key: row for key, row in self._by_submitter[submitter].items() if key != name})

    def digests(self) -> frozenset[str]:
        """Blobs that named tensors keep here."""
        return frozenset(
            row.tensor.data.digest
            for rows in self._by_submitter.values()
            for row in rows.values()
            if isinstance(row.tensor.data, Blob)
        )

    async def _save(self, submitter: str, rows: dict[str, Resident]) -> None:
        sealed = self._sealer.seal(_PLACE, submitter, msgspec.msgpack.encode(list(rows.values())))
        await self._store.set_setting(_setting(submitter), base64.b64encode(sealed).decode())
        if submitter not in self._by_submitter:
            submitters = sorted({*self._by_submitter, submitter})
            await self._store.set_setting(_LIST, msgspec.json.encode(submitters).decode())
        self._by_submitter[submitter] = rows


def _setting(submitter: str) -> str:
    return f"{_PLACE}.{submitter}"
