"""Cells of notebooks: which names go with them, which come back, and what an interrupted one leaves."""

from __future__ import annotations

import copy
import traceback
from concurrent.futures import Future
from typing import Any

import pytest

from moregpu.client.functions import jupyter
from moregpu.client.functions.jupyter import load_ipython_extension, names_of
from moregpu.client.functions.on_workers import run_cell


@pytest.mark.parametrize(
    ("cell", "used", "bound"),
    [
        ("y = x + 1", {"x"}, {"y"}),
        ("x += 1", {"x"}, {"x"}),
        ("for _ in range(3):\n    total += _step", {"range", "total", "_step"}, {"_", "total"}),
        ("x[0] += 1", {"x"}, {"x"}),
        ("table['new'] = table.a * y", {"table", "y"}, {"table"}),
        ("a.b[c].d = 1\ndel e[0]\nf().g = h[0]", {"a", "c", "e", "f", "h"}, {"a", "e"}),
        ("del x", {"x"}, set()),
        ("match pair:\n    case (a, *b): pass\n    case {'k': c, **d}: pass", {"pair"}, {"a", "b", "c", "d"}),
        ("def f(): return x", {"x"}, set()),
    ],
)
def test_names_that_a_cell_uses_go_with_it_and_those_that_it_binds_come_back(
    cell: str, used: set[str], bound: set[str]
) -> None:
    assert names_of(cell) == (used, bound)


class Shell:
    """What the extension asks of IPython."""

    def __init__(self, **names: Any):
        self.user_ns = names

    def register_magic_function(self, function: Any, **_: Any) -> None:
        self.pool = function


class Pool:
    """Makes calls here, or never."""

    def __init__(self, *, answers: bool = True):
        self.answers = answers
        self.futures: list[Future[Any]] = []

    def calls(self, **_: Any) -> Pool:
        return self

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        future: Future[Any] = _Interrupted() if not self.answers else Future()
        self.futures.append(future)
        if self.answers:
            future.set_result(function(*arguments))
        return future


class _Interrupted(Future[Any]):
    def result(self, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt


def shell_on(pool: Pool, monkeypatch: pytest.MonkeyPatch, **names: Any) -> Shell:
    monkeypatch.setattr(jupyter, "default_pool", lambda: pool)
    shell = Shell(**names)
    load_ipython_extension(shell)
    return shell


def test_a_cell_counts_on_in_a_name_of_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shell_on(Pool(), monkeypatch, x=1, _step=4)
    assert shell.pool("", "x += _step\nx") == 5
    assert shell.user_ns["x"] == 5


def test_what_a_cell_assigns_a_part_of_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(Pool):
        def submit(self, function: Any, *arguments: Any) -> Future[Any]:
            return super().submit(function, *copy.deepcopy(arguments))

    table = {"a": 1}
    shell = shell_on(Elsewhere(), monkeypatch, table=table)
    shell.pool("", "table['b'] = table['a'] + 1")
    assert shell.user_ns["table"] == {"a": 1, "b": 2}


def test_a_cell_that_is_interrupted_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(answers=False)
    shell = shell_on(pool, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        shell.pool("", "1")
    assert pool.futures[0].cancelled()


def test_a_cell_that_fails_shows_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_cell("x = 1\nx / 0  # here", {}, [])
    assert "\n    x / 0  # here\n" in "".join(traceback.format_exception(caught.value))
