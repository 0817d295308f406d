"""From a Struct to the fields of a form, and from what was typed back to the Struct. Pure.

Titles, help, limits and choices are those that the API itself validates with, so a new kind of job, or a new field of
one, is in the form without a line here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec import inspect

from moregpu_tui.present.units import size as shown_size

T = TypeVar("T", bound=msgspec.Struct)

Kind = Literal["text", "whole", "number", "choice", "flag", "words", "pairs", "files", "program", "payloads", "bytes"]
"""`files`, `program`, `payloads`: read from this machine when the job is sent. `bytes`: what nobody can type."""

READ_LATER = frozenset({"files", "program", "payloads"})

_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0,
            "w": 604800.0}  # fmt: skip
_BYTES = {"b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "mb": 1 << 20,
          "g": 1 << 30, "gib": 1 << 30, "gb": 1 << 30, "t": 1 << 40, "tib": 1 << 40, "tb": 1 << 40}  # fmt: skip
_QUANTITY = re.compile(r"\s*(-?[0-9][0-9_,.]*(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)

PROGRAM_HELP = "train.py, or train.py:function for one function of it"
PAYLOADS_HELP = "JSON or a .json file: each item of a list is one call"
FILES_HELP = "a.npy b.npy, or x=a.npy y=2.5 for a formula; instead of a size"
UNNAMED = ("a", "b")
"""What files without a name are called."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a form."""

    name: str
    title: str
    help: str
    kind: Kind
    choices: tuple[str, ...] = ()
    default: str = ""  # as it would be typed
    required: bool = False
    optional: bool = False  # empty means None
    secret: bool = False
    common: bool = False  # of every kind of job: shown after its own
    blank: str = ""  # what leaving it empty means
    when: dict[str, tuple[str, ...]] = {}  # another field → its values with which this one means something

    def applies(self, typed: Mapping[str, str]) -> bool:
        """Whether it means anything beside what stands in the other fields."""
        return all(typed.get(name, "") in values for name, values in self.when.items())


class Unread(ValueError):
    """A field that cannot be read: its name, and what is wrong."""

    def __init__(self, field: str, wrong: str) -> None:
        super().__init__(f"{field}: {wrong}")
        self.field = field
        self.wrong = wrong


def kinds_of(spec: Any) -> dict[str, type[msgspec.Struct]]:
    """The kinds of a tagged union (or of one Struct) whose form a person can fill in, by their tags."""
    structs: tuple[type[msgspec.Struct], ...] = get_args(spec) or (spec,)
    return {
        str(struct.__struct_config__.tag): struct
        for struct in structs
        if not any(field.required and field.kind == "bytes" for field in fields_of(struct))
    }


def fields_of(
    struct: type[msgspec.Struct],
    common: type[msgspec.Struct] | None = None,
    without: frozenset[str] = frozenset(),
) -> list[Field]:
    """The fields of a form: the Struct's own first, then those of `common`, in the order they are written."""
    shared = set(common.__struct_fields__) if common is not None else set[str]()
    found: list[Field] = []
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)  # noqa: S101 — narrows for the type checker
    for field in info.fields:
        if field.name in without:
            continue
        found += _fields(field, field.name in shared)
    own = ["program", "payloads"]  # what it is about comes first
    return sorted(found, key=lambda field: (field.common, not field.required, field.kind not in own))


def read(struct: type[T], fields: list[Field], typed: Mapping[str, str]) -> T:
    """What was typed, as the Struct. Raises `Unread` for the first field that is not understood."""
    values: dict[str, Any] = {}
    for field in fields:
        text = typed.get(field.name, field.default).strip()
        if field.kind == "program":
            if not text:
                raise Unread(field.name, PROGRAM_HELP)
            values |= {"calls": (), "inputs": {}}  # what it and its arguments become
        if field.kind in READ_LATER or field.kind == "bytes" or not field.applies(typed):
            continue
        if text == field.default.strip() and not field.required:
            continue  # the Struct's own default
        if not text and field.optional:
            continue
        values[field.name] = _value(field, text)
    try:
        return msgspec.convert(values, struct, strict=False)  # numbers inside pairs are text here
    except msgspec.ValidationError as error:
        message = str(error)
        match = re.search(r"at `\$\.([a-z_]+)|missing required field `([a-z_]+)`", message)
        name = (match.group(1) or match.group(2)) if match else ""
        raise Unread(name or "", _plainly(message)) from error


def files_of(fields: list[Field], typed: Mapping[str, str]) -> dict[str, str]:
    """Inputs that were named: name → path of a file, or a number. Raises `Unread`."""
    found: dict[str, str] = {}
    for field in fields:
        if field.kind != "files":
            continue
        for place, word in enumerate(re.split(r"[\s,]+", typed.get(field.name, "").strip())):
            if not word:
                continue
            name, equals, path = word.partition("=")
            if not equals:
                if place >= len(UNNAMED):
                    raise Unread(field.name, "more than two files need names: x=a.npy")
                name, path = UNNAMED[place], word
            if not (name.isidentifier() and path):
                raise Unread(field.name, "file.npy, or name=file.npy")
            found[name] = path
    return found


def given_in(fields: list[Field], typed: Mapping[str, str]) -> frozenset[str]:
    """Names of the fields in which something stands that is not their default."""
    return frozenset(
        field.name for field in fields if typed.get(field.name, field.default).strip() != field.default.strip()
    )


# ---- one field -------------------------------------------------------------------------------------------------------


