"""A registered kernel through real processes: from its file to checked results, on CPU and GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.errors import InvalidJob

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
SOURCE = next(text for text in re.findall(r"```wgsl\n(.*?)```", PAGE, re.DOTALL) if 'name = "leaky_relu"' in text)


def test_a_kernel_of_ones_own_from_its_file_to_checked_results(road: LoopbackPool, pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "leaky_relu.wgsl"
    file.write_text(SOURCE, encoding="utf-8")
    done = road.run("kernel", "add", str(file))
    assert done.returncode == 0 and "leaky_relu is registered" in done.stdout, done.stderr
    (view,) = json.loads(road.run("kernel", "list", "--json").stdout)
    assert view["reference"] == "where(a > 0, a, slope * a)"
    a = np.random.default_rng(1).standard_normal((900, 1000), dtype=np.float32)
    handle = pool.custom_job("leaky_relu", a=a, slope=0.1)
    assert np.allclose(handle.result(), np.where(a > 0, a, np.float32(0.1) * a), atol=1e-7)
    view = handle.status()
    assert view.checked and view.evidence == {"recomputed": view.tasks_total}
    assert np.array_equal(pool.custom("leaky_relu", a=a[:3], slope=2), np.where(a[:3] > 0, a[:3], 2 * a[:3]))
    np.save(tmp_path / "a.npy", a[:3])
    typed = ["submit", "custom", "leaky_relu", f"a={tmp_path / 'a.npy'}", "slope=2", "-o", str(tmp_path / "b.npy")]
    assert road.run(*typed).returncode == 0
    assert np.array_equal(np.load(tmp_path / "b.npy"), np.where(a[:3] > 0, a[:3], 2 * a[:3]))
    with pytest.raises(InvalidJob, match="takes the numbers slope"):
        pool.custom("leaky_relu", a=a[:3])
    assert road.run("kernel", "remove", "leaky_relu").returncode == 0
    with pytest.raises(InvalidJob, match="no registered kernel"):
        pool.custom("leaky_relu", a=a[:3], slope=0.1)


def test_what_is_no_kernel_is_refused_with_the_line(road: LoopbackPool, tmp_path: Path) -> None:
    file = tmp_path / "broken.wgsl"
    file.write_text(SOURCE.replace("slope * a)", "slope * )"), encoding="utf-8")
    done = road.run("kernel", "add", str(file))
    assert done.returncode == 2 and "Traceback" not in done.stderr and "')' is not expected" in done.stderr
    done = road.run("kernel", "add", str(tmp_path / "nowhere.wgsl"))
    assert done.returncode == 2 and "cannot be read" in done.stderr
