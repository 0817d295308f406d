"""The options that every call of the pool takes: the common fields of a job, typed for editors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypedDict

from moregpu.errors import InvalidJob
from moregpu.jobs import Check, Engine


class HasId(Protocol):
    """A job's handle or view."""

    @property
    def id(self) -> str:
        """The job's name, `j-…`."""
        ...


class JobOptions(TypedDict, total=False):
    """Fields of `moregpu.jobs.JobCommon`; what is left out takes the default there."""

    name: str
    group: str | None
    priority: int
    after: str | HasId | Iterable[str | HasId] | None
    """Jobs that must be done first: ids, handles, or views; one, or several."""
    check: Check
    engine: Engine
    device: str | None
    memory_bytes: int | None
    time_limit_s: float | None
    retries: int
    keep_s: float
    seed: int | None


def fields_of(options: JobOptions) -> dict[str, Any]:
    """The options as a JobSpec has them. Raises `InvalidJob` for an `after` that names no jobs."""
    fields: dict[str, Any] = dict(options)
    if "after" in fields:
        fields["after"] = _ids(fields["after"])
    return fields


def _ids(after: Any) -> tuple[str, ...]:
    if after is None:
        return ()
    if isinstance(after, str) or hasattr(after, "id"):
        after = (after,)
    try:
        return tuple(_id(one) for one in after)
    except TypeError:
        raise _no_job(after) from None


def _id(job: object) -> str:
    named = job if isinstance(job, str) else getattr(job, "id", None)
    if not isinstance(named, str):
        raise _no_job(job)
    return named


def _no_job(what: object) -> InvalidJob:
    return InvalidJob(
        f"`after` names jobs, and {type(what).__name__} is none", 'after="j-…", after=job, or a list of them'
    )
