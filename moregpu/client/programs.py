"""What the pool computes, written once: kernels, and functions composed of them, as generators.

A program yields a `Step` (answered with the tensor of its output, which stays on the pool) and `Fetch` (answered with
the array). `Pool` drives it on the calling thread, `AsyncPool` in a coroutine.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast, get_args

from moregpu.client.options import JobOptions
from moregpu.errors import InvalidJob
from moregpu.jobs import Tensor
from moregpu.workloads.kernel.spec import Operation

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, Any]

T = TypeVar("T")
Activation = Literal["relu", "gelu"]

ROW = 4096
"""Sums go by rows of so many elements: a product with ones for each row on the pool, the rows' sums in float64 here."""


class Step(NamedTuple):
    """One kernel job on arrays, tensors of the pool, or both."""

    operation: Operation
    inputs: dict[str, Any]
    scalar: float
    options: JobOptions
    formula: str = ""
    kernel: str = ""


class Fetch(NamedTuple):
    """Bring a tensor here."""

    tensor: Tensor


class Named(NamedTuple):
    """A tensor that is on the pool under a name; looked up when a step needs it."""

    name: str


Program = Generator[Step | Fetch, Any, T]


def kernel(operation: Operation, inputs: dict[str, Any], scalar: float, options: JobOptions) -> Program[Floats]:
    """One kernel."""
    return (yield Fetch((yield Step(operation, inputs, scalar, options))))


def formula(text: str, inputs: dict[str, Any], options: JobOptions) -> Program[Floats]:
    """One formula."""
    return (yield Fetch((yield Step("formula", inputs, 1.0, options, text))))


def custom(name: str, inputs: dict[str, Any], options: JobOptions) -> Program[Floats]:
    """One registered kernel."""
    return (yield Fetch((yield Step("custom", inputs, 1.0, options, kernel=name))))


def linear(x: Any, weight: Any, bias: Any, options: JobOptions) -> Program[Floats]:
    """`x @ weight + bias`."""
    return (yield Fetch((yield from _linear(x, weight, bias, options))))


def mlp(
    x: Any, layers: Sequence[tuple[Any, Any]], activation: Activation, options: JobOptions
) -> Program[Floats]:  # fmt: skip
    """Linear layers, with an activation between them."""
    pairs = [_layer(number, layer) for number, layer in enumerate(layers)]
    if not pairs:
        raise InvalidJob("a network without layers", "give (weight, bias) pairs; a bias may be None")
    if activation not in get_args(Activation):
        raise InvalidJob(f"there is no activation {activation!r}", f"one of {', '.join(get_args(Activation))}")
    hidden = x
    for number, (weight, bias) in enumerate(pairs):
        if number:
            hidden = yield Step(activation, {"a": hidden}, 1.0, options)
        hidden = yield from _linear(hidden, weight, bias, options)
    return (yield Fetch(hidden))


def attention(query: Any, key: Any, value: Any, causal: bool, options: JobOptions) -> Program[Floats]:
    """Scaled dot-product attention of one head (Vaswani et al. 2017, equation 1)."""
    import numpy as np

    from moregpu.client.arrays import is_half, plain

    keys = plain(key, "key")
    rows, width = _shape(query, "query")
    if keys.ndim != 2 or keys.shape[1] != width:
        raise InvalidJob(f"keys of shape {keys.shape} do not fit queries of shape {(rows, width)}")
    kind = np.float16 if is_half(keys) else np.float32
    turned = np.ascontiguousarray((keys.astype(np.float32) / math.sqrt(width)).astype(kind).T)
    scores = yield Step("matmul", {"a": query, "b": turned}, 1.0, options)
    if causal:
        mask = np.triu(np.full((rows, keys.shape[0]), -np.inf, kind), 1)
        scores = yield Step("vector_add", {"a": scores, "b": mask}, 1.0, options)
    weights = yield Step("softmax", {"a": scores}, 1.0, options)
    return (yield Fetch((yield Step("matmul", {"a": weights, "b": value}, 1.0, options))))


def total(a: Any, options: JobOptions) -> Program[float]:
    """Sum of all elements."""
    import numpy as np

    from moregpu.client.arrays import plain

    array = plain(a, "a")
    if array.size == 0:
        return 0.0
    rows = _rows(_wide(array))
    ones = np.ones((rows.shape[1], 1), np.float32)
    sums = yield from kernel("matmul", {"a": rows, "b": ones}, 1.0, options)
    return float(np.sum(sums, dtype=np.float64))


def dot(a: Any, b: Any, options: JobOptions) -> Program[float]:
    """Sum of the products, element by element."""
    import numpy as np

    from moregpu.client.arrays import plain

    left, right = plain(a, "a"), plain(b, "b")
    if left.shape != right.shape:
        raise InvalidJob(f"a has the shape {left.shape}, b has {right.shape}", "they must be the same")
    if left.size == 0:
        return 0.0
    rows = _rows(_wide(left))
    others = rows if right is left else _rows(_wide(right))
    products = yield Step("vector_mul", {"a": rows, "b": others}, 1.0, options)
    ones = np.ones((rows.shape[1], 1), np.float32)
    sums = yield from kernel("matmul", {"a": products, "b": ones}, 1.0, options)
    return float(np.sum(sums, dtype=np.float64))


def mean(a: Any, options: JobOptions) -> Program[float]:
    """Arithmetic mean of all elements; NaN for none, as NumPy's."""
    from moregpu.client.arrays import plain

    count = plain(a, "a").size
    return (yield from total(a, options)) / count if count else math.nan


def norm(a: Any, options: JobOptions) -> Program[float]:
    """Euclidean norm of all elements."""
    from moregpu.client.arrays import plain

    array = plain(a, "a")
    return math.sqrt((yield from dot(array, array, options)))


def _linear(x: Any, weight: Any, bias: Any, options: JobOptions) -> Program[Tensor]:
    import numpy as np

    from moregpu.client.arrays import plain

    product: Tensor = yield Step("matmul", {"a": x, "b": weight}, 1.0, options)
    if bias is None:
        return product
    row = plain(bias, "bias")
    if row.shape != product.shape[-1:]:
        raise InvalidJob(f"a bias of shape {row.shape} does not fit an output of shape {product.shape}")
    spread = np.ascontiguousarray(np.broadcast_to(row.astype(product.dtype), product.shape))
    return cast("Tensor", (yield Step("vector_add", {"a": product, "b": spread}, 1.0, options)))


def _layer(number: int, layer: Any) -> tuple[Any, Any]:
    if not isinstance(layer, tuple | list) or len(layer) != 2:
        raise InvalidJob(f"layer {number} is no pair of weight and bias", "(weight, None) is one without a bias")
    return layer[0], layer[1]


def _wide(array: Any) -> Floats:
    """Half floats as float32: their sums and products leave half's range and precision, which a number need not."""
    import numpy as np

    from moregpu.client.arrays import is_half

    return array.astype(np.float32) if is_half(array) else array


def _rows(array: Any) -> Floats:
    """As rows of one length, the last one filled up with zeros; not copied where it fits."""
    import numpy as np

    flat = array.reshape(-1)
    width = min(ROW, flat.size)
    short = -flat.size % width
    return (np.concatenate([flat, np.zeros(short, flat.dtype)]) if short else flat).reshape(-1, width)


def _shape(value: Any, name: str) -> tuple[int, int]:
    from moregpu.client.arrays import plain

    shape = tuple(value.shape) if hasattr(value, "shape") else plain(value, name).shape
    if len(shape) != 2:
        raise InvalidJob(f"{name} has the shape {shape}, and must have two axes")
    return shape
