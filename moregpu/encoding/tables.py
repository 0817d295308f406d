"""Columns of pandas, of every type that a table of numbers, text and times has: their parts, and columns of parts.

What NumPy holds (numbers, truths, times without a zone) is an array as anywhere. Of all else the type travels, too: a
list of the values would be taken for whatever pandas makes of such a list, which is another type where they are few or
none, and text where there were categories.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import re
import sys
from typing import Any

from moregpu.encoding.layout import Malformed, Unencodable
from moregpu.encoding.zones import named_zone

_FREQUENCY = re.compile(r"-?\d{0,6}[A-Za-z]{1,6}(-[A-Za-z]{1,3}){0,2}")
"""How a stranger may say how far the moments of an index lie apart: matched before pandas sees it."""

_UNIT = re.compile(r"[mM]8\[(s|ms|us|ns)\]")


class Column:
    """Values whose type is known: pandas is not asked to guess it."""

    def __init__(self, values: Any, dtype: Any = None):
        self.values = values
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.values)


def pandas_here() -> Any:
    """The library. Raises `ValueError` where it is not installed."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise ValueError("a frame came, and pandas is not installed here") from None


# -- from columns to parts


def parts_of(column: Any) -> tuple[Any, ...] | None:
    """The kind of a Series or Index whose values NumPy does not hold, and what it is made of; None for an array.

    An Index among the parts is a column itself.
    """
    pandas = sys.modules["pandas"]
    dtype, array = column.dtype, column.array
    frequency = getattr(column, "freqstr", None) if isinstance(column, pandas.DatetimeIndex) else None
    if frequency is not None and _FREQUENCY.fullmatch(frequency) is None:
        frequency = None  # of somebody's own calendar; the moments are the same
    if isinstance(dtype, pandas.DatetimeTZDtype) or frequency:
        moments = pandas.DatetimeIndex(column)
        zone = None if moments.tz is None else _zone_of(moments.tz)
        return (
            "moments",
            moments.tz_convert(None).to_numpy() if zone is not None else moments.to_numpy(),
            zone,
            frequency,
        )
    match dtype:
        case pandas.CategoricalDtype():
            return "categories", pandas.Index(array.codes), array.categories, bool(array.ordered)
        case pandas.PeriodDtype():
            return "periods", array.asi8, dtype.name.removeprefix("period[").removesuffix("]")
        case pandas.IntervalDtype():
            return "intervals", array.left, array.right, str(array.closed)
        case pandas.StringDtype():
            gaps = column.isna()
            text = [None if gap else str(value) for value, gap in zip(column.tolist(), gaps.tolist(), strict=True)]
            return "text", text, getattr(dtype, "na_value", pandas.NA) is pandas.NA
        case _ if isinstance(array, _masked(pandas)):
            return "gaps", array.to_numpy(dtype=dtype.numpy_dtype, na_value=0), column.isna().to_numpy()
        case _ if str(dtype) == "object":
            return "objects", column.tolist()
        case _:
            return None


def moment_of(value: Any) -> tuple[str, Any, Any] | None:
    """A single value of pandas's own: its kind, and what it is made of; None where there is no way."""
    pandas = sys.modules["pandas"]
    if value is pandas.NaT or value is pandas.NA:
        return str(value), None, None
    if isinstance(value, pandas.Timestamp):
        zone = None if value.tz is None else _zone_of(value.tz)
        return "moment", (value if zone is None else value.tz_convert(None)).to_datetime64(), zone
    if isinstance(value, pandas.Timedelta):
        return "span", value.to_timedelta64(), None
    if isinstance(value, pandas.Period):
        return "period", value.ordinal, value.freqstr
    return None


def _masked(pandas: Any) -> tuple[type, ...]:
    return pandas.arrays.IntegerArray, pandas.arrays.FloatingArray, pandas.arrays.BooleanArray


