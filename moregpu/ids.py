"""Names of things: 128 bits in Crockford base32, prefixed by what they name.

`j-` job, `t-` task, `w-` worker, `i-` invite. The bits of jobs and tasks are a UUIDv7, so that names sort by time of
birth, and new rows stand side by side in a database; the others are random or derived from a key. A human may type any
unique prefix, in either case, with I, L and O for 1, 1 and 0 (Crockford's rule).
"""

from __future__ import annotations

import re
from functools import lru_cache

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 26  # characters that 128 bits need
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
"""Two characters at a time: an id is made for every job and every task."""
_VALUE = {character: value for value, character in enumerate(ALPHABET)} | {"I": 1, "L": 1, "O": 0}


def job_id(wall_s: float, entropy: bytes) -> str:
    """Name a job born at `wall_s` (UTC epoch seconds), from at least 10 random bytes."""
    return _dated("j-", wall_s, entropy)


def task_id(wall_s: float, entropy: bytes) -> str:
    """Name a task that is cut at `wall_s`, from at least 10 random bytes."""
    return _dated("t-", wall_s, entropy)


def _dated(prefix: str, wall_s: float, entropy: bytes) -> str:
    """A UUIDv7 (RFC 9562, 5.7)."""
    milliseconds = int(wall_s * 1000) & (1 << 48) - 1
    random = int.from_bytes(entropy[:10], "big")
    high, low = random >> 62 & 0xFFF, random & (1 << 62) - 1
    return prefix + _moment(milliseconds) + encode(0x7 << 76 | high << 64 | 0b10 << 62 | low, 16)


@lru_cache(4)
def _moment(milliseconds: int) -> str:
    """How all ids of one moment begin: 48 bits in ten characters."""
    return encode(milliseconds, 10)


def named(prefix: str, bits: bytes) -> str:
    """Name something by 16 bytes, for example `named("w", blake3(key)[:16])`."""
    if len(bits) != 16:
        raise ValueError(f"an id holds 16 bytes, not {len(bits)}")
    return f"{prefix}-" + encode(int.from_bytes(bits, "big"))


def encode(number: int, length: int = LENGTH) -> str:
    """Write a number in `length` Crockford characters, most significant first."""
    pairs = [_PAIRS[number >> shift & 1023] for shift in range(10 * (length // 2) - 10, -10, -10)]
    return "".join(pairs) if length % 2 == 0 else ALPHABET[number >> 5 * (length - 1) & 31] + "".join(pairs)


def decode(text: str) -> int:
    """Read Crockford base32; raises `ValueError` for a character outside the alphabet."""
    number = 0
    for character in text.upper():
        if character not in _VALUE:
            raise ValueError(f"{character!r} is not a Crockford base32 character")
        number = number << 5 | _VALUE[character]
    return number


_NUMBER = re.compile("([0-9]+)")


@lru_cache(4096)
def name_order(name: str) -> tuple[object, ...]:
    """What lists of names are sorted by: numbers in them count as numbers, `box-2` before `box-10`, case last."""
    parts = _NUMBER.split(name.lower())  # text, number, text, …: alike places hold alike things
    numbers = [part.lstrip("0") for part in parts[1::2]]
    parts[1::2] = [f"{len(number):05}{number}" for number in numbers]  # by length, then by digits: however long
    return tuple(parts), name


def beginning_of(typed: str, prefix: str) -> str:
    """The beginning of an id that somebody typed, with its prefix (`w-`) or without; empty where they typed nothing.

    Every id begins with nothing, so nobody is meant by it: a variable that was never set must name no worker.
    """
    rest = typed.removeprefix(prefix)
    return prefix + rest if rest else ""


def normalise(text: str) -> str:
    """Bring what a human typed (`J-01h…`, `01h…`) to the spelling that names are stored in."""
    head, dash, tail = text.strip().partition("-")
    if not dash:
        return text.strip().upper()
    return f"{head.lower()}-" + "".join(ALPHABET[_VALUE[c]] if c in _VALUE else c for c in tail.upper())