def _fields(field: inspect.Field, common: bool) -> list[Field]:
    type_, extra, optional = _unwrapped(field.type)
    title = str(extra.get("title") or field.name.replace("_", " ").removesuffix(" s").capitalize())
    help_ = str(extra.get("description") or "")
    match extra.get("widget"):
        case "none":
            return []
        case "tensors":
            return [Field(name=field.name, title="Files", help=FILES_HELP, kind="files")]
        case "program":
            return [
                Field(name="program", title="Program", help=PROGRAM_HELP, kind="program", required=True),
                Field(name="payloads", title="Arguments", help=PAYLOADS_HELP, kind="payloads", blank="empty: one call"),
            ]
        case _:
            pass
    kind, choices = _kind(type_)
    blank = str(extra.get("blank", ""))
    default = "" if blank else _default(field, kind, field.name)
    limits = _limits(type_)
    return [
        Field(
            name=field.name,
            title=title,
            help=" · ".join(part for part in (help_, limits) if part),
            kind=kind,
            choices=choices,
            default=default,
            required=field.required,
            optional=optional or bool(blank),
            common=common,
            blank=blank,
            when={name: tuple(values) for name, values in extra.get("when", {}).items()},
        )
    ]


def _unwrapped(type_: inspect.Type) -> tuple[inspect.Type, dict[str, Any], bool]:
    """The type itself, what Meta says, whether None is allowed."""
    extra: dict[str, Any] = {}
    optional = False
    while True:
        if isinstance(type_, inspect.Metadata):
            extra = {**(type_.extra_json_schema or {}), **extra}
            type_ = type_.type
        elif isinstance(type_, inspect.UnionType):
            inner = [one for one in type_.types if not isinstance(one, inspect.NoneType)]
            optional = len(inner) < len(type_.types)
            if len(inner) != 1:
                return type_, extra, optional
            type_ = inner[0]
        else:
            return type_, extra, optional


def _kind(type_: inspect.Type) -> tuple[Kind, tuple[str, ...]]:
    match type_:
        case inspect.LiteralType():
            return "choice", tuple(str(value) for value in type_.values)
        case inspect.BoolType():
            return "flag", ("no", "yes")
        case inspect.IntType():
            return "whole", ()
        case inspect.FloatType():
            return "number", ()
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            return "words", ()
        case inspect.DictType(value_type=inspect.CustomType() | inspect.StructType()) | inspect.BytesType():
            return "bytes", ()
        case inspect.DictType():
            return "pairs", ()
        case _:
            return "text", ()


def _default(field: inspect.Field, kind: Kind, name: str) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return ""
    value = field.default
    if value is msgspec.NODEFAULT:
        return ""
    return as_typed(value, kind, name)


def as_typed(value: Any, kind: Kind, name: str) -> str:
    """A value as a person would type it."""
    if value is None:
        return ""
    if kind == "flag":
        return "yes" if value else "no"
    if kind == "words":
        return " ".join(str(one) for one in value)
    if kind == "pairs":
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if name.endswith("_s") and isinstance(value, float):
        for unit, seconds in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
            if value and value % seconds == 0:
                return f"{value / seconds:.0f} {unit}"
        return f"{value:g} s"
    if name.endswith("_bytes") and isinstance(value, int):
        return shown_size(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _limits(type_: inspect.Type) -> str:
    if isinstance(type_, inspect.IntType | inspect.FloatType):
        low = type_.ge if type_.ge is not None else type_.gt
        high = type_.le if type_.le is not None else type_.lt
        if low is not None and high is not None and abs(high) < 1e12:
            return f"{low:g} to {high:g}"
    return ""


def _value(field: Field, text: str) -> Any:
    match field.kind:
        case "whole" | "number":
            number = _quantity(field, text)
            if field.kind == "whole":
                if number != int(number):
                    raise Unread(field.name, "a whole number is expected")
                return int(number)
            return float(number)
        case "flag":
            return text == "yes"
        case "choice":
            if text not in field.choices:
                raise Unread(field.name, f"one of: {', '.join(field.choices)}")
            return text
        case "words":
            return [word for word in re.split(r"[\s,]+", text) if word]
        case "pairs":
            return _pairs(field, text)
        case _:
            return text


def _pairs(field: Field, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(", "):
        name, equals, value = part.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise Unread(field.name, "name=value, separated by commas")
        found[name.strip()] = value.strip()
    return found


def _quantity(field: Field, text: str) -> float:
    """A number, with a unit where the field has one: 90 min, 2 GiB, 1e6, 10,000."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise Unread(field.name, "a number is expected" if text else "something is missing here")
    try:
        number = float(match.group(1).replace(",", "").replace("_", ""))
    except ValueError:
        raise Unread(field.name, "a number is expected") from None
    unit = match.group(2).lower()
    if not unit:
        return number
    units: Mapping[str, float] = (
        _SECONDS if field.name.endswith("_s") else _BYTES if field.name.endswith("_bytes") else {}
    )
    if unit not in units:
        known = ", ".join(units) if units else "none here"
        raise Unread(field.name, f"{match.group(2)!r} is no unit (units: {known})")
    return number * units[unit]


def _plainly(message: str) -> str:
    message = re.sub(r" - at `[^`]*`", "", message)
    message = message.replace("Expected `int` ", "a whole number ").replace("Expected `float` ", "a number ")
    message = message.replace("Expected `str` ", "text ").replace("Object missing required field", "missing")
    return message.replace("`", "")
