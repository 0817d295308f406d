"""A worker's state folder: which pool it belongs to, its keys, and the lock that keeps a second worker out.

    enrolment.json   the pool and how to reach it; until the first Welcome also the invite's secret
    results/         results without a last word (`moregpu.worker.results`)
    cache/           sealed inputs
    lock             held while a worker runs from here

Keys are in the system's keyring, or in `secrets/` where there is none.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import logging
import os
import shutil
import time
from pathlib import Path

import msgspec

from moregpu.errors import NotConfigured, StateRefused, VersionMismatch
from moregpu.platform.private import private_folder, read_private, write_private
from moregpu.platform.room import is_full
from moregpu.platform.secrets import TokenStore
from moregpu.platform.settings import part_folder
from moregpu.wire.identity import WorkerKeys, fingerprint
from moregpu.wire.invite import Invite
from moregpu.wire.messages import Welcome

_log = logging.getLogger(__name__)

STATE_VERSION = 1
ENROLMENT = "enrolment.json"
_LOOK_S = 0.1


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """The pool that this worker belongs to."""

    version: int = STATE_VERSION
    addresses: tuple[str, ...]
    pool_id: bytes
    cs_pub: bytes
    pin: bytes = b""
    pool_name: str = ""
    invite_id: str = ""
    invite_secret: bytes = b""  # until the first Welcome: the same key may present it again
    ci_pub: bytes = b""  # pinned by the first Welcome
    next_cs: bytes = b""  # during a rotation of the pool's session key
    worker: str = ""

    @property
    def welcomed(self) -> bool:
        """Whether the pool ever took this worker in."""
        return bool(self.ci_pub)

    @property
    def fingerprint(self) -> str:
        """The pool's words, that people compare."""
        return fingerprint(self.pool_id)


def worker_folder(state: str) -> Path:
    """The state folder that a setting names, or the usual one."""
    return Path(state).expanduser().absolute() if state else part_folder("worker")


def has_joined(folder: Path) -> bool:
    """Whether a worker was taken into a pool from this folder; an invite that nobody answered does not count."""
    data = read_private(folder / ENROLMENT) if folder.is_dir() else None
    return data is not None and _decoded(data, folder).welcomed


def wait_until_left(folder: Path, longest_s: float) -> None:
    """Wait for a worker that leaves this folder; one that stays is found by whoever opens it."""
    until = time.monotonic() + longest_s
    while time.monotonic() < until:
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # nobody was here yet, or whoever opens it says what is wrong
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_LOOK_S)
        else:
            return
        finally:
            os.close(lock)


