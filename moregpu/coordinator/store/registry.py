"""Who and what the pool knows besides its jobs: workers, invites, client tokens, blobs, settings."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from moregpu.coordinator import trust
from moregpu.coordinator.store.protocol import BlobRow, InviteRow, TokenRow, UsageRow, WorkerRow
from moregpu.coordinator.store.table import Journal, Table

DAY_S = 86400.0

MAX_USED_BY = 16
"""Workers that an invite's row names: those that used it last, whatever invite they came by since."""


class Registry:
    """Their tables, and the steps that change them."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self.workers: Table[str, WorkerRow] = Table("worker", journal)
        self.invites: Table[str, InviteRow] = Table("invite", journal)
        self.tokens: Table[str, TokenRow] = Table("token", journal)
        self.blobs: Table[str, BlobRow] = Table("blob", journal)
        self.owners: Table[tuple[str, str], float] = Table("owner", journal)
        """(digest, principal) → when it was uploaded: two submitters may hold the same sealed bytes."""
        self.references: Table[tuple[str, str], str] = Table("reference", journal)
        """(digest, job) → submitter."""
        self.settings: Table[str, str] = Table("setting", journal)
        self.usage: Table[str, UsageRow] = Table("usage", journal)
        """Submitter → how much they used the pool, fading."""
        self._digests_of: dict[str, set[str]] = {}
        self._jobs_of: dict[str, set[str]] = {}
        self._loose: dict[str, dict[str, None]] = {}
        """Worker → its uploads that no job named when it was last asked for, oldest first."""
        self.references.watch_keys(self._watch_reference)
        self.owners.watch_keys(self._watch_owner)

    def tables(self) -> list[Table[Any, Any]]:
        """Every table here."""
        kept: list[Table[Any, Any]] = [self.workers, self.invites, self.tokens, self.blobs, self.owners]
        return [*kept, self.references, self.settings, self.usage]

    # ---- workers and invites

    def enrol(self, worker: WorkerRow, invite: str, secret_hash: bytes, wall: float) -> WorkerRow | None:
        """Consume one use of an invite; owner, groups, kinds and approval come from the invite alone.

        The same worker presenting an invite that it already used gets its row back, even when the invite is used up or
        past its time since: its link may have dropped before it heard.
        """
        row = self.invites.get(invite)
        if row is None or not hmac.compare_digest(row.secret_hash, secret_hash):
            return None
        known = self.workers.get(worker.id)
        if known is not None and (known.revoked or known.wi_pub != worker.wi_pub):
            return None
        if worker.id in row.used_by or (known is not None and known.invite == row.id):
            return known
        if row.uses_left <= 0 or not wall < row.expires_at:
            return None
        # Who used it last says so in its own row: named here as well they would be written anew at each use, all of
        # a fleet that comes by one invite.
        used_by = (*row.used_by, worker.id)[-MAX_USED_BY:]
        self.invites.put(invite, replace(row, uses_left=row.uses_left - 1, used_by=used_by))
        enrolled = replace(
            worker,
            owner=row.owner or row.id,
            groups=row.groups,
            kinds_allowed=row.kinds,
            approved=row.auto_approve,
            invite=row.id,
            enrolled_at=wall,
            seen_at=max(worker.seen_at, wall),
            tasks_done=known.tasks_done if known is not None else 0,
            tasks_failed=known.tasks_failed if known is not None else 0,
            busy_s=known.busy_s if known is not None else 0.0,
            trust=known.trust if known is not None else worker.trust,
        )
        self.workers.put(worker.id, enrolled)
        self._journal.event("invite.used", invite, wall, {"worker": worker.id, "uses_left": row.uses_left - 1})
        self._worker_event("worker.enrolled", enrolled, wall)
        return enrolled

    def save_worker(self, worker: WorkerRow, event: str, wall: float) -> WorkerRow:
        """Replace a worker's row. A revocation is for good, and counts never go back.

        Whoever saves read the row some time ago; results may have been counted since.
        """
        known = self.workers.get(worker.id)
        if known is not None:
            worker = replace(
                worker,
                revoked=worker.revoked or known.revoked,
                tasks_done=max(worker.tasks_done, known.tasks_done),
                tasks_failed=max(worker.tasks_failed, known.tasks_failed),
                busy_s=max(worker.busy_s, known.busy_s),
                trust=trust.newer(worker.trust, known.trust),
            )
        if worker == known:
            return worker
        self.workers.put(worker.id, worker)
        if event:
            self._worker_event(event, worker, wall)
        return worker

    def _worker_event(self, event: str, worker: WorkerRow, wall: float) -> None:
        data = {
            "name": worker.name,
            "owner": worker.owner,
            "approved": worker.approved,
            "revoked": worker.revoked,
            "paused": worker.paused,
            "draining": worker.draining,
            "quarantined": worker.trust.quarantined,
        }
        self._journal.event(event, worker.id, wall, data)

    def add_invite(self, invite: InviteRow) -> None:
        """Keep an invite."""
        self.invites.put(invite.id, invite)
        data = {"owner": invite.owner, "uses_left": invite.uses_left, "expires_at": invite.expires_at}
        self._journal.event("invite.created", invite.id, invite.created_at, data)

    def live_invites(self, wall: float) -> list[InviteRow]:
        """Those that could still be used, and used ones for a day; oldest first."""
        shown = [
            row
            for row in self.invites.rows.values()
            if (row.uses_left > 0 and wall < row.expires_at) or (row.used_by and wall < row.created_at + DAY_S)
        ]
        return sorted(shown, key=lambda row: (row.created_at, row.id))

    def drop_invite(self, id: str, wall: float) -> bool:
        """Withdraw an invite."""
        if id not in self.invites.rows:
            return False
        self.invites.drop(id)
        self._journal.event("invite.withdrawn", id, wall, {})
        return True

    # ---- blobs

    def add_blob(self, blob: BlobRow) -> None:
        """A blob is durable on disk; who uploads it again owns it too."""
        self.blobs.put(blob.digest, self.blobs.get(blob.digest) or blob)
        if (blob.digest, blob.principal) not in self.owners.rows:
            self.owners.put((blob.digest, blob.principal), blob.created_at)

    def readable(self, digest: str, submitter: str) -> bool:
        """Whether the submitter uploaded the blob, or a job of theirs names it."""
        if (digest, submitter) in self.owners.rows:
            return True
        return any(self.references.rows[digest, job] == submitter for job in self._jobs_of.get(digest, ()))

    def bytes_of(self, submitter: str) -> int:
        """Sealed bytes of the blobs that a submitter uploaded or that jobs of theirs name."""
        digests = {digest for digest, who in self.owners.rows if who == submitter}
        digests |= {digest for (digest, _), who in self.references.rows.items() if who == submitter}
        return sum(row.sealed_bytes for digest in digests if (row := self.blobs.get(digest)) is not None)

    def loose_blobs(self, worker: str) -> list[BlobRow]:
        """A worker's uploads that no job names (yet), oldest first."""
        loose = self._loose.get(worker)
        if not loose:
            return []
        for digest in [digest for digest in loose if digest in self._jobs_of]:  # they are results now
            del loose[digest]
        return [row for digest in loose if (row := self.blobs.get(digest)) is not None]

    def forget_loose(self) -> None:
        """Count anew, as a coordinator starts: parts of jobs that ended before lie here unnamed for a while."""
        self._loose.clear()

    def unreferenced(self, older_than: float) -> list[str]:
        """Blobs that no job names, uploaded last before a wall time."""
        newest: dict[str, float] = {}
        for (digest, _), at in self.owners.rows.items():
            newest[digest] = max(at, newest.get(digest, at))
        return sorted(
            digest
            for digest, row in self.blobs.rows.items()
            if digest not in self._jobs_of and max(row.created_at, newest.get(digest, 0.0)) < older_than
        )

    def drop_blob(self, digest: str) -> None:
        """Forget a blob, unless a job came to name it in the meantime."""
        if digest in self._jobs_of:
            return
        self.blobs.drop(digest)
        for key in [key for key in self.owners.rows if key[0] == digest]:
            self.owners.drop(key)

    def refer(self, digest: str, job: str, submitter: str) -> None:
        """A job names a blob: it is kept, and its submitter may read it."""
        if (digest, job) not in self.references.rows:
            self.references.put((digest, job), submitter)

    def refers(self, job: str) -> bool:
        """Whether a job names any blob."""
        return job in self._digests_of

    def unrefer(self, job: str, keep: Collection[str]) -> None:
        """A job names no blob any more but `keep`."""
        for digest in sorted(self._digests_of.get(job, set()) - set(keep)):
            self.references.drop((digest, job))

    def _watch_owner(self, key: tuple[str, str], there: bool) -> None:
        digest, who = key
        if not who.startswith("w-"):
            return
        if there:
            self._loose.setdefault(who, {})[digest] = None
        elif who in self._loose:
            self._loose[who].pop(digest, None)
            if not self._loose[who]:
                del self._loose[who]

    def _watch_reference(self, key: tuple[str, str], there: bool) -> None:
        digest, job = key
        if there:
            self._digests_of.setdefault(job, set()).add(digest)
            self._jobs_of.setdefault(digest, set()).add(job)
            blob = self.blobs.get(digest)
            if blob is not None and blob.principal in self._loose:
                # For good: a part of a job that ended is named no more, and waits here for nobody's result.
                self._loose[blob.principal].pop(digest, None)
            return
        for sets, name, value in ((self._digests_of, job, digest), (self._jobs_of, digest, job)):
            values = sets.get(name, set())
            values.discard(value)
            if not values:
                sets.pop(name, None)
