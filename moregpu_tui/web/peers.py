"""Whose a connection over loopback is: Linux keeps the owner of both of its ends in `/proc/net/tcp`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
_MAPPED = "0" * 16 + ("FFFF0000" if sys.byteorder == "little" else "0000FFFF")
ROOT = 0
"""May read everything anyway, and forwards ports: containers, WSL."""


def is_ours(peer: tuple[str, int], own: tuple[str, int], tables: tuple[Path, ...] = TABLES) -> bool:
    """Whether the other end of a connection belongs to this user, or to root.

    True where this system does not tell. Where it does, an end that is not there, since it was closed, is nobody's.
    """
    known = False
    for local, remote, state, owner in _rows(tables):
        if (local, remote) == (peer, own):
            return state == _ESTABLISHED and owner in (os.getuid(), ROOT)
        known = known or (local, remote) == (own, peer)
    return not known


def _rows(tables: tuple[Path, ...]) -> Iterator[tuple[tuple[str, int], tuple[str, int], str, int]]:
    for table in tables:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            yield _end(fields[1]), _end(fields[2]), fields[3], int(fields[7])


def _end(text: str) -> tuple[str, int]:
    """`0100007F:1F90` is port 8080 of 127.0.0.1: its address as a word of this machine, here also of IPv4 in IPv6."""
    address, _, port = text.partition(":")
    if len(address) > 8 and not address.startswith(_MAPPED):
        return "", 0
    word = bytes.fromhex(address[-8:])
    return ".".join(str(part) for part in (word[::-1] if sys.byteorder == "little" else word)), int(port, 16)
