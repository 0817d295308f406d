"""What kinds of job a token may submit: checked at every door that takes a job, before anything else of it."""

from __future__ import annotations

from collections.abc import Sequence

from moregpu.coordinator.protocol import Principal
from moregpu.errors import Forbidden, InvalidRequest
from moregpu.workloads import KINDS, JobSpec, kind_of


def admit_spec(who: Principal, spec: JobSpec) -> None:
    """Raise `Forbidden` where this token's scopes do not hold the job's kind. No scopes named: all kinds."""
    kind = kind_of(spec)
    if who.kinds and kind not in who.kinds:
        raise Forbidden(
            f"this token is for jobs of kind {', '.join(who.kinds)}, not {kind}", "ask for one whose scopes hold it"
        )


def known_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Kinds that exist, each once; raises `InvalidRequest`."""
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidRequest(f"there is no kind of job called {kind[:40]!r}", f"kinds: {', '.join(KINDS)}")
    return tuple(dict.fromkeys(kinds))
