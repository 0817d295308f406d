"""The state folder of a coordinator: 0700, its files 0600, one coordinator at a time, keys sealed at rest.

    pool.json        version, id of this state, where it lay when it was last opened
    lock             held by the running coordinator; backup.lock by whoever takes a backup
    keys             the pool's private keys, sealed
    tls-cert.pem     the certificate; tls-key.pem its key, encrypted
    pool.sqlite      the store; rows that hold keys are sealed in it
    blobs/           sealed blobs by name
    tokens/          tokens made by `moregpu token create --local`, until the coordinator takes them in
    secrets/         only where there is no keyring: the wrapping key, 0600

Everything secret in it is sealed under one wrapping key of 32 bytes that lies in the OS keyring, so a copy of the
folder alone is worth nothing there. `pool.json` is written last: a folder that a crash left half-made is made again.
"""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from moregpu.errors import StateRefused, VersionMismatch
from moregpu.platform.private import check_private, private_folder, read_private, write_private
from moregpu.platform.secrets import Kept, TokenStore
from moregpu.wire.identity import PoolKeys

STATE_VERSION = 1
_LEAVE_UNCHECKED = frozenset({"blobs"})  # the folder is private; a million files below it are not looked at one by one


class _Description(msgspec.Struct, frozen=True, kw_only=True):
    """What `pool.json` holds. A newer version may say more; `version` decides whether it is understood."""

    version: int
    id: str
    path: str
    inode: int
    secrets: str


class StateFolder:
    """An open state folder. Close it to let the next coordinator in."""

    def __init__(self, path: Path, lock: int, description: _Description, wrap_key: bytes, keys: PoolKeys, fresh: bool):
        self.path = path
        self.id = description.id
        self.keys = keys
        self.secrets_in = description.secrets
        """Where the wrapping key lies: "keyring" or "file"."""
        self.fresh = fresh
        """Whether this call made it: there is no pool in it yet."""
        self._lock = lock
        self._wrap_key = wrap_key

    @property
    def database(self) -> Path:
        """The store's file."""
        return self.path / "pool.sqlite"

    @property
    def blobs(self) -> Path:
        """The folder of sealed blobs."""
        return self.path / "blobs"

    @property
    def row_key(self) -> bytes:
        """The key that rows with keys in them are sealed under."""
        return derived(self._wrap_key, "moregpu state rows")

    @property
    def tls_password(self) -> bytes:
        """What the TLS key's file is encrypted under."""
        return derived(self._wrap_key, "moregpu state tls").hex().encode()

    def save_keys(self, keys: PoolKeys, entropy: Callable[[int], bytes] = os.urandom) -> None:
        """Replace the pool's keys, durably."""
        write_private(self.path / "keys", _sealed(keys.dump(), self._wrap_key, self.id, entropy))

    @property
    def setting_key(self) -> bytes:
        """The key that settings with secrets in them are sealed under."""
        return derived(self._wrap_key, "moregpu state settings")

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def open_state(
    path: Path, tokens: TokenStore | None = None, entropy: Callable[[int], bytes] = os.urandom
) -> StateFolder:
    """Open the state folder of a pool, or make one.

    Raises `StateRefused` (in use, loose, copied, keys not here), `VersionMismatch` (of a newer version) and
    `KeyringLocked`; each says what to do. Nothing is changed in a folder that is refused.
    """
    path = private_folder(path.expanduser().absolute())
    _check_files(path)
    lock = _locked(path)
    try:
        store = tokens if tokens is not None else TokenStore(path / "secrets")
        description = _described(path)
        if description is None:
            return _made(path, lock, store, entropy)
        _check_place(path, description)
        _check_database(path)
        wrap_key = _wrap_key(description, store)
        keys = PoolKeys.load(_unsealed(path, wrap_key, description.id))
        if description.path != str(path) or description.inode != path.stat().st_ino:
            description = msgspec.structs.replace(description, path=str(path), inode=path.stat().st_ino)
            write_private(path / "pool.json", msgspec.json.encode(description))
        return StateFolder(path, lock, description, wrap_key, keys, fresh=False)
    except BaseException:
        os.close(lock)
        raise


def sealed_under(path: Path, tokens: TokenStore | None = None) -> tuple[str, bytes]:
    """(id, wrapping key) of a state folder, whether or not a coordinator has it open. Raises what `open_state` does."""
    check_private(path)
    description = _described(path)
    if description is None:
        raise StateRefused(f"{path} holds no pool that was finished", "start it once: moregpu serve")
    return description.id, _wrap_key(description, tokens if tokens is not None else TokenStore(path / "secrets"))


def check_state(path: Path, tokens: TokenStore | None = None) -> None:
    """Look whether a state folder would open, and change nothing. Raises what `open_state` does, but for its lock."""
    check_private(path)
    _check_files(path)
    sealed_under(path, tokens)
    _check_database(path)


@contextlib.contextmanager
def one_backup(path: Path) -> Generator[None]:
    """Let one backup at a time be taken of a folder; whatever an earlier one left may then be cleared away."""
    lock = _locked(path, "backup.lock", f"another backup of {path} is being taken", "wait for it")
    try:
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def held_empty(path: Path) -> Generator[None]:
    """Hold an empty folder, made where there is none, so that no coordinator begins a pool in it."""
    private_folder(path)
    if any(path.iterdir()):
        raise StateRefused(f"{path} is not empty", "give the pool that comes back a folder of its own: --state DIR")
    lock = _locked(path)
    try:
        yield
    finally:
        os.close(lock)
        if not (path / "pool.json").exists():
            (path / "lock").unlink(missing_ok=True)


