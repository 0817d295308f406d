"""Many calls with many parameters, and what they gave as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moregpu.errors import MissingExtra


def arguments_of(parameters: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One set of parameters as a call's arguments: a mapping by name, a tuple in order, anything else alone."""
    if isinstance(parameters, Mapping):
        return (), {str(name): value for name, value in parameters.items()}
    return (parameters, {}) if isinstance(parameters, tuple) else ((parameters,), {})


def rows_of(parameters: Iterable[Any], results: Sequence[Any]) -> list[dict[str, Any]]:
    """One row for each call: its parameters and what it gave (a mapping's items, else under `result`)."""
    rows: list[dict[str, Any]] = []
    for one, result in zip(parameters, results, strict=True):
        args, kwargs = arguments_of(one)
        row: dict[str, Any] = {f"argument_{place}": value for place, value in enumerate(args)} | kwargs
        rows.append(row | (dict(result) if isinstance(result, Mapping) else {"result": result}))
    return rows


def results_to_dataframe(parameters: Iterable[Any], results: Sequence[Any]) -> Any:
    """A pandas DataFrame with a row for each call: its parameters, and what it gave. Raises `MissingExtra`."""
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingExtra("a DataFrame needs pandas", "pip install pandas") from error
    return pandas.DataFrame(rows_of(parameters, results))
