"""From a Python value to buffers."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import pathlib
import sys
import uuid
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from moregpu.encoding.collected import COLLECTED, taken_apart
from moregpu.encoding.layout import (
    ALIGNMENT,
    DTYPE,
    HEAD,
    INLINE_BYTES,
    LENGTH,
    MAX_BUFFERS,
    MAX_DEPTH,
    Code,
    Unencodable,
    aligned,
)
from moregpu.encoding.tables import moment_of, parts_of

Buffers = list[bytes | memoryview]

SWITCH = "`allow_pickle=True` sends arguments by pickle"
_dump = msgspec.msgpack.Encoder().encode
_PLAIN = frozenset({int, float, str, bool, type(None)})
_ZEROS = bytes(ALIGNMENT)


def encode(value: Any, *, name: str = "", types: dict[str, type] | None = None) -> Buffers:
    """Encode a value; joined, the buffers are what `decode` takes. Arrays and long byte strings are not copied.

    `types` collects the classes (dataclasses, enums, named tuples) that the reader will look for, by name. Raises
    `Unencodable` (a TypeError) that names the place inside the value, which is called `name`.
    """
    try:
        return _written(value, types, careful=False)
    except (OverflowError, UnicodeEncodeError):
        return _written(value, types, careful=True)  # an int beyond 64 bits, or half a surrogate, somewhere
    except Unencodable as error:
        raise error.within(name) if name else error from None


def joined(buffers: Buffers) -> bytes:
    """All of them in one."""
    return buffers[0] if len(buffers) == 1 and isinstance(buffers[0], bytes) else b"".join(buffers)


def _written(value: Any, types: dict[str, type] | None, *, careful: bool) -> Buffers:
    writer = _Writer({} if types is None else types, careful)
    body = _dump(writer.pack(value, 0))
    if not writer.buffers:
        return [HEAD.pack(len(body), 0) + body]
    if len(writer.buffers) > MAX_BUFFERS:
        raise Unencodable(f"it holds {len(writer.buffers)} arrays; {MAX_BUFFERS} may travel together")
    head = HEAD.pack(len(body), len(writer.buffers))
    head += b"".join(LENGTH.pack(buffer.nbytes) for buffer in writer.buffers) + body
    out: Buffers = [head + _padding(len(head))]
    for buffer in writer.buffers:
        out.append(buffer)
        if gap := _padding(buffer.nbytes):
            out.append(gap)
    return out


def _padding(length: int) -> bytes:
    return _ZEROS[: aligned(length) - length]


class _Writer:
    def __init__(self, types: dict[str, type], careful: bool):
        self.buffers: list[memoryview] = []
        self._types = types
        self._careful = careful

    def pack(self, value: Any, depth: int) -> Any:
        """The value as msgpack writes it, with extensions in it."""
        kind = type(value)
        if kind in _PLAIN:
            return self.exact(value) if self._careful else value
        if depth > MAX_DEPTH:
            raise Unencodable(f"more than {MAX_DEPTH} containers inside one another, or one that holds itself")
        pack = _PACKERS.get(kind)
        if pack is not None:
            return pack(self, value, depth + 1)
        return self._other(value, kind, depth + 1)

    def exact(self, value: Any) -> Any:
        """An int of any size, text of any kind."""
        if type(value) is int and not -(1 << 63) <= value < (1 << 64):
            return Ext(int(Code.BIG_INT), value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
        if type(value) is str and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return Ext(int(Code.TEXT), value.encode("utf-8", "surrogatepass"))
        return value

    def add(self, buffer: Any) -> int:
        """Send a buffer beside the body; its number."""
        self.buffers.append(memoryview(buffer).cast("B"))
        return len(self.buffers) - 1

    def items(self, values: Iterable[Any], depth: int, step: Callable[[int], str] = "[{}]".format) -> list[Any]:
        """Pack a sequence."""
        if isinstance(values, list | tuple) and not self._careful and _PLAIN.issuperset(map(type, values)):
            return list(values)
        packed: list[Any] = []
        try:
            for value in values:
                packed.append(self.pack(value, depth))
        except Unencodable as error:
            raise error.within(step(len(packed))) from None
        return packed

    def extension(self, code: Code, *parts: Any) -> Ext:
        """An extension whose data is a list of packed parts."""
        return Ext(int(code), _dump(parts))

    # -- containers of Python

    def mapping(self, value: dict[Any, Any], depth: int) -> Any:
        """A dict: a msgpack map where all keys are text or whole numbers."""
        keys = set(map(type, value))
        if not self._careful and keys <= {str, int}:
            if _PLAIN.issuperset(map(type, value.values())):
                return value
            return dict(zip(value, self._values(value, depth), strict=True))
        flat: list[Any] = []
        for key, item in zip(value, self._values(value, depth), strict=True):
            flat += [self._inside(key, depth, "a key of it"), item]
        return self.extension(Code.PAIRS, *flat)

    def collected(self, value: Any, depth: int) -> Any:
        """A container of `collections`."""
        name, inside, more = taken_apart(value)
        packed = self.items(inside, depth) if isinstance(inside, list) else self.mapping(inside, depth)
        return self.extension(Code.COLLECTED, name, packed, more)

    def _values(self, value: dict[Any, Any], depth: int) -> list[Any]:
        names = list(value)
        return self.items(value.values(), depth, lambda place: f"[{names[place]!r:.60}]")

    def _inside(self, value: Any, depth: int, step: str) -> Any:
        try:
            return self.pack(value, depth)
        except Unencodable as error:
            raise error.within(f" ({step})") from None

    def binary(self, code: Code, value: Any) -> Any:
        """A byte string: in the body when short."""
        if len(value) <= INLINE_BYTES:
            return value if code is Code.BYTES else self.extension(code, bytes(value))
        return self.extension(code, self.add(value))

    # -- classes

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        if isinstance(value, pathlib.PurePath):
            flavour = "windows" if isinstance(value, pathlib.PureWindowsPath) else "posix"
            return self.extension(Code.PATH, str(value), not isinstance(value, pathlib.Path), flavour)
        if isinstance(value, enum.Enum):
            # Flags that are set together are no member: they have a number alone.
            named = value.name in kind.__members__
            return self.extension(Code.ENUM, self._type(kind), value.name if named else self._number_of(value))
        if dataclasses.is_dataclass(kind):
            if not _is_plain_object(kind):
                raise Unencodable(
                    f"{kind.__qualname__} is a dataclass and more: what else it holds cannot travel", SWITCH
                )
            held = _held(value, kind)
            return self._record(Code.DATACLASS, kind, list(held), list(held.values()), depth)
        if isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
            if getattr(value, "__dict__", None):
                raise Unencodable(f"{kind.__qualname__} has attributes beside its fields, which cannot travel", SWITCH)
            return self._record(Code.NAMEDTUPLE, kind, list(kind._fields), list(value), depth)  # type: ignore[attr-defined]
        root = kind.__module__.partition(".")[0]
        if root == "numpy" and (packed := self._numpy(value)) is not None:
            return packed
        if root == "torch" and isinstance(value, sys.modules["torch"].Tensor):
            return self._tensor(value)
        if root == "pandas" and (packed := self._pandas(value, depth)) is not None:
            return packed
        raise Unencodable(f"{kind.__module__}.{kind.__qualname__} cannot travel", SWITCH)

    def _number_of(self, value: enum.Enum) -> Any:
        if not isinstance(value, enum.Flag):
            raise Unencodable(f"{value!r} is no member of its enum")
        return self.exact(value.value)

    def _type(self, kind: type) -> str:
        name = f"{kind.__module__}:{kind.__qualname__}"
        self._types[name] = kind
        return name

    def _record(self, code: Code, kind: type, names: list[str], values: list[Any], depth: int) -> Any:
        return self.extension(
            code, self._type(kind), names, self.items(values, depth, lambda place: f".{names[place]}")
        )

    # -- arrays

    def _numpy(self, value: Any) -> Any:
        import numpy as np

        if isinstance(value, np.generic):
            return self.extension(Code.SCALAR, _dtype(value.dtype), value.tobytes())
        # A file's memory is an array as any other; a matrix multiplies otherwise, and masked elements have no place.
        return self.array(value) if type(value) in (np.ndarray, np.memmap) else None

    def array(self, value: Any) -> Any:
        """A NumPy array, not copied unless its elements lie apart."""
        import numpy as np

        dtype = _dtype(value.dtype)
        by_columns = bool(value.flags.f_contiguous and not value.flags.c_contiguous)
        flat = np.ascontiguousarray(value.T if by_columns else value).reshape(-1)
        number = self.add(flat.view(np.uint8).data if flat.nbytes else b"")
        return self.extension(Code.ARRAY, dtype, list(value.shape), number, by_columns)

    def _tensor(self, value: Any) -> Any:
        torch = sys.modules["torch"]
        if value.layout is not torch.strided or value.is_quantized:
            raise Unencodable("a sparse or quantised tensor cannot travel: send its dense form")
        if value.is_meta:
            raise Unencodable("a tensor without data (of the device meta) cannot travel")
        # A view that conjugates or negates as it is read has other bytes than values.
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        raw = plain.view(torch.uint8).numpy().data if plain.numel() else b""
        dtype = str(value.dtype).partition(".")[2]
        return self.extension(Code.TENSOR, dtype, list(value.shape), self.add(raw), bool(value.requires_grad))

    def _pandas(self, value: Any, depth: int) -> Any:
        pandas = sys.modules["pandas"]
        match value:
            case pandas.DataFrame():
                return self._frame(value, depth) if type(value) is pandas.DataFrame else None
            case pandas.Series():
                if type(value) is not pandas.Series:
                    return None
                index = self._column(value.index, depth)
                return self.extension(
                    Code.SERIES,
                    self.pack(value.name, depth),
                    self._column(value, depth),
                    index,
                    self.pack(value.index.name, depth),
                )
            case pandas.Index():
                return self.extension(Code.INDEX, self._column(value, depth), self.pack(value.name, depth))
            case _:
                parts = moment_of(value)
                return None if parts is None else self.extension(Code.MOMENT, *self._moment(parts))

    def _frame(self, value: Any, depth: int) -> Any:
        if type(value.columns).__name__ == "MultiIndex":
            raise Unencodable("a frame with several levels of columns cannot travel: give each column one name first")
        return self.extension(
            Code.FRAME,
            self._column(value.columns, depth),
            [self._column(value.iloc[:, place], depth) for place in range(value.shape[1])],
            self._column(value.index, depth),
            self.pack(value.index.name, depth),
            self.pack(value.columns.name, depth),
        )

    def _moment(self, parts: tuple[str, Any, Any]) -> list[Any]:
        import numpy as np

        kind, value, more = parts
        return [kind, self.array(np.asarray(value)) if isinstance(value, np.generic) else value, more]

    def _column(self, column: Any, depth: int) -> Any:
        """A column's values: an array where NumPy holds them, else what its type is made of."""
        import numpy as np

        if type(column).__name__ == "MultiIndex":
            raise Unencodable("a frame with several levels of index cannot travel: `reset_index()` first")
        parts = parts_of(column)
        if parts is not None:
            indexes = sys.modules["pandas"].Index
            made = [
                self._column(part, depth) if isinstance(part, indexes) else self.pack(part, depth) for part in parts
            ]
            return self.extension(Code.COLUMN, *made)
        held = np.asarray(column)
        return self.array(held) if DTYPE.fullmatch(held.dtype.str) else self.items(column.tolist(), depth)


