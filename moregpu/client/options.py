"""The options that every call of the pool takes: the common fields of a job, typed for editors."""

from __future__ import annotations

from typing import TypedDict

from moregpu.jobs import Check, Engine


class JobOptions(TypedDict, total=False):
    """Fields of `moregpu.jobs.JobCommon`; what is left out takes the default there."""

    name: str
    group: str | None
    priority: int
    after: tuple[str, ...]
    check: Check
    engine: Engine
    device: str | None
    memory_bytes: int | None
    time_limit_s: float | None
    retries: int
    keep_s: float
    seed: int | None
