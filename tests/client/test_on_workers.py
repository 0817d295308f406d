"""What runs around a function on a worker finds all it needs there, though an environment holds little else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moregpu.client.functions.accelerate import accelerate
from moregpu.client.functions.on_workers import Spread, run_cell, run_items
from moregpu.client.functions.pickled import as_pickled
from moregpu.client.functions.program import Packer, dumps
from moregpu.encoding import encode, joined
from moregpu.worker.environments.requirements import BASE

ONLY_BASE = """
import importlib.metadata, sys

kept = {*sys.argv[3:], "moregpu"}
for name in importlib.metadata.packages_distributions():
    if name not in kept:
        sys.modules[name] = None  # as where it is not installed

from moregpu.worker.functions.programs import load

with open(sys.argv[1], "rb") as program, open(sys.argv[2], "rb") as arguments:
    print(load("pickle", memoryview(program.read())).call(memoryview(arguments.read()), {}))
"""


def by_pickle(function: Callable[..., Any], *args: Any) -> tuple[Callable[..., Any], Any]:
    return as_pickled(function, args, {})


@accelerate
def plus_one(x: int) -> int:
    return x + 1


CALLS: dict[str, tuple[Callable[..., Any], Any]] = {
    "a function": (lambda x: x + 1, encode(((6,), {}))),
    "an accelerated one": (lambda x: plus_one(x), encode(((6,), {}))),
    "spread": (Spread(lambda x, y: x + y), encode((((6,), {"y": 1}), {}))),
    "arguments by pickle": by_pickle(lambda x: x + 1, 6),
    "joblib's": (run_items, encode(((dumps([(lambda x: x + 1, (6,), {})]),), {}))),
    "a cell": (run_cell, encode((("x + 1", {"x": 6}, []), {}))),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_every_kind_run_where_there_is_nothing_but_what_each_environment_holds(
    name: str, tmp_path: Path
) -> None:
    function, arguments = CALLS[name]
    program, given = tmp_path / "program", tmp_path / "arguments"
    program.write_bytes(Packer().pack(function, {}).content)
    given.write_bytes(joined(arguments))
    base = [each.partition(">")[0] for each in BASE]
    command = [sys.executable, "-c", ONLY_BASE, str(program), str(given), *base]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("7", "[7]", "({}, 7, None)")
