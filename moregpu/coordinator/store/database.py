"""An SQLite file of ours: opened privately, brought to this version by numbered steps, its failures typed."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from importlib import resources
from pathlib import Path

from moregpu.errors import MoreGPUError, OutOfSpace, StateRefused, Unavailable, VersionMismatch

APPLICATION_ID = 0x4D475055  # "MGPU", in the file's header
CHECKPOINT_PAGES = 4000
"""Pages that gather in the write-ahead log before they are moved into the database: 16 MB."""

CACHE_KIB = 4000
"""Of each of three connections. What is alive lies in memory as rows; the system's own cache keeps the file's pages."""

NEARLY_FULL_BYTES = 1 << 20


def migrations() -> list[tuple[int, str]]:
    """(version, SQL) of every step, in order."""
    folder = resources.files("moregpu.coordinator.store") / "migrations"
    steps = [
        (int(match[1]), entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_\w+\.sql", entry.name))
    ]
    return sorted(steps)


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time; commits are durable when they return."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=128, timeout=30)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the database to this version, each step whole.

    Raises `VersionMismatch` for a newer version's database, `StateRefused` for a file that is none of ours.
    """
    steps = migrations()
    newest = steps[-1][0]
    application = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application != APPLICATION_ID and (tables or version):
        raise StateRefused(f"{path.name} is another program's database", "give the pool a folder of its own")
    if version > newest:
        raise VersionMismatch(
            f"{path.name} is of version {version}; this MoreGPU knows versions up to {newest}",
            "update MoreGPU, or use the version that wrote it; nothing was changed",
        )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA secure_delete = FAST")
        for number, sql in steps:
            if number > version:
                connection.executescript(
                    f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID};\n{sql}\n"
                    f"PRAGMA user_version = {number}; COMMIT;"
                )
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def typed(error: sqlite3.Error, path: Path) -> MoreGPUError:
    """Say in our words why the disk refused."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StateRefused(
            f"{path.name} is not a database of a pool, or it is damaged: {error}",
            "restore the state folder from a backup",
        )
    try:
        nearly_full = shutil.disk_usage(path.parent).free < NEARLY_FULL_BYTES
    except OSError:
        nearly_full = False
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and nearly_full):
        return OutOfSpace(
            "the disk of the coordinator's state folder is full; nothing of this was kept",
            "free some space there, then try again",
        )
    return Unavailable(f"the coordinator's database cannot be written: {error}", "see the disk of its state folder")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
