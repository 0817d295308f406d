"""Where a task's values lie: in a message, in shared memory, or open in a region of their own."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import msgspec
from blake3 import blake3

from moregpu.blobs.regions import read_part
from moregpu.errors import InvalidJob
from moregpu.jobs import Blob, Planned, Tensor, size_bytes
from moregpu.wire.messages import Assignment
from moregpu.wire.statement import Described, content_digest, described
from moregpu.worker.frames import Done, Place, RunTask
from moregpu.worker.memory import Region
from moregpu.worker.residents import Resident


def inline_outputs(
    assignment: Assignment, done: Done, raw: bytes | memoryview
) -> tuple[dict[str, Tensor], dict[str, Described]]:
    """Outputs that fit a message, and what the statement says about them."""
    outputs: dict[str, Tensor] = {}
    contents: dict[str, Described] = {}
    for name, place in done.outputs.items():
        value = bytes(raw[place.start : place.start + place.size_bytes])
        tensor = Tensor(dtype=place.dtype, shape=place.shape, data=value)
        outputs[name] = tensor
        content = content_digest(assignment.digest_key, place.dtype, place.shape, value)
        contents[name] = described(tensor, content)
    return outputs, contents


def view_of(raw: bytes | memoryview) -> Callable[[int, int], memoryview]:
    """A part of what came, by its start and size."""
    return lambda start, size: memoryview(raw)[start : start + size]


def inline_part(tensor: Tensor) -> bytes:
    """The bytes that are meant; raises `InvalidJob` where they do not fit the shape."""
    if isinstance(tensor.data, Blob):
        raise InvalidJob("a tiny task names a blob")
    if tensor.region is None and len(tensor.data) == tensor.whole_bytes:
        return tensor.data
    return bytes(read_part(tensor, _no_blob))


def _no_blob(_start: int, _stop: int, _out: memoryview) -> None:
    raise InvalidJob("a tiny task names a blob")


def input_place(tensor: Tensor, start: int) -> Place:
    """The part of a tensor that a task wants, from `start` on."""
    return Place(
        dtype=tensor.dtype,
        shape=tensor.part_shape,
        start=start,
        size_bytes=tensor.part_bytes,
        whole_shape=tensor.shape,
        region=tensor.region,
    )


def resident_place(tensor: Tensor, resident: Resident) -> Place:
    """A part of a tensor that lies whole in a region of its own."""
    return msgspec.structs.replace(
        input_place(tensor, 0), size_bytes=tensor.whole_bytes, resident=resident.region.number
    )


def output_place(planned: Planned, start: int) -> Place:
    """A value that is to be made, from `start` on."""
    return Place(
        dtype=planned.dtype,
        shape=planned.shape,
        start=start,
        size_bytes=size_bytes(planned.dtype, planned.shape),
    )


def packed(outputs: Mapping[str, Planned]) -> dict[str, Place]:
    """Outputs one behind the other, as they follow the child's answer."""
    places: dict[str, Place] = {}
    start = 0
    for name, planned in outputs.items():
        places[name] = output_place(planned, start)
        start += places[name].size_bytes
    return places


def layout(assignment: Assignment, elsewhere: Container[str]) -> tuple[list[tuple[str, str]], list[int]]:
    """Names and sizes of a task's values, inputs first; those that lie `elsewhere` are left out."""
    names: list[tuple[str, str]] = []
    sizes: list[int] = []
    for name, tensor in assignment.inputs.items():
        if name not in elsewhere:
            names.append(("in", name))
            sizes.append(tensor.part_bytes)
    for name, planned in assignment.outputs.items():
        names.append(("out", name))
        sizes.append(size_bytes(planned.dtype, planned.shape))
    return names, sizes


def to_run(
    assignment: Assignment, number: int, inputs: dict[str, Place], outputs: dict[str, Place], region: Region | None
) -> RunTask:
    """What the child is told."""
    return RunTask(
        number=number,
        kind=assignment.kind,
        program=assignment.program,
        parameters=assignment.parameters,
        precision=assignment.precision,
        seed=assignment.seed or _seed_of(assignment),
        submitter=assignment.submitter,
        time_limit_s=assignment.time_limit_s,
        inputs=inputs,
        outputs=outputs,
        memory=None if region is None else region.number,
    )


def _seed_of(assignment: Assignment) -> int:
    """Of a function whose job names none: the same for each attempt of its task, another one for each task."""
    digest = blake3(assignment.task.encode()).digest(7) if assignment.kind == "function" else b""
    return int.from_bytes(digest, "little")
