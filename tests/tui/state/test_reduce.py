"""The reducer: duplicates, holes and any order of events end at the server's own state."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moregpu.wire.api import Event
from moregpu.wire.messages import Limits
from moregpu.worker.throttle.controller import Reason, to_others
from moregpu.worker.throttle.governor import words
from moregpu_tui.state.events import Happened, Input, JobRow, Live, Replaced, WorkerRow, happened
from moregpu_tui.state.model import Job, PoolState, Worker
from moregpu_tui.state.reduce import MAX_LOG, MIN_OTHERS, reduce

IDS = ("w-A", "w-B", "w-C")
JOBS = ("j-1", "j-2")


class Server:
    """What a coordinator would know: applies moves, writes events with sequences, gives rows."""

    def __init__(self) -> None:
        self.seq = 0
        self.workers: dict[str, Worker] = {}
        self.jobs: dict[str, Job] = {}
        self.events: list[Event] = []

    def move(self, kind: str, which: int, value: int) -> None:
        if kind == "worker":
            self._worker(IDS[which % 3], value)
        else:
            self._job(JOBS[which % 2], value)

    def _worker(self, id: str, value: int) -> None:
        worker = self.workers.get(id) or Worker(id=id, name=id)
        verb = ("online", "offline", "paused", "resumed", "draining", "approved", "revoked")[value % 7]
        match verb:
            case "online" | "offline":
                worker = msgspec.structs.replace(worker, connected=verb == "online")
            case "paused":
                worker = msgspec.structs.replace(worker, paused=True)
            case "resumed":
                worker = msgspec.structs.replace(worker, paused=False, draining=False)
            case "draining":
                worker = msgspec.structs.replace(worker, draining=True)
            case "approved":
                worker = msgspec.structs.replace(worker, approved=True)
            case _:
                worker = msgspec.structs.replace(worker, revoked=True)
        self.workers[id] = worker
        data = {
            "name": worker.name,
            "owner": worker.owner,
            "approved": worker.approved,
            "revoked": worker.revoked,
            "paused": worker.paused,
            "draining": worker.draining,
            "quarantined": False,
        }
        self._say(f"worker.{verb}", id, data)

    def _job(self, id: str, value: int) -> None:
        job = self.jobs.get(id)
        if job is None:
            job = Job(id=id, name=id, grains=10, state="queued", created_at=self.seq + 1.0)
            verb = "job.queued"
        elif job.ended:
            return
        elif job.state == "queued":
            job, verb = msgspec.structs.replace(job, state="running", started_at=self.seq + 1.0), "job.running"
        elif job.grains_done < 10 and value % 3:
            job, verb = msgspec.structs.replace(job, grains_done=min(10, job.grains_done + value % 4)), "task.done"
        else:
            end = ("done", "failed", "cancelled")[value % 3]
            job, verb = msgspec.structs.replace(job, state=end, ended_at=self.seq + 1.0), f"job.{end}"
        self.jobs[id] = job
        data: dict[str, object] = {"grains": 10, "grains_done": job.grains_done, "submitter": "", "worker": IDS[0]}
        if verb == "task.done":
            data["tasks"] = [self.seq]
        else:
            data |= {"name": id, "kind": "", "state": job.state}
        self._say(verb, id, data)

    def _say(self, kind: str, id: str, data: dict[str, object]) -> None:
        self.seq += 1
        self.events.append(Event(type=kind, id=id, at=float(self.seq), seq=self.seq, data=data))

    def replaced(self) -> Replaced:
        return Replaced(
            seq=self.seq,
            workers=tuple(
                msgspec.structs.replace(worker, flags_seq=self.seq, link_seq=self.seq)
                for worker in self.workers.values()
            ),
            jobs=tuple(msgspec.structs.replace(job, seq=self.seq) for job in self.jobs.values()),
        )


def served(moves: list[tuple[str, int, int]]) -> Server:
    server = Server()
    for move in moves:
        server.move(*move)
    return server


def facts(state: PoolState) -> dict[str, object]:
    """What must be the same whatever the way: looks of workers, and where jobs stand."""
    return {
        "workers": {worker.id: (worker.look, worker.connected) for worker in state.workers.values()},
        "jobs": {job.id: (job.state, job.grains_done, job.grains) for job in state.jobs.values()},
        "seq": state.seq,
    }


MOVES = st.lists(st.tuples(st.sampled_from(["worker", "job"]), st.integers(0, 5), st.integers(0, 20)), max_size=30)


@given(MOVES, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_any_order_with_any_duplicates_ends_where_the_right_order_ends(
    moves: list[tuple[str, int, int]], chance: object
) -> None:
    server = served(moves)
    inputs = [happened(event) for event in server.events]
    right, _ = reduce(PoolState(), inputs)
    again = inputs + inputs[: len(inputs) // 2]
    chance.shuffle(again)  # type: ignore[attr-defined]
    other, _ = reduce(PoolState(), again)
    assert facts(other)["workers"] == facts(right)["workers"]
    assert {job.id: job.state for job in other.jobs.values()} == {job.id: job.state for job in right.jobs.values()}
    assert [entry.seq for entry in other.log] == [entry.seq for entry in right.log]


@given(MOVES, st.randoms(use_true_random=False), st.integers(0, 30))
@settings(max_examples=150, deadline=None)
def test_after_any_holes_the_next_rows_bring_the_servers_own_state(
    moves: list[tuple[str, int, int]], chance: object, lost: int
) -> None:
    server = served(moves)
    inputs: list[Input] = [happened(event) for event in server.events]
    kept = [one for one in inputs if chance.random() > lost / 30]  # type: ignore[attr-defined]
    chance.shuffle(kept)  # type: ignore[attr-defined]
    state, _ = reduce(PoolState(), kept)
    state, changed = reduce(state, [server.replaced()])
    assert changed.everything
    fresh, _ = reduce(PoolState(), [server.replaced()])
    assert facts(state) == facts(fresh)


@given(MOVES, st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_rows_read_in_the_middle_and_events_of_before_and_after_agree(
    moves: list[tuple[str, int, int]], cut: int
) -> None:
    """A row that was read at some sequence, then all events again, old ones too."""
    server, early = served(moves), served(moves[:cut])
    state, _ = reduce(PoolState(), [early.replaced()])
    state, _ = reduce(state, [happened(event) for event in server.events])
    fresh, _ = reduce(PoolState(), [server.replaced()])
    assert facts(state)["workers"] == facts(fresh)["workers"]
    assert facts(state)["jobs"] == facts(fresh)["jobs"]


@given(MOVES)
@settings(max_examples=50, deadline=None)
def test_one_batch_and_many_small_ones_give_the_same(moves: list[tuple[str, int, int]]) -> None:
    inputs = [happened(event) for event in served(moves).events]
    at_once, _ = reduce(PoolState(), inputs)
    state = PoolState()
    for one in inputs:
        state, _ = reduce(state, [one])
    assert state == at_once


def live(id: str, at: float, **data: object) -> Happened | Live:
    return happened(Event(type="worker.live", id=id, at=at, data={"duty": {"cpu0": 0.5}, "leases": 1, **data}))


def test_live_figures_of_the_latest_moment_win() -> None:
    state, _ = reduce(PoolState(), [WorkerRow(seq=1, worker=Worker(id="w-A", connected=True))])
    state, changed = reduce(state, [live("w-A", 2.0, user_load=0.7), live("w-A", 1.0, user_load=0.1)])
    assert state.workers["w-A"].user_load == 0.7
    assert changed.workers == {"w-A"}


def test_a_worker_that_steps_back_is_drawn_at_once() -> None:
    state, _ = reduce(PoolState(), [WorkerRow(seq=1, worker=Worker(id="w-A", connected=True))])
    state, changed = reduce(state, [live("w-A", 2.0, reason=to_others(Reason.INPUT))])
    assert state.workers["w-A"].look == "throttled"
    assert changed.urgent == {"w-A"}


@pytest.mark.parametrize("reason", [Reason.FREE, Reason.CEILING])
def test_a_worker_that_keeps_to_the_admins_ceiling_does_not_step_back(reason: Reason) -> None:
    told = words(reason, Limits(ceiling=0.85), Limits(ceiling=0.7))
    assert told.endswith("the pool's admin asks for no more than 70%")
    assert Worker(id="w-A", connected=True, reason=to_others(told)).look == "ready"
    assert Worker(id="w-A", connected=True, reason=told).look == "ready", "as a worker of an earlier version says it"


def test_nothing_new_changes_nothing() -> None:
    state, _ = reduce(PoolState(), [WorkerRow(seq=1, worker=Worker(id="w-A"))])
    again, changed = reduce(state, [WorkerRow(seq=1, worker=Worker(id="w-A"))])
    assert again.workers == state.workers
    assert not changed


def test_what_was_given_is_never_changed_in_place() -> None:
    before, _ = reduce(PoolState(), [WorkerRow(seq=1, worker=Worker(id="w-A", connected=True))])
    kept = dict(before.workers)
    reduce(before, [live("w-A", 2.0), WorkerRow(seq=2, worker=Worker(id="w-B"))])
    assert before.workers == kept


def test_the_log_is_bounded_and_counts_what_went() -> None:
    lines = [f"line {number}" for number in range(MAX_LOG + 500)]
    event = Event(type="log", id="j-1", at=1.0, data={"lines": lines, "worker": "w-A"})
    state, changed = reduce(PoolState(), [happened(event)])
    assert changed.log
    assert len(state.log) == MAX_LOG
    assert state.log_total == MAX_LOG + 500


def test_a_flood_of_printed_lines_does_not_push_out_what_happened_to_the_pool() -> None:
    happenings = [
        happened(Event(type="worker.offline", id="w-A", at=1.0, seq=number, data={"name": "anna"}))
        for number in range(1, MIN_OTHERS + 100)
    ]
    lines = [f"line {number}" for number in range(2 * MAX_LOG)]
    flood = happened(Event(type="log", id="j-1", at=2.0, data={"lines": lines, "left_out": 3, "worker": "w-A"}))
    state, _ = reduce(PoolState(), [*happenings, flood])
    assert len(state.log) == MAX_LOG
    others = [entry.seq for entry in state.log if entry.source == "worker"]
    assert others == [*range(100, MIN_OTHERS + 100)]  # the newest of them, in their order
    assert state.log[-1].text.endswith(f"line {2 * MAX_LOG - 1}")
    state, _ = reduce(PoolState(), [flood])
    assert len(state.log) == MAX_LOG


def test_what_was_left_out_of_what_jobs_print_is_said() -> None:
    event = Event(type="log", id="j-1", at=2.0, data={"lines": ["on"], "left_out": 1234, "worker": "w-A"})
    state, _ = reduce(PoolState(), [happened(event)])
    said, line = state.log
    assert (said.level, said.text) == ("warning", "1,234 lines that jobs printed are left out here")
    assert line.text == "w-A: on"


def test_a_fetched_job_keeps_its_progress_when_an_event_was_faster() -> None:
    done = Event(type="task.done", id="j-1", at=3.0, seq=9, data={"tasks": [1], "grains": 10, "grains_done": 7})
    state, _ = reduce(PoolState(), [JobRow(seq=1, job=Job(id="j-1", grains=10, state="running")), happened(done)])
    state, _ = reduce(state, [JobRow(seq=5, job=Job(id="j-1", grains=10, grains_done=4, state="running"))])
    assert state.jobs["j-1"].grains_done == 7
    assert state.grains_total == 7
