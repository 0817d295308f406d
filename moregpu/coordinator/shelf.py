"""Kernels that an admin registered: kept as one setting of the store, put into jobs that name them."""

from __future__ import annotations

import msgspec

from moregpu.coordinator.store.protocol import Store
from moregpu.errors import Conflict, InvalidJob, InvalidRequest, NotFound, StateRefused, TooLarge
from moregpu.wire.api import KernelView
from moregpu.workloads import JobSpec, KernelSpec
from moregpu.workloads.kernel.custom import CUSTOM, read_kernel, refuse_new

MAX_KERNELS = 100
_SETTING = "pool.kernels"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A registered kernel, and since when."""

    source: str
    created_at: float


class KernelShelf:
    """All registered kernels of a pool, by name."""

    def __init__(self, store: Store):
        self._store = store
        self._kept: dict[str, Kept] = {}

    async def load(self) -> None:
        """Read what is kept; raises `StateRefused` when it is damaged."""
        text = await self._store.setting(_SETTING)
        try:
            self._kept = msgspec.json.decode(text, type=dict[str, Kept]) if text else {}
        except msgspec.DecodeError as error:
            raise StateRefused(f"the registered kernels are damaged: {error}", "restore a backup") from error

    def views(self) -> list[KernelView]:
        """All of them, by name."""
        return [self.view(name) for name in sorted(self._kept)]

    def view(self, name: str) -> KernelView:
        """One; raises `NotFound`."""
        kept = self._one(name)
        about = read_kernel(kept.source)
        return KernelView(
            name=about.name,
            digest=about.digest,
            summary=about.summary,
            inputs=list(about.inputs),
            parameters=list(about.parameters),
            reference=about.reference,
            source=about.source,
            created_at=kept.created_at,
        )

    def _one(self, name: str) -> Kept:
        kept = self._kept.get(name)
        if kept is None:
            raise NotFound(f"there is no kernel {name[:80]!r}", "`moregpu kernel list` shows them")
        return kept

    async def add(self, source: str, wall: float) -> KernelView:
        """Register a kernel. The same text again changes nothing.

        Raises `InvalidRequest` that names the line, `Conflict` for another text under a name that is taken, `TooLarge`.
        """
        try:
            about = read_kernel(source)
            refuse_new(source)
        except InvalidJob as error:
            raise InvalidRequest(error.detail, error.hint) from None
        known = self._kept.get(about.name)
        if known is not None and read_kernel(known.source).digest != about.digest:
            raise Conflict(f"another kernel is registered as {about.name!r}", "Remove that one first, or rename this")
        if known is None:
            if len(self._kept) >= MAX_KERNELS:
                raise TooLarge(f"there are {MAX_KERNELS} kernels", "Remove one first")
            await self._save({**self._kept, about.name: Kept(source=source, created_at=wall)})
        return self.view(about.name)

    async def drop(self, name: str) -> None:
        """Remove one: no new job may name it; those that are there go on. Raises `NotFound`."""
        self._one(name)
        await self._save({key: kept for key, kept in self._kept.items() if key != name})

    def completed(self, spec: JobSpec) -> JobSpec:
        """Put the registered text into a job that names a kernel. Raises `InvalidJob` for any other text or name."""
        if not isinstance(spec, KernelSpec) or spec.operation != CUSTOM:
            return spec
        kept = self._kept.get(spec.kernel)
        if kept is None:
            known = ", ".join(sorted(self._kept)) or "none"
            raise InvalidJob(f"there is no registered kernel {spec.kernel[:80]!r}", f"Registered are: {known}")
        if spec.source and read_kernel(spec.source).digest != read_kernel(kept.source).digest:
            raise InvalidJob(f"this is not the text that is registered as {spec.kernel!r}", "Leave `source` out")
        return msgspec.structs.replace(spec, source=kept.source)

    async def _save(self, kept: dict[str, Kept]) -> None:
        await self._store.set_setting(_SETTING, msgspec.json.encode(kept).decode())
        self._kept = kept
