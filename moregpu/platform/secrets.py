"""Secrets of this user: in the OS keyring, or, only where no keyring exists, in 0600 files, and the user is told.

Three outcomes (`Kept`): kept in the keyring; keyring locked (wait, show it, try again; never start over with new
secrets); no keyring, so a file. A keyring is believed only after a real round trip: `keyring.get_keyring()` can look
healthy while every call raises. Calls run on a thread with a time limit, since a keyring may wait for a person.
Items stay under 1,200 characters (Windows takes 2,560 bytes of UTF-16).

`MOREGPU_SECRETS=file` keeps everything in files (servers without a desktop, containers, tests).
"""

from __future__ import annotations

import hashlib
import os
import secrets as random
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from moregpu.errors import InvalidRequest, KeyringLocked
from moregpu.platform import paths
from moregpu.platform.private import private_folder, read_private, write_private

T = TypeVar("T")

SERVICE = "moregpu"
MAX_CHARACTERS = 1200
KEYRING_TIMEOUT_S = 5.0


class Kept(StrEnum):
    """Where secrets go on this machine."""

    KEYRING = "keyring"
    LOCKED = "locked"  # there is a keyring, but it does not open now
    FILE = "file"  # there is none: 0600 files in a 0700 folder


class TokenStore:
    """Named secrets. Items that lie in a file are found there first: no keyring is touched for them."""

    def __init__(self, folder: Path | None = None, *, timeout_s: float = KEYRING_TIMEOUT_S):
        """`folder` holds the files, where there is no keyring; by default the user's `secrets` state folder."""
        self.folder = folder if folder is not None else paths.secrets_folder()
        self._timeout_s = timeout_s
        self._found: Kept | None = None

    def where(self) -> Kept:
        """Probe by a real set, get and delete. Remembered, but for `LOCKED`, which may pass."""
        if self._found is None or self._found is Kept.LOCKED:
            self._found = self._probe()
        return self._found

    def put(self, name: str, secret: str) -> Kept:
        """Keep a secret; returns where. Raises `KeyringLocked`, and `InvalidRequest` for what is too long."""
        if len(secret) > MAX_CHARACTERS:
            raise InvalidRequest(f"a secret of {len(secret)} characters does not fit every keyring ({MAX_CHARACTERS})")
        where = self.where()
        if where is Kept.LOCKED:
            raise _locked()
        if where is Kept.FILE:
            private_folder(self.folder)
            write_private(self._file(name), secret.encode())
        else:
            self._steadily(lambda keyring: keyring.set_password(SERVICE, name, secret))
            self._file(name).unlink(missing_ok=True)  # an older copy must not win
        return where

    def get(self, name: str) -> str | None:
        """The secret, or None when there is none to be found.

        Raises `KeyringLocked`, and `StateRefused` for a file that others can read.
        """
        kept = read_private(self._file(name))
        if kept is not None:
            return kept.decode()
        where = self.where()
        if where is Kept.LOCKED:
            raise _locked()
        if where is Kept.FILE:
            return None
        return self._steadily(lambda keyring: keyring.get_password(SERVICE, name))

    def delete(self, name: str) -> None:
        """Forget a secret, wherever it lies; one that is not there is no error. Raises `KeyringLocked`."""
        if self._file(name).exists():
            self._file(name).unlink(missing_ok=True)
            return
        where = self.where()
        if where is Kept.LOCKED:
            raise _locked()
        if where is Kept.KEYRING and self.get(name) is not None:
            self._steadily(lambda keyring: keyring.delete_password(SERVICE, name))

    def told(self) -> str:
        """One sentence for the user about where secrets lie."""
        match self.where():
            case Kept.KEYRING:
                return "secrets are in this system's keyring"
            case Kept.LOCKED:
                return "the keyring is locked: unlock it (log in to the desktop, or seahorse) and it goes on"
            case Kept.FILE:
                return f"no keyring on this system: secrets are in files that only you can read, in {self.folder}"

    def _file(self, name: str) -> Path:
        """Names hold slashes and pool ids, so the file is named by their hash."""
        return self.folder / (hashlib.blake2b(name.encode(), digest_size=16).hexdigest() + ".secret")

    def _probe(self) -> Kept:
        """What this machine's keyring really does."""
        if os.environ.get("MOREGPU_SECRETS", "").lower() == "file":
            return Kept.FILE
        name, value = f"probe/{random.token_hex(8)}", random.token_hex(8)

        def round_trip(keyring: Any) -> bool:
            keyring.set_password(SERVICE, name, value)
            same = keyring.get_password(SERVICE, name) == value
            keyring.delete_password(SERVICE, name)
            return same

        try:
            return Kept.KEYRING if self._call(round_trip) else Kept.FILE
        except KeyringLocked:
            return Kept.LOCKED
        except _NoKeyring:
            return Kept.FILE

    def _steadily(self, work: Callable[[Any], T]) -> T:
        """A call to a keyring that worked before: one that fails now is away for a while, not absent."""
        try:
            return self._call(work)
        except _NoKeyring as error:
            self._found = None
            raise _locked() from error

    def _call(self, work: Callable[[Any], T]) -> T:
        """Run `work(keyring)` on a thread of its own; a call that hangs waits for a person, which is: locked."""
        outcome: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                import keyring  # 0.1 s, and not needed where files are used

                outcome.append(work(keyring))
            except Exception as error:  # noqa: BLE001 — backends raise D-Bus, ctypes and OS errors of their own
                failure.append(error)

        # A daemon: a keyring that never answers must not keep the process from ending.
        thread = threading.Thread(target=run, name="keyring", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if outcome:
            return outcome[0]
        if not failure:
            raise _locked()
        raise _understood(failure[0]) from failure[0]


class _NoKeyring(Exception):
    """There is no keyring that works."""


def _understood(error: BaseException) -> Exception:
    """Bring a backend's error to one of the outcomes."""
    from keyring.errors import KeyringLocked as Locked

    if isinstance(error, Locked):
        return _locked()
    # secretstorage's own class, when the collection locks between two calls; keyring passes it on as it is.
    if type(error).__name__ in ("LockedException", "PromptDismissedException"):
        return _locked()
    return _NoKeyring(str(error))


def _locked() -> KeyringLocked:
    return KeyringLocked(
        "the system's keyring is locked or waits for its password",
        "unlock it and try again, or set MOREGPU_SECRETS=file to keep secrets in files that only you can read",
    )