class WorkerHome:
    """An open state folder. Raises `StateRefused` when it is loose or in use, `VersionMismatch` when newer."""

    def __init__(self, folder: Path):
        try:
            self.folder = private_folder(folder)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise StateRefused(
                f"another worker runs from {folder}", "stop it first, or give this one a folder of its own (--state)"
            ) from error
        try:
            self._secrets = TokenStore(folder / "secrets")
            self.enrolment = self._load()
        except BaseException:
            self.close()
            raise

    @classmethod
    def existing(cls, folder: Path) -> WorkerHome:
        """Open the folder of a worker that has joined; raises `NotConfigured` where none has."""
        if not folder.is_dir():
            raise _no_pool(folder)
        home = cls(folder)
        if home.enrolment is None:
            home.close()
            raise _no_pool(folder)
        return home

    def close(self) -> None:
        """Let the folder go."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- the pool

    def accept(self, invite: Invite) -> Enrolment:
        """Note an invite. One to the same pool brings new addresses; one to another is refused.

        Raises `StateRefused` also where it cannot be written.
        """
        before = self.enrolment
        if before is not None and before.pool_id != invite.pool_id:
            raise StateRefused(
                f"this worker belongs to the pool {before.pool_name or before.fingerprint}; the invite is for another",
                f"give the new one a folder of its own (--state), or delete {self.folder} to leave the old pool",
            )
        if before is not None and before.welcomed:
            return self._save(
                msgspec.structs.replace(
                    before, addresses=invite.addresses, pin=invite.pin, cs_pub=invite.cs_pub, next_cs=b"",
                    invite_id=invite.invite_id, invite_secret=invite.secret,
                )
            )  # fmt: skip
        return self._save(
            Enrolment(
                addresses=invite.addresses,
                pool_id=invite.pool_id,
                cs_pub=invite.cs_pub,
                pin=invite.pin,
                pool_name=invite.pool_name,
                invite_id=invite.invite_id,
                invite_secret=invite.secret,
            )
        )

    def admitted(self, welcome: Welcome) -> Enrolment:
        """Note a Welcome: the invite has done its work. Writes only what is new.

        On a full disk it holds until the end of this process: the next one presents the invite again, which the same
        key may.
        """
        before = self.enrolment
        if before is None:
            raise _no_pool(self.folder)
        after = msgspec.structs.replace(
            before,
            pool_name=welcome.pool_name,
            ci_pub=welcome.ci_pub,
            worker=welcome.worker,
            invite_id="",
            invite_secret=b"",
            next_cs=welcome.next_cs,
        )
        return after if after == before else self._noted(after)

    def promote(self) -> Enrolment | None:
        """The pool's next session key has come into use: it is the key from now on."""
        if self.enrolment is None or not self.enrolment.next_cs:
            return self.enrolment
        return self._noted(msgspec.structs.replace(self.enrolment, cs_pub=self.enrolment.next_cs, next_cs=b""))

    def forget_invite(self) -> None:
        """The pool refused the invite: the folder is as if nothing had been pasted."""
        if self.enrolment is not None and not self.enrolment.welcomed:
            self._place.unlink(missing_ok=True)
            self.enrolment = None

    def leave(self) -> None:
        """Leave the pool: keys, enrolment, results and cache go, wherever they lie. Raises `KeyringLocked`."""
        self._secrets.delete(self._name)
        self._place.unlink(missing_ok=True)
        for part in ("results", "cache"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        self.enrolment = None

    def _load(self) -> Enrolment | None:
        data = read_private(self._place)
        if data is None:
            return None
        return _decoded(data, self.folder)

    def _save(self, enrolment: Enrolment) -> Enrolment:
        try:
            write_private(self._place, msgspec.json.encode(enrolment))
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        self.enrolment = enrolment
        return enrolment

    def _noted(self, enrolment: Enrolment) -> Enrolment:
        """Save what the pool said; work goes on where that cannot be written."""
        self.enrolment = enrolment
        try:
            return self._save(enrolment)
        except StateRefused as error:
            _log.warning("%s", error)
            return enrolment

    @property
    def _place(self) -> Path:
        return self.folder / ENROLMENT

    # -- keys

    def keys(self) -> WorkerKeys:
        """The worker's keys; made on first use. Raises `KeyringLocked`: wait, never make new ones then."""
        kept = self._secrets.get(self._name)
        if kept is not None:
            try:
                return WorkerKeys.load(base64.b64decode(kept, validate=True))
            except binascii.Error as error:
                raise StateRefused("The worker's keys are damaged", "Join the pool again with a new invite") from error
        if self.enrolment is not None and self.enrolment.welcomed:
            raise StateRefused(
                "the keys of this worker are gone", f"delete {self.folder} and join again with a new invite"
            )
        keys = WorkerKeys.generate()
        self._secrets.put(self._name, base64.b64encode(keys.dump()).decode())
        return keys

    def told(self) -> str:
        """Where the keys lie, in a sentence."""
        return self._secrets.told()

    @property
    def _name(self) -> str:
        return f"worker/{self.folder}"


def _decoded(data: bytes, folder: Path) -> Enrolment:
    try:
        enrolment = msgspec.json.decode(data, type=Enrolment)
    except msgspec.MsgspecError as error:
        raise StateRefused(f"{folder / ENROLMENT} is damaged", "delete it and join again with a new invite") from error
    if enrolment.version > STATE_VERSION:
        raise VersionMismatch(
            f"{folder} was written by a newer version of MoreGPU", "update this one: pip install -U moregpu"
        )
    return enrolment


def _unwritable(folder: Path, error: OSError) -> StateRefused:
    return StateRefused(
        f"{folder} cannot be written: {error.strerror or error}",
        f"{'free some space' if is_full(error) else 'mend its rights'}, or give the worker another folder (--state)",
    )


def _no_pool(folder: Path) -> NotConfigured:
    return NotConfigured(
        f"no worker has joined a pool from {folder}",
        "`moregpu invite` on the coordinator prints an invite; give it to `moregpu join`",
    )
