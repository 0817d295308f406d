"""Doors to named tensors: each submitter has its own names; an admin too."""

from __future__ import annotations

from moregpu.blobs.format import sealed_size
from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.residents import Resident
from moregpu.coordinator.store.protocol import BlobRow
from moregpu.errors import InvalidRequest
from moregpu.jobs import Blob, Tensor
from moregpu.wire.api import TensorRequest, TensorView
from moregpu.wire.messages import MAX_INLINE_BYTES


async def put(ask: Ask) -> Answer:
    """Name a tensor: its blob stays here, however old, until the name is let go."""
    wanted = await ask.decoded(TensorRequest)
    await check_tensor(ask, wanted.tensor)
    row = Resident(name=wanted.name, tensor=wanted.tensor, created_at=ask.services.clock.wall())
    await ask.services.residents.put(ask.who.id, row)
    return ask.answer(_view(row), 201)


async def list_tensors(ask: Ask) -> Answer:
    """The caller's named tensors, by name."""
    return ask.answer([_view(row) for row in ask.services.residents.of(ask.who.id)])


async def show(ask: Ask) -> Answer:
    """One of the caller's."""
    return ask.answer(_view(ask.services.residents.get(ask.who.id, ask.params["name"])))


async def drop(ask: Ask) -> Answer:
    """Let a name go; its blob goes a day after no job names it."""
    await ask.services.residents.drop(ask.who.id, ask.params["name"])
    return Answer(status=204)


async def check_tensor(ask: Ask, tensor: Tensor) -> None:
    """Raise `InvalidRequest` unless the tensor's bytes are here, all of them, and the caller's."""
    if tensor.region is not None:
        raise InvalidRequest("a named tensor is a whole one", "leave its region out")
    blob = tensor.data
    held = blob.size_bytes if isinstance(blob, Blob) else len(blob)
    if held != tensor.whole_bytes:
        raise InvalidRequest(
            f"{tensor.dtype} of shape {tensor.shape} takes {tensor.whole_bytes} bytes; {held} are named"
        )
    if not isinstance(blob, Blob):
        if held > MAX_INLINE_BYTES:
            raise InvalidRequest(f"{held} bytes inline; at most {MAX_INLINE_BYTES} may be", "upload it: POST /v1/blobs")
        return
    services = ask.services
    size = services.blobs.size(blob.digest)
    if size is None or not await services.desk.store.blob_readable(blob.digest, ask.who.id):
        raise InvalidRequest(f"there is no blob {blob.digest[:12]}… of yours here", "upload it first: POST /v1/blobs")
    if size != sealed_size(blob.size_bytes):
        raise InvalidRequest(f"the blob {blob.digest[:12]}… does not hold {blob.size_bytes} bytes")
    # The result of a job becomes the caller's own blob: it outlives the job.
    await services.desk.store.add_blob(
        BlobRow(digest=blob.digest, sealed_bytes=size, principal=ask.who.id, created_at=services.clock.wall())
    )


def _view(row: Resident) -> TensorView:
    return TensorView(
        name=row.name,
        dtype=row.tensor.dtype,
        shape=row.tensor.shape,
        size_bytes=row.tensor.whole_bytes,
        created_at=row.created_at,
        tensor=row.tensor,
    )