def _zone(value: datetime.datetime | datetime.time) -> list[str]:
    """The name of its zone: its offset alone would be another one after the next change of the clocks."""
    key = value.tzinfo.key if isinstance(value.tzinfo, zoneinfo.ZoneInfo) else None
    return [key] if key else []


_OF_PYTHON_CODE = 1 << 9
"""The flag of a class that was made while a program ran: by every `class` statement, and by some extensions."""


def _is_plain_object(kind: type) -> bool:
    """Whether all that its instances hold is attributes: one that is a dict or an exception as well holds more."""
    return all(base is object or base.__flags__ & _OF_PYTHON_CODE for base in kind.__mro__)


def _held(value: Any, kind: type) -> dict[str, Any]:
    """A dataclass's fields, and what else was set on it: `__post_init__` and methods may have set anything.

    What `cached_property` keeps is left out, since it is computed again where it is asked for.
    """
    names = [field.name for field in dataclasses.fields(kind)]
    held = {name: getattr(value, name) for name in names if hasattr(value, name)}
    for name, item in getattr(value, "__dict__", {}).items():
        if name in held or name.startswith("__"):
            continue
        if not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property):
            held[name] = item
    return held


def _dtype(dtype: Any) -> str:
    if DTYPE.fullmatch(dtype.str) is None:
        raise Unencodable(f"an array of {dtype} cannot travel: only numbers, times and text of fixed length do")
    return dtype.str


