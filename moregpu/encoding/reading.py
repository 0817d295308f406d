"""From bytes, perhaps a stranger's, to a Python value: data or `Malformed`, never anything that runs."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import importlib
import math
import pathlib
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from moregpu.encoding import tables
from moregpu.encoding.collected import put_together
from moregpu.encoding.layout import DTYPE, HEAD, LENGTH, MAX_BUFFERS, MAX_DEPTH, Code, Malformed, Unknown, aligned
from moregpu.encoding.zones import named_zone

MAX_TEXT_NUMBER = 10_000
"""Digits of a decimal."""


def decode(
    data: bytes | bytearray | memoryview,
    *,
    types: Mapping[str, type] | None = None,
    importing: bool = False,
    views: bool = False,
) -> Any:
    """Give an encoded value back. Raises `Malformed` for anything that `encode` did not write.

    Classes are looked for in `types`, then among modules that are loaded; with `importing` (only where whoever sent the
    bytes may run code anyway) their modules are imported. A class that is not found gives an `Unknown`. Its constructor
    is never called. Arrays lie in `data` where that can be written to; else they are copied, unless `views` (then they
    are read-only).
    """
    whole = memoryview(data).cast("B")
    body, buffers = _parts(whole)
    reader = _Reader(buffers, types or {}, importing, views)
    try:
        return reader.read(body)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("too many values inside one another") from None
    except Exception as error:  # a library's own error of what a stranger made up must not end whoever reads
        raise Malformed(f"not an encoded value: {error}") from error


def _parts(whole: memoryview) -> tuple[memoryview, list[memoryview]]:
    if len(whole) < HEAD.size:
        raise Malformed("shorter than any encoded value")
    length, count = HEAD.unpack_from(whole)
    start = HEAD.size + count * LENGTH.size
    if count > MAX_BUFFERS or start + length > len(whole):
        raise Malformed("shorter than it says")
    place, buffers = start + length, list[memoryview]()
    for number in range(count):
        (size,) = LENGTH.unpack_from(whole, HEAD.size + number * LENGTH.size)
        place = aligned(place)
        if place + size > len(whole):
            raise Malformed("a buffer is shorter than it says")
        buffers.append(whole[place : place + size])
        place += size
    return whole[start : start + length], buffers


class _Reader:
    def __init__(self, buffers: list[memoryview], types: Mapping[str, type], importing: bool, views: bool):
        self._buffers = buffers
        self._types = types
        self._importing = importing
        self._views = views
        self._depth = 0
        self._decode = msgspec.msgpack.Decoder(ext_hook=self._extension).decode

    def read(self, body: Any) -> Any:
        return self._decode(body)

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == Code.BIG_INT:
            return int.from_bytes(data, "little", signed=True)
        if code == Code.TEXT:
            return bytes(data).decode("utf-8", "surrogatepass")
        make = _MAKERS.get(code)
        if make is None:
            raise Malformed(f"no value has the number {code}")
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:
            raise Malformed("too many values inside one another")
        try:
            return make(self, self._decode(data))
        finally:
            self._depth -= 1

    def buffer(self, number: int) -> memoryview:
        if not isinstance(number, int) or not 0 <= number < len(self._buffers):
            raise Malformed("a buffer that is not there")
        return self._buffers[number]

    def binary(self, value: Any) -> bytes | memoryview:
        return value if isinstance(value, bytes) else self.buffer(value)

    # -- classes

    def find(self, name: str) -> type | None:
        """The class of that name, where it is; looked up, never called."""
        if self._importing and name not in self._types:
            try:
                importlib.import_module(str(name).partition(":")[0])
            except ImportError:
                return None
        return loaded_class(str(name), self._types)

    def dataclass(self, name: str, names: Sequence[str], values: Sequence[Any]) -> Any:
        fields = _fields(names, values)
        kind = self.find(name)
        if kind is None or not dataclasses.is_dataclass(kind):
            return Unknown(str(name), fields)
        declared = {field.name for field in dataclasses.fields(kind)}
        made = object.__new__(kind)
        # Others than the declared ones may only lie beside them: set as attributes, they could reach a property's code.
        beside = getattr(made, "__dict__", None)
        if any(name not in declared and (beside is None or name.startswith("__")) for name in fields):
            return Unknown(str(name), fields)
        for field, value in fields.items():
            if field in declared or beside is None:
                object.__setattr__(made, field, value)
            else:
                beside[field] = value
        return made

    def member(self, name: str, member: str | int) -> Any:
        kind = self.find(name)
        if kind is None or not issubclass(kind, enum.Enum):
            return Unknown(str(name), {"name": member})
        if type(member) is int and _takes_numbers(kind):
            return kind(member)
        if member not in kind.__members__:
            return Unknown(str(name), {"name": member})
        return kind.__members__[str(member)]

    def named_tuple(self, name: str, names: Sequence[str], values: Sequence[Any]) -> Any:
        fields = _fields(names, values)
        kind = self.find(name)
        if kind is None or not issubclass(kind, tuple) or getattr(kind, "_fields", None) != tuple(names):
            return Unknown(str(name), fields)
        return tuple.__new__(kind, list(values))

    # -- arrays

    def array(self, dtype: str, shape: Sequence[int], number: int, by_columns: bool) -> Any:
        flat = self._flat(self._dtype(dtype), shape, number)
        return flat.reshape(tuple(reversed(shape))).T if by_columns else flat.reshape(tuple(shape))

    def scalar(self, dtype: str, data: bytes) -> Any:
        import numpy as np

        kind = self._dtype(dtype)
        if len(data) != kind.itemsize:
            raise Malformed("a number of another length")
        return np.frombuffer(data, kind)[0] if kind.itemsize else kind.type()

    def _dtype(self, text: str) -> Any:
        if not isinstance(text, str) or DTYPE.fullmatch(text) is None:
            raise Malformed("an array of an unknown type")
        try:
            import numpy as np
        except ImportError:
            raise ValueError("an array came, and NumPy is not installed here") from None
        return np.dtype(text)

    def _flat(self, dtype: Any, shape: Sequence[int], number: int) -> Any:
        import numpy as np

        if not all(type(length) is int and 0 <= length <= 1 << 48 for length in shape) or len(shape) > 32:
            raise Malformed("an array of an impossible shape")
        buffer = self.buffer(number)
        size = math.prod(shape)
        if size * dtype.itemsize != buffer.nbytes:
            raise Malformed("an array of another length")
        if not size or not dtype.itemsize:
            if size > MAX_BUFFERS:
                raise Malformed("an array of an impossible shape")
            return np.zeros(size, dtype)
        flat = np.frombuffer(buffer, dtype)
        return flat.copy() if buffer.readonly and not self._views else flat

    def tensor(self, dtype: str, shape: Sequence[int], number: int, wants_gradient: bool) -> Any:
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            raise ValueError("a tensor came, and PyTorch is not installed here") from None
        kind = getattr(torch, str(dtype), None)
        if not isinstance(kind, torch.dtype):
            raise Malformed("a tensor of an unknown type")
        import numpy as np

        raw = self._flat(np.dtype("u1"), [self.buffer(number).nbytes], number)
        bytes_of_it = torch.from_numpy(raw if raw.flags.writeable else raw.copy())
        flat = bytes_of_it.view(kind) if len(raw) else torch.empty(0, dtype=kind)
        return flat.reshape(tuple(shape)).requires_grad_(bool(wants_gradient))

    def frame(self, names: Any, columns: Sequence[Any], index: Any, name: Any, names_name: Any = None) -> Any:
        pandas = tables.pandas_here()
        for column in columns:
            tables.checked(column, index)
        rows = tables.index_of(index, name)
        made = pandas.DataFrame(
            {place: tables.series_of(column, rows) for place, column in enumerate(columns)}, index=rows
        )
        made.columns = tables.index_of(names, names_name)
        return made

    def series(self, name: Any, values: Any, index: Any, index_name: Any) -> Any:
        tables.checked(values, index)
        return tables.series_of(values, tables.index_of(index, index_name), name)


def loaded_class(name: str, types: Mapping[str, type]) -> type | None:
    """The class `module:qualified.name`, if it is in `types` or its module is loaded."""
    if name in types:
        return types[name]
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for step in path.split("."):
        # Through `__dict__`: an attribute of a module or class may be computed, and nothing is to run here.
        found = getattr(found, "__dict__", {}).get(step)
    return found if isinstance(found, type) else None


def _takes_numbers(kind: type[enum.Enum]) -> bool:
    """Whether these are flags that Python itself sets together: a class may have code of its own for what it lacks."""
    if not issubclass(kind, enum.Flag) or type(kind).__call__ is not enum.EnumType.__call__:
        return False
    # Compared as functions: a class method is another object each time.
    missing: Any = (kind._missing_, enum.Flag._missing_)  # pyright: ignore[reportPrivateUsage]
    return missing[0].__func__ is missing[1].__func__


def _fields(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    if not all(isinstance(name, str) for name in names):
        raise Malformed("a field without a name")
    return dict(zip(names, values, strict=True))


def _datetime(text: str, fold: int, zone: str = "") -> datetime.datetime:
    read = datetime.datetime.fromisoformat(text)
    return read.replace(fold=fold, tzinfo=named_zone(zone) or read.tzinfo)


def _time(text: str, fold: int, zone: str = "") -> datetime.time:
    read = datetime.time.fromisoformat(text)
    return read.replace(fold=fold, tzinfo=named_zone(zone) or read.tzinfo)


def _uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)


def _decimal(text: str) -> decimal.Decimal:
    if len(text) > MAX_TEXT_NUMBER:
        raise Malformed("a decimal of too many digits")
    return decimal.Decimal(text)


def _path(text: str, is_pure: bool, flavour: str) -> pathlib.PurePath:
    pure = pathlib.PureWindowsPath if flavour == "windows" else pathlib.PurePosixPath
    return pure(text) if is_pure or isinstance(pathlib.Path(), pure) is False else pathlib.Path(text)


_Maker = Callable[[_Reader, list[Any]], Any]


def _of(make: Callable[..., Any], *kinds: type, more: int = 0) -> _Maker:
    """Make it of parts of exactly these types: an int of a decimal of a few letters may have a billion digits.

    The last `more` of them may be missing.
    """
    least = len(kinds) - more

    def checked(_: _Reader, parts: list[Any]) -> Any:
        if len(parts) < least or list(map(type, parts)) != list(kinds[: len(parts)]):
            raise Malformed("a value of parts that do not fit")
        return make(*parts)

    return checked


_MAKERS: dict[int, _Maker] = {
    Code.TUPLE: lambda _, items: tuple(items),
    Code.SET: lambda _, items: set(items),
    Code.FROZENSET: lambda _, items: frozenset(items),
    Code.COMPLEX: _of(complex, float, float),
    Code.BYTES: lambda reader, parts: bytes(reader.binary(*parts)),
    Code.BYTEARRAY: lambda reader, parts: bytearray(reader.binary(*parts)),
    Code.PAIRS: lambda _, flat: dict(zip(flat[::2], flat[1::2], strict=True)),
    Code.DATETIME: _of(_datetime, str, int, str, more=1),
    Code.DATE: _of(datetime.date.fromisoformat, str),
    Code.TIME: _of(_time, str, int, str, more=1),
    Code.TIMEDELTA: _of(datetime.timedelta, int, int, int),
    Code.DECIMAL: _of(_decimal, str),
    Code.FRACTION: _of(fractions.Fraction, int, int),
    Code.UUID: _of(_uuid, bytes),
    Code.PATH: _of(_path, str, bool, str),
    Code.RANGE: _of(range, int, int, int),
    Code.SLICE: lambda _, parts: slice(*parts),
    Code.ARRAY: lambda reader, parts: reader.array(*parts),
    Code.SCALAR: lambda reader, parts: reader.scalar(*parts),
    Code.DATACLASS: lambda reader, parts: reader.dataclass(*parts),
    Code.ENUM: lambda reader, parts: reader.member(*parts),
    Code.NAMEDTUPLE: lambda reader, parts: reader.named_tuple(*parts),
    Code.TENSOR: lambda reader, parts: reader.tensor(*parts),
    Code.FRAME: lambda reader, parts: reader.frame(*parts),
    Code.SERIES: lambda reader, parts: reader.series(*parts),
    Code.ELLIPSIS: lambda _, __: ...,
    Code.COLLECTED: lambda _, parts: put_together(*parts),
    Code.COLUMN: lambda _, parts: tables.column_of(*parts),
    Code.MOMENT: lambda _, parts: tables.moment_from(*parts),
    Code.INDEX: lambda _, parts: tables.index_of(*parts),
}
