"""What `check` looks at: all there is, and a wrong element is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from moregpu_kernels.__main__ import main
from moregpu_kernels.cases import SIZES, Case, cases
from moregpu_kernels.device import Device
from moregpu_kernels.executor import Executor
from moregpu_kernels.fuse import FORMULAS
from moregpu_kernels.layout import Traits
from moregpu_kernels.operations import OPERATIONS
from moregpu_kernels.plan_rows import QUANTISED, REDUCTIONS, ROW_OPERATIONS

ALL = list(cases(Traits(kind="discrete")))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "operation", sorted({*OPERATIONS, *FORMULAS, *ROW_OPERATIONS, *REDUCTIONS, *QUANTISED, "transpose", "formula"})
)
def test_every_operation_is_looked_at_in_both_dtypes_and_on_data_that_hurts(operation: str, dtype: str):
    its = [case for case in ALL if case.operation == operation and case.dtype == dtype]
    assert its
    assert operation == "transpose" or any(case.hurts for case in its)
    if operation not in QUANTISED:
        seen = {size for case in its for array in case.arrays.values() for size in array.shape}
        assert seen.issuperset(SIZES)


def test_what_hurts_holds_values_that_are_not_finite():
    for case in ALL:
        floats = [array for array in case.arrays.values() if array.dtype.kind == "f"]
        if case.hurts and case.operation != "matmul":
            assert not all(np.isfinite(array).all() for array in floats), case.name
    assert any(not np.isfinite(c.arrays["a"]).all() for c in ALL if c.operation == "matmul" and c.hurts)


def test_one_wrong_element_is_said_and_ends_with_status_1(
    device: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    right = Executor.apply

    def wrong(self: Executor, operation: str, *rest: Any, **more: Any) -> Any:
        out = right(self, operation, *rest, **more)
        if operation == "relu" and out.size:
            out[-1] = 7.0
        return out

    def few(traits: Traits) -> Iterator[Case]:
        return (case for case in cases(traits) if case.operation in ("relu", "scale") and not case.hurts)

    monkeypatch.setattr(Executor, "apply", wrong)
    monkeypatch.setattr("moregpu_kernels.__main__.cases", few)
    assert main(["check", "--device", device.info.key]) == 1
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines() if line.endswith("WRONG")] == ["relu.float16", "relu.float32"]


def test_a_case_is_named_by_what_it_tries():
    arrays = {"a": np.zeros(3, np.float32)}
    assert Case("relu", arrays, "float32").name == "relu.float32"
    assert Case("matmul", arrays, "float32", variant="naive").name == "matmul.float32 naive"
    assert Case("relu", arrays, "float16", hurts=True).name == "relu.float16 hard data"
