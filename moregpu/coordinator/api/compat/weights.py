"""Resident weights of MoreGPU 1.x: named tensors here, kept sealed, that workers find in their caches."""

from __future__ import annotations

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.compat.body import WeightBody, read_body, said, whole
from moregpu.coordinator.api.compat.sealing import kept
from moregpu.coordinator.api.compat.shown import shown
from moregpu.coordinator.api.compat.spec import ITEM_BYTES, Weight
from moregpu.coordinator.residents import Resident
from moregpu.errors import InvalidRequest, NotFound
from moregpu.jobs import Tensor

_FOLDER = "weights/"
_MAX_ID = 150
_ITEM = {"f32": 4, "f16": 2}


async def put(ask: Ask) -> Answer:
    """Keep a weight: rows × cols of float32, or of float16, which is widened at once: 1.x sums in float32, too."""
    body = await read_body(ask, WeightBody)
    if not body.id or len(body.id) > _MAX_ID:
        raise InvalidRequest(f"a weight's id has 1 to {_MAX_ID} characters")
    dtype = body.dtype or "f32"
    item = _ITEM.get(dtype)
    if item is None:
        raise InvalidRequest(f"unknown dtype {said(dtype)}", "f32 or f16")
    rows, columns = whole(body.rows, "rows"), whole(body.cols, "cols")
    if not rows * columns:
        raise InvalidRequest(f"{rows} × {columns} is no weight: rows and cols are from 1 on")
    if len(body.data) != rows * columns * item:
        raise InvalidRequest(f"data holds {len(body.data)} bytes; rows × cols of {dtype} take {rows * columns * item}")
    data = body.data if item == ITEM_BYTES else await ask.services.offload(lambda: _widened(body.data))
    tensor = await kept(ask, Tensor(dtype="float32", shape=(rows, columns), data=data), inline_bytes=0)
    note = {"dtype": dtype, "worker": (body.worker or "pool")[:200]}
    row = Resident(name=_FOLDER + body.id, tensor=tensor, created_at=ask.services.clock.wall(), note=note)
    await ask.services.residents.put(ask.who.id, row)
    return shown({"ok": True} | _view(row))


async def listed(ask: Ask) -> Answer:
    """The caller's weights."""
    rows = ask.services.residents.of(ask.who.id)
    return shown([_view(row) for row in rows if row.name.startswith(_FOLDER) and _is_matrix(row)])


def weight_of(ask: Ask, id: str | None) -> Weight | None:
    """The weight that `bRef` names. Raises `InvalidRequest`: 1.x knows 400 there."""
    if id is None:
        return None
    try:
        row = ask.services.residents.get(ask.who.id, _FOLDER + id)
    except NotFound as error:
        raise InvalidRequest(f"there is no weight {said(id)}", "POST /weights keeps one") from error
    if not _is_matrix(row):
        raise InvalidRequest(f"{said(id)} names a tensor of shape {row.tensor.shape}", "a weight has rows and columns")
    rows, columns = row.tensor.shape
    return Weight(tensor=row.tensor, rows=rows, columns=columns)


def _is_matrix(row: Resident) -> bool:
    """Whether it can be a weight: `/v1/tensors` keeps others under such names too."""
    return len(row.tensor.shape) == 2 and row.tensor.whole_bytes > 0


def _view(row: Resident) -> dict[str, object]:
    rows, columns = row.tensor.shape
    return {
        "id": row.name.removeprefix(_FOLDER),
        "worker": row.note.get("worker", "pool"),
        "rows": rows,
        "cols": columns,
        "dtype": row.note.get("dtype", "f32"),
    }


def _widened(data: bytes) -> bytes:
    import numpy as np

    return np.frombuffer(data, "<f2").astype("<f4").tobytes()
