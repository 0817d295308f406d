"""Tables of pandas travel: values, names, index and types, and what cannot travel says so."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

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


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_comes_out_as_it_went_in(name: str) -> None:
    frame = FRAMES[name]
    found = there_and_back(frame)
    assert_frame_equal(found, frame, check_index_type=False, check_column_type=False)


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


def test_a_moment_of_pandas_becomes_the_same_moment() -> None:
    assert there_and_back(pandas.Timestamp("2026-03-01 12:30:05.25")) == pandas.Timestamp("2026-03-01 12:30:05.25")


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
