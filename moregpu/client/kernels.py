"""The kernels and what is composed of them, as methods: `Pool` returns arrays, `AsyncPool` what is awaited for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, Unpack

from moregpu.client import programs
from moregpu.client.options import JobOptions
from moregpu.client.programs import Activation, Named, Program
from moregpu.wire.api import TensorView
from moregpu.workloads.kernel.spec import Operation

Array = TypeVar("Array")
Number = TypeVar("Number")


class Kernels(Generic[Array, Number]):
    """Inputs are NumPy arrays, or tensors that are on the pool already (`pool.put`, `handle.outputs()`).

    Arrays of any size; float16 stays float16 (summed in float32), everything else becomes float32. Checked in full
    unless `check="none"`. Options are those of every job (`JobOptions`). Each raises `InvalidJob` for shapes that do
    not fit, `JobFailed`, `JobCancelled`, `Unreachable`.
    """

    @abstractmethod
    def _array(self, program: Program[Any]) -> Array: ...

    @abstractmethod
    def _number(self, program: Program[float]) -> Number: ...

    def _kernel(self, operation: Operation, scalar: float, options: JobOptions, **inputs: Any) -> Array:
        return self._array(programs.kernel(operation, inputs, scalar, options))

    def matmul(self, A: Any, B: Any, **options: Unpack[JobOptions]) -> Array:
        """A (M, K) @ B (K, N) → (M, N)."""
        return self._kernel("matmul", 1.0, options, a=A, b=B)

    def vector_add(self, a: Any, b: Any, **options: Unpack[JobOptions]) -> Array:
        """Sum of two arrays of one shape."""
        return self._kernel("vector_add", 1.0, options, a=a, b=b)

    def vector_mul(self, a: Any, b: Any, **options: Unpack[JobOptions]) -> Array:
        """Product of two arrays of one shape, element by element."""
        return self._kernel("vector_mul", 1.0, options, a=a, b=b)

    def saxpy(self, scalar: float, a: Any, b: Any, **options: Unpack[JobOptions]) -> Array:
        """Give scalar · a + b."""
        return self._kernel("saxpy", scalar, options, a=a, b=b)

    def scale(self, a: Any, scalar: float, **options: Unpack[JobOptions]) -> Array:
        """Give scalar · a."""
        return self._kernel("scale", scalar, options, a=a)

    def relu(self, a: Any, **options: Unpack[JobOptions]) -> Array:
        """max(a, 0)."""
        return self._kernel("relu", 1.0, options, a=a)

    def gelu(self, a: Any, **options: Unpack[JobOptions]) -> Array:
        """GELU in its tanh form: a/2 · (1 + tanh(√(2/π) · (a + 0.044715 a³)))."""
        return self._kernel("gelu", 1.0, options, a=a)

    def softmax(self, a: Any, **options: Unpack[JobOptions]) -> Array:
        """Softmax over the last axis."""
        return self._kernel("softmax", 1.0, options, a=a)

    def layernorm(self, a: Any, **options: Unpack[JobOptions]) -> Array:
        """(a − mean) / √(variance + 1e-5) over the last axis, without scale and shift."""
        return self._kernel("layernorm", 1.0, options, a=a)

    def formula(self, text: str, /, *, options: JobOptions | None = None, **inputs: Any) -> Array:
        """Compute a formula over arrays and numbers that broadcast as NumPy's: `formula("exp(-x*x)*sin(y)", x=…, y=…)`.

        `+ - * / **`, comparisons (1 or 0), `pi e inf nan`, and functions such as exp log sin tanh sqrt erf where clip
        (`docs/kernels.md` lists them). At most seven arrays. Raises `InvalidJob` that points into the text.
        """
        return self._array(programs.formula(text, inputs, options or JobOptions()))

    def custom(self, name: str, /, *, options: JobOptions | None = None, **inputs: Any) -> Array:
        """Run a registered kernel on arrays of one shape and numbers: `custom("leaky_relu", a=a, slope=0.1)`."""
        return self._array(programs.custom(name, inputs, options or JobOptions()))

    # composed: what is in between stays on the pool

    def linear(self, x: Any, weight: Any, bias: Any = None, **options: Unpack[JobOptions]) -> Array:
        """Give x (M, K) @ weight (K, N) + bias (N,) → (M, N)."""
        return self._array(programs.linear(x, weight, bias, options))

    def mlp(
        self,
        x: Any,
        layers: Sequence[tuple[Any, Any]],
        activation: Activation = "gelu",
        **options: Unpack[JobOptions],
    ) -> Array:
        """Linear layers, given as (weight, bias or None), with the activation between them, not after the last."""
        return self._array(programs.mlp(x, layers, activation, options))

    def attention(
        self, query: Any, key: Any, value: Any, *, causal: bool = False, **options: Unpack[JobOptions]
    ) -> Array:
        """softmax(query · keyᵀ / √d) · value of one head: (M, d), (N, d), (N, e) → (M, e).

        `causal`: row m sees the first m + 1 keys only. `key` is an array here: it is turned before it is sent.
        """
        return self._array(programs.attention(query, key, value, causal, options))

    def dot(self, a: Any, b: Any, **options: Unpack[JobOptions]) -> Number:
        """Sum of the products of two arrays of one shape."""
        return self._number(programs.dot(a, b, options))

    def sum(self, a: Any, **options: Unpack[JobOptions]) -> Number:
        """Sum of all elements."""
        return self._number(programs.total(a, options))

    def mean(self, a: Any, **options: Unpack[JobOptions]) -> Number:
        """Mean of all elements; NaN for none."""
        return self._number(programs.mean(a, options))

    def norm(self, a: Any, **options: Unpack[JobOptions]) -> Number:
        """Euclidean norm of all elements."""
        return self._number(programs.norm(a, options))

    def matmul_resident(self, A: Any, weight: str | TensorView, **options: Unpack[JobOptions]) -> Array:
        """`A` times a tensor that `upload_weight` (or `put`) keeps on the pool; it travels to each worker once."""
        return self._kernel("matmul", 1.0, options, a=A, b=Named(weight) if isinstance(weight, str) else weight)
