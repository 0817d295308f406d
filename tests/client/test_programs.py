"""What is composed of kernels, driven without a pool: each step is computed here, as a worker would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from moregpu.client.arrays import common_floats, plain
from moregpu.client.programs import Fetch, Named, Program, Step, attention, dot, mean, mlp, norm, total
from moregpu.errors import InvalidJob
from moregpu.jobs import Tensor


def driven(program: Program[Any]) -> Any:
    """Run a program to its end. Half floats stay so and are summed in float32, as on a worker."""
    answer: Any = None
    while True:
        try:
            asked = program.send(answer)
        except StopIteration as end:
            return end.value
        answer = asked.tensor if isinstance(asked, Fetch) else computed(asked)


def computed(step: Step) -> np.ndarray[Any, Any]:
    inputs = common_floats(step.inputs)
    kind = next(iter(inputs.values())).dtype
    wide = [array.astype(np.float32) for array in inputs.values()]
    with np.errstate(over="ignore"):
        match step.operation:
            case "matmul":
                return (wide[0] @ wide[1]).astype(kind)
            case "vector_mul":
                return (wide[0] * wide[1]).astype(kind)
            case "softmax":
                powers = np.exp(wide[0] - wide[0].max(-1, keepdims=True))
                return (powers / powers.sum(-1, keepdims=True)).astype(kind)
            case _:
                raise AssertionError(step.operation)


@pytest.mark.parametrize("size", [1, 1000, 4096, 10_000])
def test_numbers_of_half_floats_are_not_half_as_good(size: int) -> None:
    """A sum of 1,000 hundreds is beyond a half float; their mean is a hundred."""
    hundreds = np.full(size, 100, np.float16)
    assert driven(total(hundreds, {})) == 100.0 * size
    assert driven(mean(hundreds, {})) == 100.0
    assert driven(dot(hundreds, hundreds, {})) == 10_000.0 * size
    assert driven(norm(hundreds, {})) == pytest.approx(100.0 * size**0.5)
    assert driven(dot(hundreds, hundreds.astype(np.float32), {})) == 10_000.0 * size
    assert driven(total(hundreds.astype(">f2"), {})) == 100.0 * size


def test_queries_may_be_lists_as_any_input() -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert np.array_equal(driven(attention(rows, rows, rows, False, {})),
                          driven(attention(np.array(rows), np.array(rows), np.array(rows), False, {})))  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "activation", "said"),
    [
        ([np.ones((2, 2))], "gelu", "layer 0 is no pair"),
        ([(np.ones((2, 2)), None), (np.ones((2, 2)),)], "gelu", "layer 1 is no pair"),
        ([(np.ones((2, 2)), None)], "tanh", "no activation 'tanh'"),
        ([], "gelu", "without layers"),
    ],
)
def test_a_network_that_is_none_is_refused_before_anything_is_computed(layers: Any, activation: Any, said: str) -> None:
    with pytest.raises(InvalidJob, match=said):
        next(mlp(np.ones((2, 2)), layers, activation, {}))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([[1, 2], [3]], "is no array"),
        (Tensor(dtype="float32", shape=(1,), data=bytes(4)), "is on the pool"),
        (Named("weight"), "is on the pool"),
    ],
)
def test_what_is_no_array_is_refused_in_our_words(value: Any, said: str) -> None:
    with pytest.raises(InvalidJob, match=said) as refused:
        plain(value, "a")
    assert refused.value.hint
