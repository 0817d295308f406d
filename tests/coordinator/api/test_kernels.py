"""Kernels that an admin registers: what their doors promise, and what a job may name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from moregpu.coordinator.server import ServeConfig

from .conftest import Pool, Running

_PAGE = (Path(__file__).parents[3] / "docs" / "kernels.md").read_text(encoding="utf-8")
LEAKY_RELU = next(t for t in re.findall(r"```wgsl\n(.*?)```", _PAGE, re.DOTALL) if 'name = "leaky_relu"' in t)
OTHER = LEAKY_RELU.replace("u.slope * x", "x * u.slope")


def named(name: str) -> str:
    return LEAKY_RELU.replace('name = "leaky_relu"', f'name = "{name}"')


def job(**fields: Any) -> dict[str, Any]:
    a = {"dtype": "float32", "shape": [2], "data": "AACAPwAAgL8="}
    return {
        "kind": "kernel", "operation": "custom", "kernel": "mine", "inputs": {"a": a},
        "numbers": {"slope": 0.1}, **fields,
    }  # fmt: skip


@pytest.fixture
def mine(pool: Pool) -> str:
    assert pool.ask("POST", "/v1/kernels", pool.admin, {"source": named("mine")}).status == 201
    return "mine"


def test_a_kernel_is_registered_shown_and_removed(pool: Pool, mine: str) -> None:
    (view,) = [each for each in pool.ask("GET", "/v1/kernels", pool.admin).json() if each["name"] == mine]
    assert (view["inputs"], view["parameters"]) == (["a"], ["slope"])
    assert view["reference"] == "where(a > 0, a, slope * a)"
    assert view["source"] == named(mine)
    assert pool.ask("POST", "/v1/kernels", pool.admin, {"source": named(mine)}).status == 201
    other = OTHER.replace('name = "leaky_relu"', f'name = "{mine}"')
    assert pool.ask("POST", "/v1/kernels", pool.admin, {"source": other}).code == "conflict"
    assert pool.ask("DELETE", f"/v1/kernels/{mine}", pool.admin).status == 204
    assert pool.ask("DELETE", f"/v1/kernels/{mine}", pool.admin).code == "not-found"


def test_what_is_no_kernel_is_refused_with_the_reason(pool: Pool) -> None:
    for source, says in (
        ("fn main() {}", "front matter"),
        (LEAKY_RELU.replace("reference", "reverence"), "reverence"),
        (named("softmax"), "an operation of the pool itself"),
    ):
        refused = pool.ask("POST", "/v1/kernels", pool.admin, {"source": source})
        assert refused.code == "invalid-request" and says in refused.json()["detail"], refused.json()


def test_a_job_names_what_is_registered_and_nothing_else(pool: Pool, mine: str) -> None:
    assert pool.ask("POST", "/v1/plan", pool.admin, job()).status == 200
    made = pool.ask("POST", "/v1/jobs", pool.admin, job())
    assert made.status == 201
    assert pool.ask("POST", f"/v1/jobs/{made.json()['id']}/retry", pool.admin).status == 201
    for spoilt, says in (
        ({"kernel": "none"}, "no registered kernel 'none'"),
        ({"source": OTHER}, "not the text that is registered"),
        ({"numbers": {}}, "takes the numbers slope"),
        ({"inputs": {}}, "takes the arrays a"),
    ):
        refused = pool.ask("POST", "/v1/jobs", pool.admin, job(**spoilt))
        assert refused.code == "invalid-job" and says in refused.json()["detail"], refused.json()
    pool.ask("DELETE", f"/v1/kernels/{mine}", pool.admin)
    assert pool.ask("POST", "/v1/jobs", pool.admin, job()).code == "invalid-job"


def test_registered_kernels_outlive_a_restart(config: ServeConfig) -> None:
    with Running(config) as first:
        first.ask("POST", "/v1/kernels", first.admin, {"source": LEAKY_RELU})
    with Running(config, first) as second:
        assert [view["name"] for view in second.ask("GET", "/v1/kernels", second.admin).json()] == ["leaky_relu"]
