"""Results that wait for the coordinator's last word, kept on disk so that a crash of the agent loses none.

One small file each, written without a sync: it has to survive the process, not the power; a result that is lost is
computed again. A tiny result is normally acknowledged within milliseconds, so only older ones are written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from blake3 import blake3

from moregpu.platform.private import private_folder
from moregpu.wire.messages import LeaseRef, ResultEntry

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ResultEntry).decode

SETTLE_S = 0.1
"""Results younger than this are not written yet."""


class KeptResults:
    """A folder of results."""

    def __init__(self, folder: Path):
        self._folder = private_folder(folder)
        self._written: dict[tuple[str, int, bytes], Path] = {}  # by lease: most results never have a file

    def load(self) -> list[ResultEntry]:
        """What an earlier process left. A file that was cut off by a crash is dropped: its task runs again."""
        return list(self._load())

    def _load(self) -> Iterator[ResultEntry]:
        for path in sorted(self._folder.iterdir()):
            try:
                entry = _decode(path.read_bytes())
            except (msgspec.MsgspecError, OSError):
                _log.warning("a kept result could not be read and is dropped: %s", path.name)
                path.unlink(missing_ok=True)
                continue
            self._written[_lease(entry)] = path
            yield entry

    def keep(self, entry: ResultEntry) -> None:
        """Write a result, unless it is there. A full disk is no failure: it stays in memory."""
        if _lease(entry) in self._written:
            return
        path = self._path(entry)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(_encode(entry))
        except OSError as error:
            _log.warning("a result is kept in memory only: %s", error.strerror)
            return
        self._written[_lease(entry)] = path

    def keep_old(self, made: Iterable[tuple[float, ResultEntry]], now: float) -> bool:
        """Write those of results, the oldest first, that had their time; returns whether younger ones are left."""
        for made_at, entry in made:
            if now - made_at < SETTLE_S:
                return True
            self.keep(entry)
        return False

    def drop(self, ref: LeaseRef) -> None:
        """Forget a result."""
        path = self._written.pop(_lease(ref), None)
        if path is not None:
            path.unlink(missing_ok=True)

    def _path(self, entry: ResultEntry) -> Path:
        name = blake3(f"{entry.task}\0{entry.attempt}\0".encode() + entry.token).hexdigest()[:32]
        return self._folder / name


def _lease(of: ResultEntry | LeaseRef) -> tuple[str, int, bytes]:
    return (of.task, of.attempt, of.token)
