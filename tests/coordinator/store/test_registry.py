"""Workers, invites, tokens, blobs, settings, events, ledger. Over every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from moregpu.coordinator.ledger import verify
from moregpu.coordinator.store.protocol import BlobRow, TokenRow
from moregpu.coordinator.store.registry import MAX_USED_BY
from moregpu.wire.api import Event
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import Pool

Tell = Callable[..., None]
SECRET = b"s" * 32


# ---- enrolment


def test_two_workers_race_for_one_use_and_one_wins(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_invite(rows.invite("i-1", uses_left=1))
        won = await asyncio.gather(
            *(pool.store.enrol(rows.worker_row(f"w-{n}"), "i-1", SECRET, pool.clock.epoch) for n in range(5))
        )
        assert [row is not None for row in won] == [True, False, False, False, False]
        assert [row.id for row in await pool.store.workers()] == ["w-0"]

    tell(story)


def test_the_invite_alone_says_owner_groups_kinds_and_approval(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        invite = rows.invite("i-1", owner="ann", groups=("lab",), kinds=("kernel",), auto_approve=False)
        await pool.store.add_invite(invite)
        claims = rows.worker_row("w-1", owner="root", groups=("all",), approved=True)
        row = await pool.store.enrol(claims, "i-1", SECRET, pool.clock.epoch)
        assert row is not None
        assert (row.owner, row.groups, row.kinds_allowed, row.approved) == ("ann", ("lab",), ("kernel",), False)
        await pool.restart()
        assert await pool.store.worker("w-1") == row
        await pool.store.add_invite(rows.invite("i-2", owner=""))
        nameless = await pool.store.enrol(rows.worker_row("w-2"), "i-2", SECRET, pool.clock.epoch)
        assert nameless is not None
        assert nameless.owner == "i-2"

    tell(story)


def test_the_same_worker_presenting_its_invite_again_is_let_in_even_after_its_time(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_invite(rows.invite("i-1"))
        row = await pool.store.enrol(rows.worker_row("w-1"), "i-1", SECRET, pool.clock.epoch)
        pool.clock.forward(7200)
        await pool.restart()
        assert await pool.store.enrol(rows.worker_row("w-1"), "i-1", SECRET, pool.clock.epoch) == row
        impostor = rows.worker_row("w-1", wi_pub=bytes(32))
        assert await pool.store.enrol(impostor, "i-1", SECRET, pool.clock.epoch) is None

    tell(story)


def test_a_fleet_comes_by_one_invite_whose_row_stays_small_and_each_may_present_it_again(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_invite(rows.invite("i-1", uses_left=100))
        fleet = [rows.worker_row(f"w-{number}") for number in range(100)]
        let_in = [await pool.store.enrol(worker, "i-1", SECRET, pool.clock.epoch) for worker in fleet]
        assert None not in let_in
        assert await pool.store.enrol(rows.worker_row("w-100"), "i-1", SECRET, pool.clock.epoch) is None
        await pool.restart()
        (invite,) = await pool.store.invites()
        assert invite.uses_left == 0 and len(invite.used_by) <= MAX_USED_BY
        assert [await pool.store.enrol(worker, "i-1", SECRET, pool.clock.epoch) for worker in fleet] == let_in

    tell(story)


def test_a_wrong_unknown_expired_withdrawn_or_used_invite_lets_nobody_in(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_invite(rows.invite("i-1"))
        await pool.store.add_invite(rows.invite("i-2"))
        worker = rows.worker_row("w-1")
        enrol = pool.store.enrol
        assert await enrol(worker, "i-1", b"x" * 32, pool.clock.epoch) is None
        assert await enrol(worker, "i-9", SECRET, pool.clock.epoch) is None
        assert await enrol(worker, "i-1", SECRET, rows.invite().expires_at) is None
        assert await enrol(worker, "i-1", SECRET, float("nan")) is None
        assert await pool.store.drop_invite("i-2")
        assert not await pool.store.drop_invite("i-2")
        assert await enrol(worker, "i-2", SECRET, pool.clock.epoch) is None
        assert await pool.store.workers() == []
        assert await enrol(worker, "i-1", SECRET, pool.clock.epoch) is not None
        assert await enrol(rows.worker_row("w-2"), "i-1", SECRET, pool.clock.epoch) is None

    tell(story)


def test_a_revoked_worker_cannot_come_back_with_a_new_invite_nor_be_saved_as_good(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_invite(rows.invite("i-1", uses_left=5))
        row = await pool.store.enrol(rows.worker_row("w-1"), "i-1", SECRET, pool.clock.epoch)
        assert row is not None
        await pool.store.save_worker(replace(row, revoked=True), "worker.revoked")
        assert (await pool.store.save_worker(row)).revoked
        await pool.store.add_invite(rows.invite("i-2"))
        assert await pool.store.enrol(rows.worker_row("w-1"), "i-1", SECRET, pool.clock.epoch) is None
        assert await pool.store.enrol(rows.worker_row("w-1"), "i-2", SECRET, pool.clock.epoch) is None

    tell(story)


def test_invites_that_could_be_used_are_listed_and_used_ones_for_a_day(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_invite(rows.invite("i-used"))
        await pool.store.add_invite(rows.invite("i-open"))
        await pool.store.enrol(rows.worker_row("w-1"), "i-used", SECRET, pool.clock.epoch)
        assert {row.id for row in await pool.store.invites()} == {"i-used", "i-open"}
        pool.clock.forward(3601)
        assert {row.id for row in await pool.store.invites()} == {"i-used"}
        pool.clock.forward(86400)
        assert await pool.store.invites() == []

    tell(story)


# ---- tokens and settings


def test_tokens_and_settings_are_kept_and_replaced(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        token = TokenRow(id="abcd1234", hash=b"h" * 32, role="submitter", label="laptop", created_at=1.0)
        await pool.store.save_token(token)
        await pool.store.save_token(replace(token, revoked=True))
        await pool.store.set_setting("name", "attic")
        await pool.store.set_setting("name", "cellar")
        await pool.restart()
        assert await pool.store.tokens() == [replace(token, revoked=True)]
        assert await pool.store.token("abcd1234") == replace(token, revoked=True)
        assert await pool.store.token("none") is None
        assert await pool.store.setting("name") == "cellar"
        assert await pool.store.setting("none") is None

    tell(story)


# ---- blobs


def upload(number: int, principal: str, at: float = 0.0) -> BlobRow:
    return BlobRow(digest=rows.blob(number).digest, sealed_bytes=1080, principal=principal, created_at=at)


def test_a_blob_is_readable_by_who_uploaded_it_and_by_submitters_whose_jobs_name_it(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        digest = rows.blob(1).digest
        await pool.store.add_blob(upload(1, "alice"))
        assert await pool.store.blob_readable(digest, "alice")
        assert not await pool.store.blob_readable(digest, "bob")
        assert not await pool.store.blob_readable("0" * 64, "alice")
        await pool.store.add_blob(upload(1, "carol"))
        assert await pool.store.blob_readable(digest, "carol")
        await pool.store.add_job(rows.job(submitter="bob", inputs=(rows.blob(1),)))
        assert await pool.store.blob_readable(digest, "bob")
        await pool.restart()
        assert [await pool.store.blob_readable(digest, who) for who in ("alice", "bob", "carol", "dave")] == [
            True, True, True, False,
        ]  # fmt: skip
        row = await pool.store.blob(digest)
        assert row == upload(1, "alice")

    tell(story)


def test_inputs_stay_until_a_job_is_purged_parts_until_it_ends_results_until_it_is_purged(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        for number in (1, 2, 3, 4):
            await pool.store.add_blob(upload(number, "w-1" if number > 1 else "alice"))
        job = await pool.store.add_job(rows.job(grains=1, inputs=(rows.blob(1),)))
        (lease,) = await pool.lease()
        part = {"c": rows.manifest(rows.blob(2)).outputs["c0"]}
        await pool.accept("w-1", lease, outputs=part)

        async def collectable() -> list[int]:
            digests = await pool.store.unreferenced_blobs(1.0)
            return [number for number in (1, 2, 3, 4) if rows.blob(number).digest in digests]

        assert await collectable() == [3, 4]
        assert await pool.store.blob_readable(rows.blob(2).digest, "alice")
        await pool.finish(job.id, result=rows.manifest(rows.blob(3)))
        assert await collectable() == [2, 4]
        await pool.restart()
        assert await collectable() == [2, 4]
        assert await pool.store.unreferenced_blobs(0.0) == []
        await pool.store.purge(job.id)
        assert await collectable() == [1, 2, 3, 4]

    tell(story, keep_ended=0)


def test_a_part_that_is_the_result_stays(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_blob(upload(2, "w-1"))
        await pool.store.add_job(rows.job(grains=1))
        (lease,) = await pool.lease()
        result = rows.manifest(rows.blob(2))
        await pool.accept("w-1", lease, outputs=result.outputs, result=result)
        assert await pool.store.unreferenced_blobs(1.0) == []

    tell(story)


def test_dropping_a_blob_that_a_job_came_to_name_keeps_it(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_blob(upload(1, "alice"))
        await pool.store.add_blob(upload(2, "alice"))
        await pool.store.add_job(rows.job(inputs=(rows.blob(1),)))
        await pool.store.drop_blobs([rows.blob(1).digest, rows.blob(2).digest])
        await pool.restart()
        assert await pool.store.blob(rows.blob(1).digest) is not None
        assert await pool.store.blob(rows.blob(2).digest) is None
        assert not await pool.store.blob_readable(rows.blob(2).digest, "alice")

    tell(story)


# ---- events


def test_events_are_numbered_without_gaps_and_told_only_after_their_commit(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=2), told=False)
        await pool.lease()
        assert pool.events == []
        assert pool.store.last_seq() == 0
        await pool.store.settle()
        assert [event.seq for event in pool.events] == [1, 2, 3]
        assert pool.store.last_seq() == 3
        noted = await pool.store.note(Event(type="log", id="pool", at=1.0, data={"line": "hello"}))
        assert noted.seq == 4
        assert await pool.store.events_since(0) == pool.events
        assert await pool.store.events_since(2) == pool.events[2:]
        assert await pool.store.events_since(4) == []
        assert await pool.store.events_since(5) is None
        assert await pool.store.events_since(0, limit=2) == pool.events[:2]
        await pool.restart()
        assert pool.store.last_seq() == 4
        assert await pool.store.events_since(3) == [noted]

    tell(story)


def test_results_of_one_job_that_come_together_make_one_event(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=3))
        await pool.accept("w-1", *await pool.lease())
        done = [event for event in pool.events if event.type == "task.done"]
        assert [(event.data["tasks"], event.data["grains_done"]) for event in done] == [([0, 1, 2], 3)]

    tell(story)


@pytest.mark.parametrize("kept", [{"keep_events": 10}, {"keep_events_s": 50.0, "keep_events": 200}])
def test_a_reader_from_further_back_than_is_kept_must_resync(tell: Tell, kept: dict[str, float]) -> None:
    async def story(pool: Pool) -> None:
        for number in range(30):
            pool.clock.forward(10)
            await pool.store.note(Event(type="log", id=str(number), at=pool.clock.epoch))
        assert await pool.store.events_since(0) is None
        recent = await pool.store.events_since(27)
        assert recent is not None
        assert [event.id for event in recent] == ["27", "28", "29"]
        assert await pool.store.events_since(30) == []

    tell(story, **kept)


def test_a_subscriber_that_stops_hears_no_more(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        heard: list[Event] = []
        stop = pool.store.subscribe(heard.extend)
        await pool.store.note(Event(type="log"))
        stop()
        stop()
        await pool.store.note(Event(type="log"))
        assert len(heard) == 1

    tell(story)


def test_a_subscriber_that_fails_stops_nobody_else(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        def fail(_: list[Event]) -> None:
            raise RuntimeError("a listener's own fault")

        heard: list[Event] = []
        pool.store.subscribe(fail)
        pool.store.subscribe(heard.extend)
        await pool.store.note(Event(type="log"))
        await pool.store.note(Event(type="log"))
        assert len(heard) == 2

    tell(story)


# ---- ledger


def test_the_ledger_is_one_chain_through_restarts_and_receipts_name_its_rows(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        receipts = []
        for _ in range(3):
            await pool.store.add_job(rows.job(grains=2))
            receipts += [answer.ledger for answer in await pool.accept("w-1", *await pool.lease())]
            await pool.restart()
        ledger = await pool.store.ledger()
        assert [(row.writer, row.row, row.hash) for row in ledger] == receipts
        assert [row.row for row in ledger] == [1, 2, 3, 4, 5, 6]
        assert [row.row for row in await pool.store.ledger(after=4, limit=1)] == [5]
        writer, row, hash = await pool.store.ledger_head()
        assert (writer, row, hash) == receipts[-1]
        assert await pool.store.ledger_writers() == [writer]
        batches = await pool.store.batches(writer, sorted({row.batch for row in ledger}))
        assert [len(batch.digests) for batch in batches.values()] == [2, 2, 2]
        # The test's signatures are zeros: the chain itself must hold.
        found = verify(ledger, batches, [], pool=bytes(16), ci_pub=bytes(32), keys={})
        assert [problem for problem in found if "signature over" not in problem] == []

    tell(story)


def test_a_jobs_statements_come_with_the_signature_over_them(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=2))
        one, two = await pool.lease()
        await pool.accept("w-1", two, one)
        statements = await pool.store.statements(job.id)
        assert [row.statement for row, _ in statements] == [rows.statement_of(two), rows.statement_of(one)]
        assert all(batch == statements[0][1] and batch.worker == "w-1" for _, batch in statements)
        assert await pool.store.statements("j-NONE") == []

    tell(story)
