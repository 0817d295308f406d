"""What a script left in `result`, as a line of JSON."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import pathlib
from typing import Any

import numpy as np
import pandas
import pytest

from moregpu.cli.script import _shown  # pyright: ignore[reportPrivateUsage]
from moregpu.encoding import Unknown


@dataclasses.dataclass
class Scores:
    loss: Any


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            {"loss": np.float32(0.5), "n": np.int64(3), "best": np.array([[1, 2]])},
            '{"loss": 0.5, "n": 3, "best": [[1, 2]]}',
        ),
        (Scores(loss=np.float64(0.5)), '{"loss": 0.5}'),
        ([Unknown("__main__:Scores", {"loss": (1, 2)})], '[{"loss": [1, 2]}]'),
        ({"path": pathlib.PurePosixPath("/x"), "at": datetime.date(2026, 3, 1)}, '{"path": "/x", "at": "2026-03-01"}'),
        ([decimal.Decimal("1.50"), Colour.RED, {3}, collections.deque([4])], '["1.50", "red", [3], [4]]'),
        (pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}), '{"a": [1, 2], "b": ["x", "y"]}'),
        (collections.Counter("aab"), '{"a": 2, "b": 1}'),
        ({"z": 1j, "b": b"\x1b"}, '{"z": "1j", "b": "b\'\\\\x1b\'"}'),
        ({(1, 2): 3}, '"{(1, 2): 3}"'),
        ("\x1b\x7f\u202e", '"\\u001b\\u007f\\u202e"'),
    ],
)
def test_a_result_is_a_line_of_json_whatever_it_holds(result: Any, line: str) -> None:
    assert _shown(result) == line
