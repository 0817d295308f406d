"""Formulas through real processes: from Python, from the command line, on CPU and GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from moregpu_kernels.formula import parse
from moregpu_kernels.reference_formula import expect_formula

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.errors import InvalidJob

TEXT = "exp(-x*x) * sin(y)"


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (257, 65), (1000, 1000)])
def test_a_formula_of_arrays_that_broadcast(pool: Pool, shape: tuple[int, ...]) -> None:
    x, y = draw(1, *shape), draw(2, *shape[1:])
    found = pool.formula(TEXT, x=x, y=y)
    assert found.shape == shape
    assert (expect_formula(parse(TEXT), {"x": x, "y": y}, "float32").ratio(found) <= 1.0).all()


def test_a_formula_is_shared_checked_and_signed(pool: Pool) -> None:
    handle = pool.formula_job("a*x + b", a=2.0, b=draw(3, 2000), x=draw(4, 3000, 2000))
    found = handle.result()
    view = handle.status()
    assert view.tasks_done > 1 and view.checked and view.evidence == {"recomputed": view.tasks_total}
    assert found.shape == (3000, 2000)


def test_a_number_takes_the_type_of_the_arrays(pool: Pool) -> None:
    x = draw(5, 40).astype(np.float16)
    found = pool.formula("k * x", k=0.5, x=x)
    assert found.dtype == np.float16
    assert np.array_equal(found, np.float16(0.5) * x)


@pytest.mark.parametrize(
    ("text", "says"),
    [("exp(z)", "Unknown name 'z' at character 5"), ("x / 0", "divides by the constant 0"), ("x +", "ends too early")],
)
def test_a_mistake_is_pointed_at_before_anything_runs(pool: Pool, text: str, says: str) -> None:
    with pytest.raises(InvalidJob, match=says):
        pool.formula(text, x=draw(6, 3))


def test_from_the_command_line(road: LoopbackPool, tmp_path: Path) -> None:
    x = draw(7, 30, 4)
    np.save(tmp_path / "x.npy", x)
    done = road.run("submit", "formula", "k * x + 1", f"x={tmp_path / 'x.npy'}", "k=2", "-o", str(tmp_path / "z.npy"))
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "z.npy"), 2 * x + 1)
    for arguments, says in (
        (("k * x", f"x={tmp_path / 'x.npy'}"), "Unknown name 'k' at character 1"),
        (("x", str(tmp_path / "x.npy")), "names no input"),
        (("x", "x=1", "x=2"), "given twice"),
    ):
        done = road.run("submit", "formula", *arguments)
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
