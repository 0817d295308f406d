"""What a worker offers of functions: nothing, unless its owner wants it and a sandbox holds (or is done without)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from moregpu.worker.config import WorkerConfig
from moregpu.worker.sandbox.level import Level

# The rest is loaded where somebody's functions are let in: a megabyte of memory that most workers never need.
if TYPE_CHECKING:
    from moregpu.worker.environments.cache import Environments
    from moregpu.worker.functions.room import FunctionRoom, RoomOwner

KIND = "function"

_log = logging.getLogger(__name__)


class FunctionOffer:
    """Made once, before the worker says Hello."""

    def __init__(self, config: WorkerConfig, folder: Path, level: Level):
        self.level = level
        self._config = config
        self._folder = folder
        wanted = KIND in config.allowed_kinds
        unconfined = config.functions_unconfined and not level.who.trouble and level.has_python
        holds = level.isolation != "none" or unconfined
        self.is_open = wanted and holds
        """Whether functions may run here."""
        self.trouble = "" if holds or not wanted else f"functions stay off: {'; '.join(level.why)}"
        if self.trouble:
            _log.warning("%s", self.trouble)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of jobs that this worker takes."""
        return tuple(kind for kind in self._config.allowed_kinds if kind != KIND or self.is_open)

    @property
    def consent(self) -> dict[str, list[str]]:
        """Whose jobs of a kind it takes."""
        return {kind: whose for kind, whose in self._config.consent.items() if kind != KIND or self.is_open}

    def room(self, owner: RoomOwner, cores: int) -> FunctionRoom | None:
        """Where functions run; None where they are not offered. Call on the event loop."""
        if not self.is_open:
            return None
        from moregpu.worker.functions.room import FunctionRoom

        environments = _environments(self._config, self._folder)
        room = FunctionRoom(
            owner,
            level=self.level,
            runtime=environments.runtime,
            folder=self._folder / "functions",
            cores=cores,
            network=self._config.functions_network,
        )
        environments.used = room.runtimes
        return room


async def offer_functions(config: WorkerConfig, folder: Path) -> FunctionOffer:
    """Look what confines here, unless nobody's functions are wanted anyway."""
    if KIND not in config.allowed_kinds:
        return FunctionOffer(config, folder, Level(isolation="none", why=("functions are off",)))
    from moregpu.worker.functions.probe import find_level
    from moregpu.worker.functions.proven import Proven

    level = await find_level(folder / "functions", _environments(config, folder), Proven(folder / "sandbox.json"))
    return FunctionOffer(config, folder, level)


def _environments(config: WorkerConfig, folder: Path) -> Environments:
    from moregpu.worker.environments.cache import Environments

    return Environments(
        folder / "environments", downloads=config.python_downloads, most_bytes=config.environments_bytes
    )
