"""Bugs planted on purpose, to see the simulation find them: each is switched on here, never in shipped code."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from moregpu.coordinator import judge, ledger, transitions
from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.commits import CommittedBook
from moregpu.coordinator.store.protocol import Accepted, SignedBatch, TaskRow
from moregpu.coordinator.transitions import Standing
from moregpu.jobs import Evidence, TaskState
from moregpu.wire.messages import LeaseRef
from moregpu.workloads import workload


@contextmanager
def _instead(owner: Any, name: str, value: Any) -> Generator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def fencing_off() -> Generator[None]:
    """Whoever brings a result of a task that is not done is believed: token, attempt and worker are not looked at."""

    def standing(task: TaskRow | None, ref: LeaseRef, worker: str) -> Standing:
        honest = _standing(task, ref, worker)
        if task is None or honest is not Standing.FENCED:
            return honest
        return {TaskState.LEASED: Standing.HELD, TaskState.WAITING: Standing.BACK}.get(task.state, honest)

    _standing = transitions.standing
    with _instead(transitions, "standing", standing), _instead(judge, "_was_leased", lambda task, worker, ref: True):
        yield


@contextmanager
def acceptance_check_off() -> Generator[None]:
    """Outputs are called recomputed without being looked at."""

    class Blind:
        def __init__(self, kind: str) -> None:
            self._kind = workload(kind)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._kind, name)

        def check(self, *_: Any) -> Evidence:
            return Evidence(kind="recomputed")

    with _instead(judge, "workload", Blind):
        yield


@contextmanager
def acknowledged_before_commit() -> Generator[None]:
    """Nobody waits for the disk."""

    async def settle(self: CommittedBook) -> None:
        self._must_be_open()
        self._told_later()  # type: ignore[attr-defined]

    with _instead(CommittedBook, "settle", settle):
        yield


@contextmanager
def never_reaped() -> Generator[None]:
    """Leases never run out."""
    with _instead(Book, "reap", lambda self, now, wall: []):
        yield


@contextmanager
def accepted_again_after_replay() -> Generator[None]:
    """A resend of what was accepted counts once more."""
    original: Callable[..., Any] = Book.complete

    def complete(
        self: Book, worker: str, ended: Sequence[Any], batch: SignedBatch | None, wall: float
    ) -> Any:  # fmt: skip
        again = [
            entry
            for entry in ended
            if isinstance(entry, Accepted)
            and transitions.standing(self.tasks.get(entry.ref.task), entry.ref, worker) is Standing.ACCEPTED
        ]
        answers = original(self, worker, ended, batch, wall)
        for entry in again:
            task = self.tasks.rows[entry.ref.task]
            number = self._keep_batch(worker, batch)
            row = ledger.next_row(
                *self.head,
                writer=self.writer,
                batch=number,
                index=entry.index,
                job=task.job,
                task=task.id,
                attempt=entry.ref.attempt,
                worker=worker,
                statement=entry.statement,
            )
            self.ledger.put((row.writer, row.row), row)
        return answers

    with _instead(Book, "complete", complete):
        yield


@contextmanager
def once_forgotten() -> Generator[None]:
    """A call that may run once goes to somebody else when nobody knows whether it ran."""
    kind = workload("function")
    cut: Callable[..., Any] = kind.cut
    with _instead(kind, "cut", lambda *given: replace(cut(*given), once=False)):
        yield


PLANTED: dict[str, Callable[[], Any]] = {
    "fencing off": fencing_off,
    "acceptance check off": acceptance_check_off,
    "acknowledged before commit": acknowledged_before_commit,
    "lease never reaped": never_reaped,
    "accepted again after replay": accepted_again_after_replay,
    "once forgotten": once_forgotten,
}
