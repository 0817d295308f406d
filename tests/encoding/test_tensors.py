"""Tensors of PyTorch travel by its documented interface: here one that stands in for it, since it takes gigabytes."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from moregpu.encoding import Malformed, Unencodable, decode, encode, joined


class DType:
    """`torch.dtype`."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """`torch.Tensor`, on a NumPy array: what is documented of the methods that the encoding calls."""

    def __init__(
        self,
        array: Any,
        layout: str = "strided",
        is_quantized: bool = False,
        is_conj: bool = False,
        is_meta: bool = False,
    ):
        self.array = array
        self.layout, self.is_quantized, self.requires_grad = layout, is_quantized, False
        self.is_conj, self.is_meta = is_conj, is_meta

    @property
    def dtype(self) -> DType:
        return getattr(sys.modules["torch"], self.array.dtype.name)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def detach(self) -> Tensor:
        return Tensor(self.array, is_conj=self.is_conj)

    def resolve_conj(self) -> Tensor:
        return Tensor(self.array.conj()) if self.is_conj else self

    def resolve_neg(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array))

    def reshape(self, *shape: Any) -> Tensor:
        return Tensor(self.array.reshape(*shape))

    def numel(self) -> int:
        return self.array.size

    def view(self, kind: DType) -> Tensor:
        if self.is_conj:
            raise RuntimeError("torch.Tensor.view is not supported for conjugate view tensors")
        if not self.array.size and self.array.dtype.name != kind.name:
            raise RuntimeError("self.stride(-1) must be 1 to view Byte as Float, but got 0")
        return Tensor(self.array.view(kind.name))

    def numpy(self) -> Any:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return self.array

    def requires_grad_(self, wanted: bool) -> Tensor:
        if wanted and self.array.dtype.kind not in "fc":
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        self.requires_grad = wanted
        return self


Tensor.__module__ = "torch"


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    stand_in: Any = ModuleType("torch")
    stand_in.Tensor, stand_in.dtype, stand_in.strided = Tensor, DType, "strided"
    for name in ("float32", "float64", "complex64", "int64", "uint8", "bool"):
        setattr(stand_in, name, DType(name))

    def from_numpy(array: Any) -> Tensor:
        assert array.flags.writeable, "PyTorch warns of an array that it may not write to"
        return Tensor(array)

    stand_in.from_numpy = from_numpy
    stand_in.empty = lambda size, dtype: Tensor(np.empty(size, dtype.name))
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    return stand_in


def there_and_back(value: Any, buffer: type = bytearray) -> Any:
    return decode(buffer(joined(encode(value))))


@pytest.mark.parametrize("buffer", [bytearray, bytes])
@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7, np.int64), np.zeros((0, 4)), np.array([True, False])],
    ids=["matrix", "a number", "empty", "flags"],
)
def test_a_tensor_comes_out_with_its_type_its_shape_and_its_values(array: Any, buffer: type) -> None:
    found = there_and_back({"weight": [Tensor(array)]}, buffer)["weight"][0]
    assert isinstance(found, Tensor)
    assert found.array.dtype == array.dtype
    assert found.shape == array.shape
    assert np.array_equal(found.array, array)
    assert found.array.flags.writeable


def test_a_tensor_that_lies_across_its_memory_comes_out_as_it_reads() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert np.array_equal(there_and_back(Tensor(array)).array, array)


def test_a_tensor_that_is_conjugated_as_it_is_read_comes_out_as_it_reads() -> None:
    array = np.array([1 + 2j], np.complex64)
    assert there_and_back(Tensor(array, is_conj=True)).array == [1 - 2j]


def test_a_tensor_without_data_is_refused() -> None:
    with pytest.raises(Unencodable, match="without data"):
        encode(Tensor(np.ones(2), is_meta=True))


def test_whether_it_wants_a_gradient_travels_too() -> None:
    assert there_and_back(Tensor(np.ones(2)).requires_grad_(True)).requires_grad
    assert not there_and_back(Tensor(np.ones(2))).requires_grad


@pytest.mark.parametrize("how", [{"layout": "sparse_coo"}, {"is_quantized": True}])
def test_what_is_not_plain_numbers_is_refused_with_what_to_send(how: Any) -> None:
    with pytest.raises(Unencodable, match="dense form"):
        encode(Tensor(np.ones(2), **how))


def test_a_tensor_where_pytorch_is_missing_says_so_and_one_of_an_unknown_type_is_malformed(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = bytearray(joined(encode(Tensor(np.ones(2, np.float32)))))
    kind = torch.float32
    torch.float32 = "no dtype"
    with pytest.raises(Malformed):
        decode(sent)
    torch.float32 = kind
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Exception, match="PyTorch is not installed here"):
        decode(sent)
