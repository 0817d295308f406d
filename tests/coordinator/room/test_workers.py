"""Workers come in, come twice, are told what an admin wants, and are thrown out. Numbers are rows of the fault list."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from moregpu.coordinator.enrol import Doorman
from moregpu.coordinator.limits import MAX_LINKS_UNCONFIRMED, DeskConfig
from moregpu.errors import Forbidden, HandshakeFailed, NotFound
from moregpu.jobs import JobState
from moregpu.wire.api import WorkerChange
from moregpu.wire.identity import PoolKeys, WorkerKeys
from moregpu.wire.messages import Hello, Limits
from moregpu.wire.session import Channel
from tests.coordinator.room.pool import ADMIN, ANN, Room, Socket, product, room
from tests.rogue.workers import HonestWorker


async def stranger(here: Room, name: str = "stranger", invite: tuple[str, bytes] | None = None) -> HonestWorker:
    worker = HonestWorker(here.keys, here.blobs, name, invite=invite)
    here.connect(worker)
    await worker.until(lambda: worker.welcome is not None or worker.rejected is not None)
    return worker


# ---- row 1: invites --------------------------------------------------------------------------------------------------


def test_no_wrong_expired_and_used_invites_get_one_neutral_answer(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            good = await here.invite()
            assert (await stranger(here, "first", good)).welcome is not None
            answers = [
                (await stranger(here, "wrong", (good[0], os.urandom(16)))).rejected,
                (await stranger(here, "used", good)).rejected,
                (await stranger(here, "unknown", ("i-" + "0" * 26, os.urandom(16)))).rejected,
                (await stranger(here, "expired", await here.invite(expires_s=-1.0))).rejected,
            ]
            assert all(answer is not None for answer in answers)
            assert len({(answer.code, answer.detail, answer.hint) for answer in answers if answer}) == 1
            without = (await stranger(here, "none")).rejected
            assert without is not None and without.code == "invite-refused"
            assert len(await here.store.workers()) == 1

    asyncio.run(run())


def test_of_two_workers_that_race_for_one_use_one_wins(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            invite = await here.invite()
            workers = await asyncio.gather(stranger(here, "left", invite), stranger(here, "right", invite))
            assert sorted(worker.welcome is not None for worker in workers) == [False, True]

    asyncio.run(run())


def test_wrong_invites_are_rate_limited_per_invite_and_told_to_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, wrong_invites_a_minute=3) as here:
            invite_id, secret = await here.invite()
            for number in range(3):
                guess = await stranger(here, f"guess {number}", (invite_id, os.urandom(16)))
                assert guess.rejected is not None and guess.rejected.code == "invite-refused"
            late = await stranger(here, "late", (invite_id, secret))
            assert late.rejected is not None and late.rejected.code == "too-many-requests" and late.rejected.again
            here.clock.ahead_s += 60.0
            assert (await stranger(here, "later", (invite_id, secret))).welcome is not None

    asyncio.run(run())


def test_no_log_names_an_invites_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> bytes:
        async with room(tmp_path) as here:
            secret = os.urandom(16)
            await stranger(here, "guess", ((await here.invite())[0], secret))
            return secret

    with caplog.at_level("DEBUG"):
        secret = asyncio.run(run())
    text = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert "invite refused" in text
    assert secret.hex() not in text and repr(secret) not in text


# ---- row 40 and 39: a cut link, a replayed or forged message ------------------------------------------------------


def test_a_worker_whose_link_was_cut_after_its_invite_was_used_comes_in_with_the_same_key(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            await here.hang_up(worker)
            worker.welcome = None
            here.connect(worker)
            await worker.welcomed()
            assert len(await here.store.workers()) == 1

    asyncio.run(run())


def test_who_comes_back_with_nothing_new_waits_for_no_disk_and_who_has_another_session_key_does(
    tmp_path: Path,
) -> None:
    """The older key of who was let in under a newer one must be good for nothing, whenever the power fails."""

    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            await here.hang_up(worker)
            await here.store.settle()
            here.store.disk.full = True
            worker.welcome = None
            here.connect(worker)
            await worker.welcomed()
            await here.hang_up(worker)
            worker.keys = WorkerKeys(X25519PrivateKey.generate(), worker.keys.wi, ws_number=1)
            here.connect(worker)
            await worker.until(lambda: worker.rejected is not None)
            assert worker.rejected is not None and worker.rejected.again

    asyncio.run(run())


@pytest.mark.parametrize("new", ["worker", "key"])
def test_who_hangs_up_and_comes_again_is_not_let_in_before_what_they_changed_is_on_the_disk(
    tmp_path: Path, new: str
) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            if new == "worker":
                worker = HonestWorker(here.keys, here.blobs, "anna", invite=await here.invite())
            else:
                worker = await here.worker()
                await here.hang_up(worker)
                worker.keys = WorkerKeys(X25519PrivateKey.generate(), worker.keys.wi, ws_number=1)
            await here.store.settle()
            here.store._auto_commit = False
            for _ in range(2):
                worker.welcome = None
                events = here.store._book.journal.seq
                here.connect(worker)
                await here.until(lambda events=events: here.store._book.journal.seq > events)
                for _ in range(200):
                    await asyncio.sleep(0)
                assert worker.welcome is None
                await here.hang_up(worker)
            here.store._auto_commit = True
            here.connect(worker)
            await worker.welcomed()

    asyncio.run(run())


def test_who_was_being_enrolled_when_the_process_ended_holds_nothing_up(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            keys, (invite_id, secret) = WorkerKeys.generate(), await here.invite()
            await here.store.settle()
            here.store._auto_commit = False
            hello = Hello(
                wi_pub=keys.wi_pub,
                signature=bytes(64),
                ws_number=keys.ws_number,
                ws_signature=keys.ws_signature(),
                boot=bytes(16),
                name="anna",
                invite_id=invite_id,
                invite_secret=secret,
            )
            enrolling = Doorman(here.store, here.clock, DeskConfig())._enrol(keys.worker_id, hello, bytes(32), "")
            enrolling.send(None)  # as far as the disk
            here.store._opened = False
            enrolling.close()  # raised, when it asked the store what became of the worker
            here.store._opened = here.store._auto_commit = True

    asyncio.run(run())


def test_a_replayed_first_message_leaves_the_live_session_untouched(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            channel = Channel.initiator(worker.keys.ws, here.keys.cs_pub, here.keys.pool_id)
            first = channel.start()
            for _ in range(2):  # the same bytes twice, as from a recording
                near, far = Socket.pair()
                served = asyncio.create_task(here.desk.serve_worker(far))
                await near.send(first)
                assert await near.receive() is not None
                await near.send(os.urandom(64))  # whoever replays cannot make the next record
                await served
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)))
            assert row.state is JobState.DONE and worker.rejected is None

    asyncio.run(run())


def test_a_hello_signed_by_another_key_changes_nothing(tmp_path: Path) -> None:
    class Thief(HonestWorker):
        """Has the pool's public key and knows a worker's public keys, but not its secret ones."""

        victim: HonestWorker

        def hello(self, h: bytes) -> Hello:
            return msgspec.structs.replace(super().hello(h), wi_pub=self.victim.keys.wi_pub)

    async def run() -> None:
        async with room(tmp_path) as here:
            victim = await here.worker(name="victim")
            thief = Thief(here.keys, here.blobs, "thief")
            thief.victim = victim
            near = here.connect(thief)
            await here.until(lambda: near.closed is not None)
            assert thief.welcome is None and thief.rejected is None, "not a word"
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)))
            assert row.state is JobState.DONE and victim.rejected is None

    asyncio.run(run())


def test_a_worker_of_another_pool_gets_no_further_than_the_handshake(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            lost = HonestWorker(PoolKeys.generate(), here.blobs, "lost")
            near, far = Socket.pair()
            served = asyncio.create_task(here.desk.serve_worker(far))
            with pytest.raises((HandshakeFailed, ConnectionError, TypeError)):
                await lost.run(near)
                raise ConnectionError("closed without an answer")
            await served

    asyncio.run(run())


# ---- row 5: revoked --------------------------------------------------------------------------------------------------


def test_a_revoked_worker_is_refused_its_late_result_too_and_its_task_runs_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            bad = await here.worker(name="bad")
            bad.computes = False
            a, b = product(4, 4, 4)
            row = await here.submit(await here.spec("matmul", a, b), wait_s=0.0)
            await bad.until(lambda: bool(bad.assigned))
            with pytest.raises(Forbidden):
                await here.desk.revoke_worker(ANN, bad.id)
            await here.desk.revoke_worker(ADMIN, bad.id)
            await bad.work(bad.assigned)
            await bad.until(lambda: bad.rejected is not None)
            good = await here.worker(name="good")
            row = await here.ended(row)
            view = await here.desk.view(ANN, row, detail=True)
            assert view.workers == [good.id] and view.checked
            again = await stranger_with(here, bad)
            assert again.rejected is not None and not again.rejected.again and again.welcome is None
            assert (await here.desk.find_worker(bad.id)).state == "revoked"

    asyncio.run(run())


async def stranger_with(here: Room, worker: HonestWorker) -> HonestWorker:
    """The same keys from a new process."""
    again = HonestWorker(here.keys, here.blobs, worker.name + " again", keys=worker.keys)
    here.connect(again)
    await again.until(lambda: again.welcome is not None or again.rejected is not None)
    return again


# ---- row 6, 14: one key twice ------------------------------------------------------------------------------------


def test_of_two_processes_with_one_key_the_newest_wins_and_the_other_does_not_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            older = await here.worker(name="older")
            older.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await older.until(lambda: bool(older.assigned))
            newer = await stranger_with(here, older)
            assert newer.welcome is not None
            await older.until(lambda: older.rejected is not None)
            assert older.rejected is not None and older.rejected.code == "replaced" and not older.rejected.again
            assert (await here.ended(row)).state is JobState.DONE
            assert [entry.job for entry in newer.assigned] == [row.id]

    asyncio.run(run())


def test_a_key_that_changes_hands_again_and_again_is_warned_about_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            for _ in range(3):
                worker = await stranger_with(here, worker)
            await here.store.settle()
            events = await here.store.events_since(0) or []
            assert [event.id for event in events if event.type == "worker.flapping"] == [worker.id]

    asyncio.run(run())


# ---- approval, pause, drain --------------------------------------------------------------------------------------


def test_a_pending_worker_works_only_once_it_is_approved(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await stranger(here, "pending", await here.invite(uses=2, auto_approve=False))
            assert worker.welcome is not None and worker.welcome.pending
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.1)
            assert row.state is JobState.QUEUED and (await here.desk.find_worker("pending")).state == "pending"
            await here.desk.change_worker(ADMIN, "pending", WorkerChange(action="approve"))
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_paused_worker_gets_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker(name="box")
            with pytest.raises(Forbidden):
                await here.desk.change_worker(ANN, worker.id, WorkerChange(action="pause"))
            await here.desk.change_worker(ADMIN, worker.id, WorkerChange(action="pause"))
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.1)
            assert row.state is JobState.QUEUED
            await here.desk.change_worker(ADMIN, "box", WorkerChange(action="resume", name="chest"))
            assert (await here.ended(row)).state is JobState.DONE
            assert (await here.desk.find_worker("chest")).id == worker.id
            with pytest.raises(NotFound):
                await here.desk.find_worker("box")

    asyncio.run(run())


def test_an_owner_who_uses_the_machine_is_left_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            await worker.heartbeat([], duty=0.0)
            await worker.until(lambda: len(worker.pulses) == 2)
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.1)
            assert row.state is JobState.QUEUED and not worker.assigned
            await worker.heartbeat([], duty=0.5)
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


# ---- strangers who only hold connections open (row 7) --------------------------------------------------------------


def test_connections_that_never_prove_who_they_are_are_bounded_and_closed(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, handshake_s=0.2) as here:
            ends: list[Socket] = []
            for _ in range(MAX_LINKS_UNCONFIRMED + 1):
                near, far = Socket.pair()
                ends.append(near)
                here.tasks.append(asyncio.create_task(here.desk.serve_worker(far)))
            await here.until(lambda: ends[-1].closed is not None)
            assert ends[-1].closed is not None and ends[-1].closed[0] == 1013
            await here.until(lambda: all(end.closed is not None for end in ends))
            assert (await here.worker()).welcome is not None

    asyncio.run(run())


def test_a_message_before_the_hello_ends_the_connection(tmp_path: Path) -> None:
    class Hasty(HonestWorker):
        async def run(self, socket: Socket) -> None:  # type: ignore[override]
            self._socket, self._channel = socket, Channel.initiator(self.keys.ws, self.pool.cs_pub, self.pool.pool_id)
            await socket.send(self._channel.start())
            reply = await socket.receive()
            assert reply is not None
            self._channel.receive(reply)
            await self.heartbeat([])

    async def run() -> None:
        async with room(tmp_path) as here:
            near = here.connect(Hasty(here.keys, here.blobs, "hasty", keys=WorkerKeys.generate()))
            await here.until(lambda: near.closed is not None)

    asyncio.run(run())


# ---- what the admin asks ---------------------------------------------------------------------------------------------


def test_a_worker_that_was_away_is_told_what_an_admin_changed_meanwhile(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            await worker.until(lambda: worker.policy is not None)
            assert worker.policy is not None and worker.policy.limits == Limits(ceiling=1.0)  # the owner's alone hold
            await here.desk.change_worker(ADMIN, worker.id, WorkerChange(action="pause"))
            await worker.until(lambda: worker.policy is not None and worker.policy.limits.paused)
            await here.hang_up(worker)
            await here.desk.change_worker(ADMIN, worker.id, WorkerChange(action="resume", ceiling=0.3))
            here.connect(worker)
            await worker.until(lambda: worker.policy is not None and not worker.policy.limits.paused)
            assert worker.policy.limits == Limits(ceiling=0.3)

    asyncio.run(run())


def test_what_the_owner_said_at_the_door_does_not_come_back_as_the_admins_wish(tmp_path: Path) -> None:
    class Cautious(HonestWorker):
        def hello(self, h: bytes) -> Hello:
            return msgspec.structs.replace(super().hello(h), limits=Limits(ceiling=0.2, paused=True))

    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker(Cautious)
            await here.desk.change_worker(ADMIN, worker.id, WorkerChange(name="desk 3"))
            await worker.until(lambda: worker.policy is not None and worker.policy.name == "desk 3")
            assert worker.policy is not None and worker.policy.limits == Limits(ceiling=1.0)

    asyncio.run(run())


def test_a_worker_was_seen_when_it_was_heard_last_not_when_it_came(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=1e9, silence_s=1e9) as here:
            worker = await here.worker()
            here.clock.ahead_s += 3600.0
            before = here.clock.wall()
            await worker.heartbeat([])
            session = here.desk._fleet.get(worker.id).session
            await here.until(lambda: here.clock.monotonic() - session.heard < 3600.0)
            (view,) = await here.desk.workers()
            assert view.seen_at is not None and before - 1.0 < view.seen_at <= here.clock.wall()
            await here.hang_up(worker)
            (view,) = await here.desk.workers()
            assert view.seen_at is not None and before - 1.0 < view.seen_at <= here.clock.wall()

    asyncio.run(run())
