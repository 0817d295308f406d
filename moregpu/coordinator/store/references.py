"""Which blobs a value names, and the same value without keys and inline bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from moregpu.jobs import Blob, Tensor

Value = TypeVar("Value")

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""What names nothing: most of what a job holds, and every ending job is searched."""

_PLAIN_TYPES = (
    inspect.StrType,
    inspect.IntType,
    inspect.FloatType,
    inspect.BoolType,
    inspect.BytesType,
    inspect.NoneType,
    inspect.LiteralType,
    inspect.EnumType,
)

NO_KEY = bytes(32)
"""What stands where a key was, once it is forgotten."""


def blobs_in(value: Any) -> Iterator[Blob]:
    """Every blob named anywhere inside a Struct, dict, list or tuple."""
    kind = cast("type[Any]", type(value))
    if kind in _PLAIN:
        return
    if kind is Blob:
        yield value
    elif kind is Tensor:  # by far the most frequent
        if type(value.data) is Blob:
            yield value.data
    elif issubclass(kind, msgspec.Struct):
        for field in _fields(kind):
            item = getattr(value, field)
            if type(item) not in _PLAIN:
                yield from blobs_in(item)
    elif issubclass(kind, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from blobs_in(item)
    elif issubclass(kind, (list, tuple)):
        for item in cast("list[Any]", value):
            if type(item) not in _PLAIN:
                yield from blobs_in(item)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Fields of a Struct that could name a blob by their type: of a job's twenty-odd, its inputs."""
    told = cast("inspect.StructType", inspect.type_info(kind))
    return tuple(field.name for field in told.fields if not _names_nothing(field.type))


def _names_nothing(told: inspect.Type) -> bool:
    match told:
        case inspect.UnionType():
            return all(_names_nothing(each) for each in told.types)
        case inspect.CollectionType():
            return _names_nothing(told.item_type)
        case inspect.VarTupleType():
            return _names_nothing(told.item_type)
        case inspect.TupleType():
            return all(_names_nothing(each) for each in told.item_types)
        case inspect.DictType():
            return _names_nothing(told.value_type)
        case _:
            return isinstance(told, _PLAIN_TYPES)


def without_data(value: Value) -> Value:
    """The same value with every blob's key blanked and every inline tensor emptied: names, dtypes, shapes stay."""
    return cast("Value", _without_data(value))


def _without_data(value: Any) -> Any:
    if isinstance(value, Blob):
        return msgspec.structs.replace(value, key=NO_KEY)
    if isinstance(value, Tensor):
        return msgspec.structs.replace(value, data=b"" if isinstance(value.data, bytes) else _without_data(value.data))
    if isinstance(value, msgspec.Struct):
        fields = {field: getattr(value, field) for field in value.__struct_fields__}
        changed = {name: new for name, old in fields.items() if (new := _without_data(old)) is not old}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, dict):
        return {key: _without_data(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        return type(items)(_without_data(item) for item in items)
    return value
