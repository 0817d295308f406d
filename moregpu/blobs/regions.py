"""Parts of arrays as ranges of bytes, without NumPy: what a task needs of a tensor is all that is read and opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from moregpu.blobs.format import RECORD_BYTES
from moregpu.errors import InvalidJob
from moregpu.jobs import ITEM_BYTES, Blob, Tensor, size_bytes

WINDOW_BYTES = 8 * RECORD_BYTES
"""Neighbouring pieces are read together up to this span, since a record is opened as a whole anyway."""

ReadInto = Callable[[int, int, memoryview], None]
"""Puts the plain bytes [start, stop) into a view of that length."""


def spans(shape: Sequence[int], dtype: str, region: Sequence[tuple[int, int]] | None) -> Iterator[tuple[int, int]]:
    """Byte ranges [start, stop) of a region of a row-major array, in order, neighbours merged.

    Raises `InvalidJob` when the region does not lie within the shape.
    """
    item = ITEM_BYTES[dtype]
    ranges = [(0, length) for length in shape] if region is None else list(region)
    if len(ranges) != len(shape) or any(
        not 0 <= start <= stop <= length for (start, stop), length in zip(ranges, shape, strict=True)
    ):
        raise InvalidJob(f"The region {region} does not lie within the shape {tuple(shape)}")
    if any(start == stop for start, stop in ranges):
        return
    # Trailing axes that are taken whole are contiguous with the last axis that is not.
    inner = len(shape)
    block = item
    while inner and ranges[inner - 1] == (0, shape[inner - 1]):
        inner -= 1
        block *= shape[inner]
    if not inner:
        yield 0, block
        return
    strides = [0] * inner
    stride = block
    for axis in range(inner - 1, -1, -1):
        strides[axis] = stride
        stride *= shape[axis]
    low, high = ranges[inner - 1]
    for offset in _offsets(strides[:-1], ranges[: inner - 1]):
        yield offset + low * block, offset + high * block


def read_part(tensor: Tensor, read: ReadInto, out: bytearray | memoryview | None = None) -> bytearray | memoryview:
    """Bytes of a tensor's region (or of all of it), row-major, in one buffer.

    Args:
        tensor: inline or in a blob.
        read: reads plain bytes of the tensor's blob; not called for inline tensors.
        out: buffer of `tensor.part_bytes` bytes; a new one by default.

    Raises:
        InvalidJob: data, shape and region do not fit each other.
    """
    held = len(tensor.data) if isinstance(tensor.data, bytes) else tensor.data.size_bytes
    if held != size_bytes(tensor.dtype, tensor.shape):
        raise InvalidJob(f"A tensor {tensor.dtype} {tensor.shape} takes {tensor.whole_bytes} bytes; there are {held}")
    buffer = bytearray(tensor.part_bytes) if out is None else out
    target = memoryview(buffer).cast("B")
    if len(target) != tensor.part_bytes:
        raise ValueError(f"{tensor.part_bytes} bytes do not go into {len(target)}")
    pieces = spans(tensor.shape, tensor.dtype, tensor.region)
    if isinstance(tensor.data, Blob):
        _read_pieces(pieces, read, target)
    else:
        plain, at = memoryview(tensor.data), 0
        for start, stop in pieces:
            target[at : at + stop - start] = plain[start:stop]
            at += stop - start
    return buffer


def _read_pieces(pieces: Iterator[tuple[int, int]], read: ReadInto, target: memoryview) -> None:
    scratch = bytearray()
    group: list[tuple[int, int]] = []
    at = 0

    def flush() -> None:
        nonlocal at, scratch
        if len(group) == 1:
            start, stop = group[0]
            read(start, stop, target[at : at + stop - start])
            at += stop - start
        elif group:
            low, high = group[0][0], group[-1][1]
            if len(scratch) < high - low:
                scratch = bytearray(high - low)
            window = memoryview(scratch)
            read(low, high, window[: high - low])
            for start, stop in group:
                target[at : at + stop - start] = window[start - low : stop - low]
                at += stop - start
        group.clear()

    for start, stop in pieces:
        if group and (start - group[-1][1] >= RECORD_BYTES or stop - group[0][0] > WINDOW_BYTES):
            flush()
        group.append((start, stop))
    flush()


def _offsets(strides: Sequence[int], ranges: Sequence[tuple[int, int]]) -> Iterable[int]:
    """Every sum of one multiple of each stride, in row-major order."""
    if not strides:
        return (0,)
    (low, high), stride = ranges[0], strides[0]
    bases = range(low * stride, high * stride, stride)
    if len(strides) == 1:  # columns of a matrix: four times as fast as the general way
        return bases
    return (base + rest for base in bases for rest in _offsets(strides[1:], ranges[1:]))