def make_restored(path: Path, id: str, wrap_key: bytes, tokens: TokenStore | None = None) -> Kept:
    """Make the files that were put into a held folder a pool's state; returns where its wrapping key went."""
    PoolKeys.load(_unsealed(path, wrap_key, id))
    store = tokens if tokens is not None else TokenStore(path / "secrets")
    kept = store.put(_name(id), base64.b64encode(wrap_key).decode())
    _describe(path, id, kept)
    return kept


def derived(key: bytes, purpose: str) -> bytes:
    """A subkey of 32 bytes for one purpose."""
    return blake3(key, derive_key_context=purpose).digest()


# ---- opening ---------------------------------------------------------------------------------------------------------


def _check_files(path: Path) -> None:
    """Refuse a folder in which anything can be read by others."""
    for entry in sorted(path.iterdir()):
        if entry.is_symlink():
            raise StateRefused(f"{entry} is a symbolic link", "a state folder holds files of its own only; move it in")
        check_private(entry)
        if entry.is_dir() and entry.name not in _LEAVE_UNCHECKED:
            _check_files(entry)


def _locked(path: Path, name: str = "lock", why: str = "", hint: str = "") -> int:
    """Take one of the folder's locks; it goes with the process, however that ends."""
    lock = os.open(path / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock_file(lock)
    except OSError as error:
        os.close(lock)
        raise StateRefused(
            why or f"another coordinator uses {path}",
            hint or "stop it, or give this one a folder of its own: moregpu serve --state DIR",
        ) from error
    return lock


def _lock_file(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _described(path: Path) -> _Description | None:
    """Read `pool.json`; None in a folder that was never finished."""
    data = read_private(path / "pool.json")
    if data is None:
        if (path / "pool.sqlite").exists():
            raise StateRefused(f"{path} holds a pool, but its pool.json is gone", "restore the folder from a backup")
        return None
    try:
        version = msgspec.json.decode(data, type=dict[str, Any]).get("version")
        if isinstance(version, int) and version > STATE_VERSION:
            raise VersionMismatch(
                f"{path} was written by a newer MoreGPU (state version {version}, this one knows {STATE_VERSION})",
                "update MoreGPU on this machine; nothing was changed",
            )
        return msgspec.json.decode(data, type=_Description)
    except msgspec.DecodeError as error:
        raise StateRefused(f"{path / 'pool.json'} is damaged: {error}", "restore the folder from a backup") from error


def _check_place(path: Path, description: _Description) -> None:
    """A copy lies elsewhere *and* is another folder; a rename keeps the inode, a restored backup keeps the path."""
    if description.path != str(path) and description.inode != path.stat().st_ino:
        raise StateRefused(
            f"{path} is a copy of {description.path}: two coordinators with one identity would break both pools",
            f'if the other one is gone for good: change "path" in {path / "pool.json"} to "{path}"',
        )


def _check_database(path: Path) -> None:
    """A pool that listened once has a database. Without it another would begin here under its name, and say nothing."""
    database = path / "pool.sqlite"
    if (path / "listening.json").exists() and not (database.exists() and database.stat().st_size):
        raise StateRefused(
            f"{path} holds a pool, but its database is {'empty' if database.exists() else 'gone'}",
            "restore the pool from a backup; a new one takes a folder of its own: moregpu serve --state DIR",
        )


def _wrap_key(description: _Description, store: TokenStore) -> bytes:
    text = store.get(_name(description.id))
    if text is None:
        where = "this user's keyring" if description.secrets == "keyring" else f"{store.folder}"
        raise StateRefused(
            f"the key that this state is sealed under is not in {where}",
            "start as the user (and on the machine) that made it, with the same keyring unlocked",
        )
    return base64.b64decode(text)


def _made(path: Path, lock: int, store: TokenStore, entropy: Callable[[int], bytes]) -> StateFolder:
    """First run: keys, then the description that makes them count."""
    id = entropy(16).hex()
    wrap_key = entropy(32)
    kept = store.put(_name(id), base64.b64encode(wrap_key).decode())
    keys = PoolKeys.generate()
    write_private(path / "keys", _sealed(keys.dump(), wrap_key, id, entropy))
    return StateFolder(path, lock, _describe(path, id, kept), wrap_key, keys, fresh=True)


def _describe(path: Path, id: str, kept: Kept) -> _Description:
    """Write `pool.json`, after all that it speaks of."""
    description = _Description(
        version=STATE_VERSION, id=id, path=str(path), inode=path.stat().st_ino, secrets=kept.value
    )
    write_private(path / "pool.json", msgspec.json.encode(description))
    return description


def _name(id: str) -> str:
    """Name of the wrapping key in the token store."""
    return f"pool/{id}/wrap"


# ---- sealing the keys ------------------------------------------------------------------------------------------------


def _sealed(data: bytes, wrap_key: bytes, id: str, entropy: Callable[[int], bytes]) -> bytes:
    nonce = entropy(12)
    return nonce + AESGCM(derived(wrap_key, "moregpu state keys")).encrypt(nonce, data, id.encode())


def _unsealed(path: Path, wrap_key: bytes, id: str) -> bytes:
    data = read_private(path / "keys")
    if data is None:
        raise StateRefused(f"{path / 'keys'} is gone", "restore the folder from a backup")
    try:
        return AESGCM(derived(wrap_key, "moregpu state keys")).decrypt(data[:12], data[12:], id.encode())
    except (InvalidTag, ValueError) as error:
        raise StateRefused(
            f"{path / 'keys'} does not open with this state's key: damaged, or from another folder",
            "restore the folder from a backup",
        ) from error
