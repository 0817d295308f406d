"""Tiny results, looked at together: those in perfect order go through at once, all others are left to be judged alone.

Most results of a message are alike: small tensors inside the message, one operation, an honest worker. What each of
them costs by itself is mostly the asking, so here each question is asked as shortly as it can be, and of the
computation once for all. Nobody is refused here: whatever is not just as it should be gets its day before `judge`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moregpu.coordinator.cases import Case, Sound
from moregpu.coordinator.opening import shaped
from moregpu.errors import DigestMismatch
from moregpu.jobs import Evidence, TaskState, Tensor
from moregpu.wire.statement import Described, OutputsDigest, Ran, before_ran, content_digest, described, read_ran
from moregpu.workloads import workload
from moregpu.workloads.protocol import Inline

Plain = Mapping[str, bytes]


def look(pool: bytes, worker: str, cases: Sequence[Case]) -> dict[int, Sound]:
    """What was found of cases whose message is signed, by their index in it: only those that are right are here."""
    by_kind: dict[str, list[tuple[Case, Ran, Inline]]] = {}
    for case in cases:
        inline = _inline(case)
        if inline is None:
            continue
        ran = _is_stated(pool, worker, case, inline)
        if ran is not None:
            by_kind.setdefault(case.assignment.kind, []).append((case, ran, inline))
    found: dict[int, Sound] = {}
    for kind, members in by_kind.items():
        evidence = workload(kind).check_alike([inline for _, _, inline in members])
        for (case, ran, inline), seen in zip(members, evidence, strict=True):
            if seen is not None:
                found[case.index] = _sound(case, ran, inline, seen)
    return found


def _inline(case: Case) -> Inline | None:
    """The bytes of a case, if all of them are here, just as planned, and nothing about it is out of the ordinary."""
    task, entry, check = case.task, case.entry, case.job.spec.check
    if entry.error is not None or task.votes or task.state is TaskState.DONE or check in ("none", "agree"):
        return None
    spec = task.spec
    inputs = _given(case.assignment.inputs)
    outputs = _given(entry.outputs)
    if inputs is None or outputs is None or outputs.keys() != spec.outputs.keys():
        return None
    for name, planned in spec.outputs.items():
        if not planned.admits(entry.outputs[name].dtype, entry.outputs[name].shape):
            return None
    return Inline(spec, inputs, outputs)


def _given(tensors: Mapping[str, Tensor]) -> Plain | None:
    """Inline bytes of whole tensors, as long as they should be."""
    plain: dict[str, bytes] = {}
    for name, tensor in tensors.items():
        data = tensor.data
        if not isinstance(data, bytes) or tensor.region is not None or len(data) != tensor.whole_bytes:
            return None
        plain[name] = data
    return plain


def _is_stated(pool: bytes, worker: str, case: Case, inline: Inline) -> Ran | None:
    """How it ran, if the signed statement is byte for byte what we write about these inputs and outputs."""
    given, claimed = case.assignment, case.entry.statement
    before = before_ran(
        given,
        pool=pool,
        worker=worker,
        inputs=_described(given.digest_key, given.inputs, inline.inputs),
        outputs=_described(given.digest_key, case.entry.outputs, inline.outputs),
    )
    if not claimed.startswith(before):
        return None
    try:
        return read_ran(claimed[len(before) :])
    except DigestMismatch:
        return None


def _described(key: bytes, tensors: Mapping[str, Tensor], plain: Plain) -> dict[str, Described]:
    return {
        name: described(tensor, content_digest(key, tensor.dtype, tensor.shape, plain[name]))
        for name, tensor in tensors.items()
    }


def _sound(case: Case, ran: Ran, inline: Inline, evidence: Evidence) -> Sound:
    content, tally = "", workload(case.assignment.kind).tally()
    if tally is not None:
        for output in inline.outputs.values():
            tally.add(output)
    if case.is_whole:
        outputs, whole = shaped(case.entry.outputs, case.job.plan), OutputsDigest()
        for name in sorted(outputs):
            whole.begin(name, outputs[name].dtype, outputs[name].shape)
            whole.update(inline.outputs[name])
        content = whole.hex()
    failed = 0 if tally is None else tally.failed
    return Sound(evidence=evidence, ran=ran, content=content, plain={}, failed_calls=failed)