def _zone_of(zone: datetime.tzinfo) -> str | int:
    """Its name, or its seconds from UTC where those never change."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # of zoneinfo; of pytz
    if name:
        return str(name)
    offset = zone.utcoffset(None)
    if offset is None:
        raise Unencodable(f"times of the zone {zone!r:.60} cannot travel: tz_convert them to one that has a name")
    return round(offset.total_seconds())


# -- from parts to columns


def column_of(kind: str, *parts: Any) -> Column:
    """The column of these parts. Raises `Malformed`, and whatever pandas raises of parts that do not fit."""
    pandas = pandas_here()
    match kind, parts:
        case "objects", (list() as values,):
            return Column(values, object)
        case "moments", (values, zone, frequency) if _is_array(values, _UNIT):
            moments = pandas.DatetimeIndex(values)
            if zone is not None:
                moments = moments.tz_localize("UTC").tz_convert(_zone(zone))
            if frequency is not None:
                with contextlib.suppress(ValueError):  # of a calendar of the sender's, which says less than it knows
                    moments.freq = _frequency(frequency)
            return Column(moments)
        case "categories", (codes, categories, bool() as ordered) if _is_array(codes, _INTEGERS):
            made = pandas.Categorical.from_codes(codes, index_of(categories), ordered=ordered)
            return Column(made)
        case "periods", (values, str() as frequency) if _is_array(values, _INTEGERS):
            kind_of = pandas.PeriodDtype(_frequency(frequency))
            return Column(pandas.arrays.PeriodArray(values.astype("i8"), dtype=kind_of))
        case "intervals", (left, right, str() as closed):
            return Column(pandas.arrays.IntervalArray.from_arrays(index_of(left), index_of(right), closed))
        case "text", (list() as values, bool() as is_na):
            if not all(value is None or isinstance(value, str) for value in values):
                raise Malformed("a column of text of something else")
            return Column(values, _text_type(pandas, is_na))
        case "gaps", (values, gaps) if _is_array(values, _NUMBERS) and _is_array(gaps, _TRUTHS):
            which = _masked(pandas)["iufb".index(values.dtype.kind) // 2 + (values.dtype.kind == "b")]
            return Column(which(values, gaps))
        case _:
            raise Malformed("a column that is none")


def moment_from(kind: str, value: Any, more: Any) -> Any:
    """A single value of pandas's own. Raises `Malformed`."""
    is_time = _is_array(value, _UNIT) and value.ndim == 0
    try:
        pandas = pandas_here()
    except ValueError:
        if kind not in ("moment", "span") or not is_time:
            raise
        plain = value.astype(f"{value.dtype.kind}8[us]").item()  # Python's own, where there is no other
        return plain if more is None else plain.replace(tzinfo=datetime.UTC).astimezone(_zone(more))
    match kind:
        case "NaT":
            return pandas.NaT
        case "<NA>":
            return pandas.NA
        case "moment" if is_time:
            made = pandas.Timestamp(value[()])
            return made if more is None else made.tz_localize("UTC").tz_convert(_zone(more))
        case "span" if is_time:
            return pandas.Timedelta(value[()])
        case "period" if type(value) is int and isinstance(more, str):
            return pandas.Period(ordinal=value, freq=_frequency(more))
        case _:
            raise Malformed("a moment that is none")


def series_of(values: Any, index: Any, name: Any = None) -> Any:
    """A Series of a column."""
    dtype = values.dtype if isinstance(values, Column) else None
    inside = values.values if isinstance(values, Column) else values
    return pandas_here().Series(inside, index=index, name=name, dtype=dtype, copy=False)


def index_of(values: Any, name: Any = None) -> Any:
    """An Index of a column."""
    checked(values, values)
    if isinstance(values, Column):
        return pandas_here().Index(values.values, name=name, dtype=values.dtype, tupleize_cols=False)
    return pandas_here().Index(values, name=name)


def checked(values: Any, index: Any) -> None:
    """Values one by one on both sides: what stands for many (a number, a range) would be spread over any length."""
    kinds = {type(each).__name__ for each in (values, index)}
    if not kinds <= {"list", "ndarray", "Column"} or len(values) != len(index):
        raise Malformed("a column that is none")


def _is_array(value: Any, dtype: re.Pattern[str]) -> bool:
    found = getattr(getattr(value, "dtype", None), "str", "")
    return type(value).__name__ == "ndarray" and dtype.fullmatch(found[1:]) is not None


_INTEGERS = re.compile(r"[iu][1248]")
_NUMBERS = re.compile(r"[iu][1248]|f[48]|b1")
_TRUTHS = re.compile(r"b1")


def _frequency(text: Any) -> str:
    if not isinstance(text, str) or _FREQUENCY.fullmatch(text) is None:
        raise Malformed("a frequency that is none")
    return text


def _zone(named: Any) -> datetime.tzinfo:
    if type(named) is int:
        return datetime.timezone(datetime.timedelta(seconds=named)) if named else datetime.UTC
    # Where this machine has no such zone, in UTC it is the same moment.
    return named_zone(str(named)) or datetime.UTC


def _text_type(pandas: Any, is_na: bool) -> Any:
    if is_na:
        return pandas.StringDtype()
    try:
        return pandas.StringDtype(na_value=float("nan"))
    except TypeError:  # an older pandas, whose text lies in columns of objects
        return object
