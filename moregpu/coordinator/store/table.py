"""Rows in memory with a journal: what changed since the last commit, and the way back.

Every change of a table goes through `put` or `drop`, which keep the indices (the `watch` of a table) and write the
journal. A commit takes the journal; when it fails, undoing the journal backwards restores rows and indices alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from moregpu.wire.api import Event

Key = TypeVar("Key")
Row = TypeVar("Row")
Of = TypeVar("Of")
Told = TypeVar("Told")


class Change(NamedTuple):
    """One row before and after; None where there was or is none."""

    table: Table[Any, Any]
    key: Any
    old: Any
    new: Any


class Transaction(NamedTuple):
    """What is to be committed together."""

    changes: list[Change]
    events: list[Event]

    def coalesced(self) -> list[Change]:
        """One change a row, from the first state before to the last after: table by table, in order of first touch."""
        merged: dict[Table[Any, Any], dict[Any, Change]] = {}
        for change in self.changes:
            table, key, _, new = change
            rows = merged.get(table)
            if rows is None:
                rows = merged[table] = {}
            earlier = rows.get(key)
            rows[key] = change if earlier is None else Change(table, key, earlier.old, new)
        return [
            change
            for rows in merged.values()
            for change in rows.values()
            if change.old is not None or change.new is not None
        ]


class Journal:
    """Changes and events of the open transaction, in order."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.events: list[Event] = []
        self.seq = 0
        """Sequence of the newest event, committed or not."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.events)

    def event(self, event_type: str, id: str, at: float, data: dict[str, Any]) -> Event:
        """Number an event and keep it with the open transaction."""
        self.seq += 1
        event = Event(type=event_type, id=id, at=at, seq=self.seq, data=data)
        self.events.append(event)
        return event

    @property
    def last_event(self) -> Event | None:
        """Newest event of the open transaction."""
        return self.events[-1] if self.events else None

    def amend_event(self, data: dict[str, Any]) -> None:
        """Say more in the newest event of the open transaction, which nobody has seen yet."""
        self.events[-1] = replace(self.events[-1], data=data)

    def take(self) -> Transaction:
        """Close the open transaction and begin the next."""
        transaction = Transaction(self.changes, self.events)
        self.changes, self.events = [], []
        return transaction

    def step(self, take: Callable[[Of], Told], of: Of) -> Told:
        """Take a step; undo what it did when it raises: a call changes all or nothing."""
        changes, events, last = len(self.changes), len(self.events), self.last_event
        try:
            return take(of)
        except BaseException:
            undo(self.changes[changes:])
            self.seq -= len(self.events) - events
            del self.changes[changes:], self.events[events:]
            if last is not None:
                self.events[-1] = last
            raise


def undo(changes: list[Change]) -> None:
    """Take changes back, newest first."""
    for change in reversed(changes):
        change.table.restore(change.key, change.old)


class Table(Generic[Key, Row]):
    """Rows by key."""

    def __init__(self, name: str, journal: Journal, watch: Callable[[Row | None, Row | None], None] | None = None):
        self.name = name
        self.rows: dict[Key, Row] = {}
        self._journal = journal
        self._watch = watch
        self._watch_keys: Callable[[Key, bool], None] | None = None

    def watch_keys(self, watch: Callable[[Key, bool], None]) -> None:
        """Call `watch(key, there)` whenever a key comes or goes."""
        self._watch_keys = watch

    def get(self, key: Key) -> Row | None:
        """One row, or None."""
        return self.rows.get(key)

    def put(self, key: Key, row: Row) -> Row:
        """Add or replace a row, to be committed."""
        old = self.rows.get(key)
        self._journal.changes.append(Change(self, key, old, row))
        self.rows[key] = row
        self._changed(key, old, row)
        return row

    def drop(self, key: Key) -> None:
        """Remove a row, to be committed."""
        old = self.rows.get(key)
        if old is not None:
            self._journal.changes.append(Change(self, key, old, None))
            self.restore(key, None)

    def restore(self, key: Key, row: Row | None) -> None:
        """Set a row as it is, or was, on disk; also for what is never written (a lease's time). Not journalled."""
        old = self.rows.get(key)
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        self._changed(key, old, row)

    def _changed(self, key: Key, old: Row | None, row: Row | None) -> None:
        if self._watch is not None:
            self._watch(old, row)
        if self._watch_keys is not None and (old is None) != (row is None):
            self._watch_keys(key, row is not None)
