"""What a child calls: what was scattered is put into the place of what stands for it."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import pytest

from moregpu.client.functions.program import dumps
from moregpu.client.functions.shared import Shared
from moregpu.encoding import encode, joined
from moregpu.encoding.failures import describe
from moregpu.worker.functions.programs import load


class Pair(NamedTuple):
    left: Any
    right: Any


TABLE = Shared("ab" * 32)


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (Counter({"a": TABLE}), Counter({"a": [1, 2]})),
        (OrderedDict({"a": TABLE}), OrderedDict({"a": [1, 2]})),
        (defaultdict(int, {"a": TABLE}), defaultdict(int, {"a": [1, 2]})),
        (deque([TABLE], maxlen=3), deque([[1, 2]], maxlen=3)),
        (Pair(TABLE, (TABLE, 0)), Pair([1, 2], ([1, 2], 0))),
        ({"a": [{3: TABLE}]}, {"a": [{3: [1, 2]}]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_holds_a_shared_value_or_stands_beside_one_stays_what_it_is(given: Any, got: Any) -> None:
    program = load("pickle", memoryview(dumps((lambda *args: args, {f"{__name__}:Pair": Pair}))))
    arguments = joined(encode(((TABLE, given, Counter("a")), {})))
    table, made, beside = program.call(memoryview(arguments), {TABLE.digest: memoryview(joined(encode([1, 2])))})
    assert (table, made, type(made), type(beside)) == ([1, 2], got, type(got), Counter)
    assert getattr(made, "default_factory", None) is getattr(got, "default_factory", None)
    assert getattr(made, "maxlen", None) == getattr(got, "maxlen", None)


def test_a_script_that_fails_shows_its_line() -> None:
    program = load("script", memoryview(b"def f(x):\n    return 1 / x  # here\n\nf(payload)\n"))
    with pytest.raises(ZeroDivisionError) as caught:
        program.call(memoryview(joined(encode(0))), {})
    assert "return 1 / x  # here" in describe(caught.value).traceback


def test_a_script_that_parses_arguments_finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["-c", "{}", "ours"])
    text = b"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--n", default=3)
result = [parser.prog, parser.parse_args().n]
"""
    assert load("script", memoryview(text)).call(memoryview(joined(encode(None))), {}) == ["script.py", 3]
