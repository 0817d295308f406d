"""Plain arrays of a caller that cannot seal: sealed here, in its name, before anything else happens to them."""

from __future__ import annotations

import os

import msgspec

from moregpu.coordinator.api.ask import Ask
from moregpu.coordinator.opening import SealedWriter
from moregpu.coordinator.store.protocol import BlobRow
from moregpu.jobs import Tensor

INLINE_BYTES = 16 * 1024
"""Smaller ones travel inside the job."""


async def kept(ask: Ask, tensor: Tensor, inline_bytes: int = INLINE_BYTES) -> Tensor:
    """The same tensor, its bytes in a sealed blob of the caller's. Raises `OutOfSpace`."""
    if tensor.whole_bytes <= inline_bytes or not isinstance(tensor.data, bytes):
        return tensor
    writer = SealedWriter(ask.services.blobs, ask.who.id, os.urandom, inline_bytes=0)
    data = tensor.data

    def work() -> Tensor:
        try:
            writer.begin("input", tensor.dtype, tensor.shape)
            writer.write(data)
            return writer.finish()[0]["input"]
        except BaseException:
            writer.abort()
            raise

    sealed = await ask.services.offload(work)
    wall = ask.services.clock.wall()
    for digest, length in writer.written:
        row = BlobRow(digest=digest, sealed_bytes=length, principal=ask.who.id, created_at=wall)
        await ask.services.desk.store.add_blob(row)
    return msgspec.structs.replace(tensor, data=sealed.data)
