"""What encoded bytes look like, for writer and reader alike.

    u32 length of the body · u32 number of buffers · u64 length of each · body (msgpack) · zeros · buffer · zeros · …

All little-endian; each buffer starts at a multiple of `ALIGNMENT` from the first byte. In the body, what msgpack has no
type for is an extension: `Code` numbers them. An extension's data is msgpack again, of the list that its comment gives.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import Any

HEAD = struct.Struct("<II")
LENGTH = struct.Struct("<Q")
ALIGNMENT = 64
MAX_DEPTH = 100
"""Containers inside one another; what refers to itself has no end."""

MAX_BUFFERS = 1 << 20

INLINE_BYTES = 1024
"""Byte strings up to this size stay in the body."""

DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[mM]8(\[\d*[a-zA-Z]+\])?|[SU]\d{1,9})")
"""Dtypes that are sent, as NumPy spells them. A stranger's text is matched before NumPy sees it."""


class Code(IntEnum):
    """Extensions of the body."""

    TUPLE = 1  # items
    SET = 2  # items
    FROZENSET = 3  # items
    COMPLEX = 4  # real, imaginary
    BIG_INT = 5  # little-endian, signed
    TEXT = 6  # UTF-8 with surrogates passed
    BYTES = 7  # number of the buffer
    BYTEARRAY = 8  # number of the buffer
    PAIRS = 9  # key, value, key, value, …: a dict whose keys are not all text or ints
    DATETIME = 10  # ISO text, fold; and the zone's name, where it has one ("Europe/Berlin")
    DATE = 11  # ISO text
    TIME = 12  # ISO text, fold; and the zone's name, where it has one
    TIMEDELTA = 13  # days, seconds, microseconds
    DECIMAL = 14  # text
    FRACTION = 15  # numerator, denominator
    UUID = 16  # 16 bytes
    PATH = 17  # text, whether it is pure, its flavour ("posix", "windows")
    RANGE = 18  # start, stop, step
    SLICE = 19  # start, stop, step
    ARRAY = 20  # dtype, shape, number of the buffer, whether columns come first
    SCALAR = 21  # dtype, bytes
    DATACLASS = 22  # type, names, values
    ENUM = 23  # type, member's name; of flags that are set together, their number
    NAMEDTUPLE = 24  # type, names, values
    TENSOR = 25  # torch dtype, shape, number of the buffer, whether it wants a gradient
    FRAME = 26  # column names, columns, index, name of the index, name of the columns
    SERIES = 27  # name, values, index, name of the index
    ELLIPSIS = 28  # nothing
    COLLECTED = 29  # class ("deque", "OrderedDict", …), list or dict, length or name of the factory
    COLUMN = 30  # of a frame, where it is no array: kind, and what it is made of (`tables`)
    MOMENT = 31  # of pandas: kind, value, zone or frequency
    INDEX = 32  # column, name


class Unencodable(TypeError):
    """A value that cannot travel; the text says where inside it is and what to do."""

    def __init__(self, why: str, hint: str = ""):
        super().__init__(why)
        self.why = why
        self.hint = hint
        """What helps where it is an argument."""
        self.path = ""

    def within(self, step: str) -> Unencodable:
        """The same, seen from one level further out."""
        self.path = step + self.path
        return self

    def __str__(self) -> str:
        path = self.path if len(self.path) <= 200 else f"{self.path[:100]}…{self.path[-60:]}"
        return f"{path or 'the value'}: {self.why}" + (f"; {self.hint}" if self.hint else "")


class Malformed(ValueError):
    """Bytes that no `encode` wrote."""


class Unknown:
    """A value of a class that is not here: its type's name, and its fields by name."""

    def __init__(self, type: str, fields: dict[str, Any]):
        self.type = type
        self.fields = fields

    def __repr__(self) -> str:
        return f"Unknown({self.type}, {self.fields})"

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(f"{self.__dict__.get('type', 'this')} has no field {name!r}") from None


def aligned(length: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-length // ALIGNMENT) * ALIGNMENT
