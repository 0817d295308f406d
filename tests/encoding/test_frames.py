"""Tables of pandas travel: values, names, index and types, and what cannot travel says so."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import numpy as np
import pandas
import pytest
from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal

import moregpu
from moregpu.encoding import Unencodable, decode, encode, joined
from moregpu.errors import MissingExtra


def there_and_back(value: Any) -> Any:
    return decode(bytearray(joined(encode(value))))


FRAMES = {
    "numbers": pandas.DataFrame({"a": [1, 2, 3], "b": [0.5, float("nan"), -1.0], "c": np.array([1, 2, 3], np.int8)}),
    "text": pandas.DataFrame({"word": ["x", "ü", ""], "flag": [True, False, True]}),
    "named rows": pandas.DataFrame({"a": [1, 2]}, index=pandas.Index(["one", "two"], name="which")),
    "columns of one name": pandas.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]),
    "names that are no text": pandas.DataFrame([[1, 2], [3, 4]], columns=[0, (1, "x")]),
    "nothing": pandas.DataFrame(),
    "no rows": pandas.DataFrame({"a": np.zeros(0), "b": np.zeros(0, np.int64)}),
    "objects": pandas.DataFrame({"a": pandas.Series([[1, 2], {"k": (3,)}], dtype=object)}),
}


TIMES = pandas.to_datetime(["2026-03-01 12:30", "2026-07-01 00:00"])
SERIES = {
    "categories": pandas.Series(pandas.Categorical(["x", None, "x"], categories=["y", "x"], ordered=True)),
    "intervals": pandas.cut(pandas.Series([1, 2, 3]), 2),
    "whole numbers with gaps": pandas.Series([1, None], dtype="Int8"),
    "numbers of a type with gaps": pandas.Series([1.5, 2.5], dtype="Float32"),
    "truths with gaps": pandas.Series([True, None], dtype="boolean"),
    "text with gaps": pandas.Series(["x", None], dtype="string"),
    "a gap in a zone": pandas.Series(TIMES.insert(1, pandas.NaT).tz_localize("Europe/Berlin")),
    "an offset": pandas.Series(pandas.to_datetime(["2026-03-01T00:00+02:30"])),
    "nanoseconds in a zone": pandas.Series(pandas.to_datetime([1], unit="ns", utc=True)),
    "seconds in a zone": pandas.Series(TIMES.as_unit("s").tz_localize("UTC")),
    "months": pandas.Series(pandas.period_range("2026-01", periods=2, freq="M")),
    "numbers that are objects": pandas.Series([1, np.float32(2)], dtype=object),
    "text that is objects": pandas.Series(["x", float("nan"), None], dtype=object),
    "what pandas has for nothing": pandas.Series([pandas.NaT, pandas.NA, pandas.Timestamp(5)], dtype=object),
    "no text": pandas.Series([], dtype="str"),
    "no objects": pandas.Series([], dtype=object),
    "no categories": pandas.Series([], dtype="category"),
    "no times": pandas.Series(TIMES[:0].tz_localize("UTC")),
}
INDEXES = {
    "categories": pandas.CategoricalIndex(["a", "b"], name="which"),
    "every other day": pandas.date_range("2026", periods=2, freq="2D"),
    "every hour of a zone": pandas.date_range("2026", periods=2, freq="h", tz="Europe/Berlin"),
    "quarters": pandas.period_range("2026", periods=2, freq="Q-NOV"),
    "numbers that are objects": pandas.Index([1, 2], dtype=object),
    "tuples": pandas.Index([("a", 1), ("b", 2)], tupleize_cols=False),
    "intervals": pandas.interval_range(0, 2),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_out_as_it_went_in(name: str) -> None:
    frame = FRAMES[name]
    found = there_and_back(frame)
    assert_frame_equal(found, frame, check_index_type=False, check_column_type=False)


@pytest.mark.parametrize("name", SERIES)
def test_a_column_keeps_its_type_alone_and_in_a_frame(name: str) -> None:
    series = SERIES[name]
    assert_series_equal(there_and_back(series), series)
    frame = pandas.DataFrame({"a": series, "b": range(len(series))})
    assert_frame_equal(there_and_back(frame), frame)


@pytest.mark.parametrize("name", INDEXES)
def test_rows_and_columns_keep_what_names_them(name: str) -> None:
    index = INDEXES[name]
    assert_index_equal(there_and_back(index), index, exact=True)
    frame = pandas.DataFrame([[1, 2], [3, 4]], index=index, columns=index.rename("across"))
    found = there_and_back(frame)
    assert_frame_equal(found, frame)
    assert found.columns.name == "across"
    assert getattr(found.index, "freq", None) == getattr(index, "freq", None)


def test_moments_of_ones_own_calendar_lose_the_calendar_alone() -> None:
    holidays = pandas.offsets.CustomBusinessDay(holidays=["2026-01-02"])
    series = pandas.Series([1, 2], index=pandas.date_range("2026", periods=2, freq=holidays))
    assert_series_equal(there_and_back(series), series, check_freq=False)


def test_a_zone_without_a_name_is_refused() -> None:
    class Moon(datetime.tzinfo):
        def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta | None:
            return None if when is None else datetime.timedelta(hours=when.month)

        def dst(self, when: datetime.datetime | None) -> datetime.timedelta | None:
            return None

    with pytest.raises(Unencodable, match="tz_convert"):
        encode(pandas.Series(TIMES.tz_localize("UTC").tz_convert(Moon())))


def test_a_frame_inside_other_values_comes_out_too() -> None:
    inside = there_and_back({"table": [FRAMES["numbers"]], "n": 1})
    assert_frame_equal(inside["table"][0], FRAMES["numbers"], check_index_type=False)


@pytest.mark.parametrize(
    "series",
    [
        pandas.Series([1.5, 2.5], name="rate"),
        pandas.Series(["a", "b"], index=pandas.Index([10, 20], name="at")),
        pandas.Series([], dtype=np.float64),
    ],
    ids=["numbers", "text", "empty"],
)
def test_a_series_comes_out_as_it_went_in(series: Any) -> None:
    assert_series_equal(there_and_back(series), series, check_index_type=False)


MOMENTS = [
    pandas.Timestamp("2026-03-01 12:30:05.123456789"),
    pandas.Timestamp("2026-03-01 12:30", tz="Europe/Berlin"),
    pandas.Timedelta(1, "ns"),
    pandas.Period("2026-03", freq="M"),
    pandas.NaT,
    pandas.NA,
]


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_moment_of_pandas_stays_what_it_is(moment: Any) -> None:
    found = there_and_back([moment])[0]
    assert (type(found), repr(found)) == (type(moment), repr(moment))


def test_a_moment_of_pandas_is_one_of_python_where_there_is_no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = bytearray(joined(encode(MOMENTS[:3])))
    monkeypatch.setitem(sys.modules, "pandas", None)
    plain, in_zone, span = decode(moments)
    assert (plain, span) == (datetime.datetime(2026, 3, 1, 12, 30, 5, 123456), datetime.timedelta())
    assert in_zone.isoformat() == "2026-03-01T12:30:00+01:00"


def test_several_levels_of_index_are_refused_with_what_to_do() -> None:
    frame = pandas.DataFrame({"a": [1, 2]}, index=pandas.MultiIndex.from_tuples([(1, "x"), (1, "y")]))
    with pytest.raises(Unencodable, match="reset_index"):
        encode(frame)


def test_several_levels_of_columns_are_refused_with_what_to_do() -> None:
    columns = pandas.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    with pytest.raises(Unencodable, match="several levels of columns"):
        encode(pandas.DataFrame([[1, 2]], columns=columns))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_times_with_a_zone_are_the_same_times_in_it(zone: str) -> None:
    times = pandas.date_range("2026-03-01 12:30", periods=3, freq="30D", tz=zone)
    found = there_and_back(pandas.DataFrame({"at": times, "n": [1, 2, 3]}, index=times))
    for moments in (found["at"], found.index):
        assert list(moments) == list(times)
        assert str(moments.dtype).endswith(f", {zone}]")


def test_a_frame_where_pandas_is_missing_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = bytearray(joined(encode(FRAMES["numbers"])))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Exception, match="pandas is not installed here"):
        decode(sent)


def test_results_become_a_table_with_a_row_for_each_call() -> None:
    found = moregpu.results_to_dataframe([{"rate": 0.1}, {"rate": 0.2}], [{"loss": 1.0}, {"loss": 0.5}])
    assert_frame_equal(found, pandas.DataFrame({"rate": [0.1, 0.2], "loss": [1.0, 0.5]}))
    found = moregpu.results_to_dataframe([(1, 2), (3, 4)], [3, 7])
    assert_frame_equal(found, pandas.DataFrame({"argument_0": [1, 3], "argument_1": [2, 4], "result": [3, 7]}))
    assert len(moregpu.results_to_dataframe([], [])) == 0


def test_a_table_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra) as caught:
        moregpu.results_to_dataframe([1], [2])
    assert "pip install pandas" in caught.value.hint