_PACKERS: dict[type, Callable[[_Writer, Any, int], Any]] = {
    list: lambda w, v, d: w.items(v, d),
    tuple: lambda w, v, d: w.extension(Code.TUPLE, *w.items(v, d)),
    dict: lambda w, v, d: w.mapping(v, d),
    set: lambda w, v, d: w.extension(Code.SET, *w.items(v, d, lambda _: "{…}")),
    frozenset: lambda w, v, d: w.extension(Code.FROZENSET, *w.items(v, d, lambda _: "{…}")),
    bytes: lambda w, v, _: w.binary(Code.BYTES, v),
    bytearray: lambda w, v, _: w.binary(Code.BYTEARRAY, v),
    complex: lambda w, v, _: w.extension(Code.COMPLEX, v.real, v.imag),
    datetime.datetime: lambda w, v, _: w.extension(Code.DATETIME, v.isoformat(), v.fold, *_zone(v)),
    datetime.date: lambda w, v, _: w.extension(Code.DATE, v.isoformat()),
    datetime.time: lambda w, v, _: w.extension(Code.TIME, v.isoformat(), v.fold, *_zone(v)),
    datetime.timedelta: lambda w, v, _: w.extension(Code.TIMEDELTA, v.days, v.seconds, v.microseconds),
    decimal.Decimal: lambda w, v, _: w.extension(Code.DECIMAL, str(v)),
    fractions.Fraction: lambda w, v, d: w.extension(
        Code.FRACTION, *(w.exact(part) for part in (v.numerator, v.denominator))
    ),
    uuid.UUID: lambda w, v, _: w.extension(Code.UUID, v.bytes),
    range: lambda w, v, _: w.extension(Code.RANGE, *(w.exact(part) for part in (v.start, v.stop, v.step))),
    slice: lambda w, v, d: w.extension(Code.SLICE, *w.items([v.start, v.stop, v.step], d)),
    type(...): lambda w, v, _: w.extension(Code.ELLIPSIS),
    **dict.fromkeys(COLLECTED, lambda w, v, d: w.collected(v, d)),
}
