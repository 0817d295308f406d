"""Who gets what next, and why a job waits: the scheduler over the real book and the real kernel workload."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moregpu.coordinator.fitting import fit_class, lanes, memory_needed
from moregpu.coordinator.scheduler import (
    LEAST_TASK_S,
    LEFT_OVER,
    MAX_SLOTS,
    TASK_S,
    choose,
    device_for,
    fits,
    is_hopeless,
    may_take,
    slots_for,
    waiting_reason,
)
from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.protocol import (
    Candidate,
    Candidates,
    Choice,
    Fits,
    FleetWorker,
    JobRow,
    Lease,
    TokenRow,
    UsageRow,
    Voted,
)
from moregpu.jobs import Tensor
from moregpu.wire.messages import Device
from moregpu.workloads import workload
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu.workloads.protocol import FleetSummary, Needs, WorkerProfile
from tests.coordinator.store import rows

GPU = Device(id="gpu0", kind="gpu", name="Radeon RX 7800", engine="wgpu", memory_bytes=1 << 34)
KEY = "relu.float32"


def book() -> Book:
    return Book("c-test", rows.counting_entropy())


def fleet_of(**speeds: float) -> list[FleetWorker]:
    """Workers by id and their speed at float32 relu and matmul, in operations or bytes a second."""
    total = sum(speeds.values())
    return [
        replace(
            rows.worker(id),
            profile=WorkerProfile(speeds={KEY: speed, "matmul.float32": speed}),
            total_speed={KEY: total, "matmul.float32": total},
            peers=len(speeds),
        )
        for id, speed in speeds.items()
    ]


def cut_evenly(spec: object, plan, cursor: int, worker: WorkerProfile, budget_s: float):
    """Whole grains within the budget, at least one: the tests' jobs are all alike."""
    grain_s = worker.seconds(replace(plan.cost, flops=plan.grain_amount))
    grains = max(1, int(budget_s / grain_s + 1e-9))
    job = rows.job(grains=plan.grains, grain_flops=plan.grain_amount)
    return rows.task_spec(job, cursor, min(plan.grains, cursor + grains))


def choices(of: Book, worker: FleetWorker, slots: int = 64, fleet: Sequence[FleetWorker] = ()) -> list[Choice]:
    return choose(of.index, worker, slots, 0.0, fleet=fleet, cut=cut_evenly)


def lease(of: Book, worker: FleetWorker, slots: int, fleet: Sequence[FleetWorker] = ()) -> list[Lease]:
    return of.lease(worker, slots, lambda c, w, n, now: choose(c, w, n, now, fleet=fleet, cut=cut_evenly), 0.0, 0.0)


# ---- the split over workers


def simulated_s(of: Book, fleet: list[FleetWorker], cut: Callable[..., object], depth: Callable[[float], int]) -> float:
    """Seconds until everything is done, each worker holding as many leases as `depth` of its last task's time says."""
    now, held, order = 0.0, {worker.id: [] for worker in fleet}, itertools.count()
    ends: list[tuple[float, int, FleetWorker]] = []
    free_at = dict.fromkeys(held, 0.0)
    last_s = dict.fromkeys(held, 1.0)

    def ask(worker: FleetWorker) -> bool:
        slots = depth(last_s[worker.id]) - len(held[worker.id])
        asking = replace(worker, held_s=max(0.0, free_at[worker.id] - now))
        got = of.lease(asking, slots, lambda c, w, n, t: choose(c, w, n, t, cut=cut), now, now)
        for one in got:
            seconds = worker.profile.seconds(one.task.spec.cost)
            begin = max(now, free_at[worker.id])
            free_at[worker.id] = begin + seconds
            last_s[worker.id] = seconds
            held[worker.id].append(one)
            heapq.heappush(ends, (begin + seconds, next(order), worker))
        return bool(got)

    hungry = list(fleet)
    while hungry:
        hungry = [worker for worker in hungry if ask(worker)]
    while ends:
        now, _, worker = heapq.heappop(ends)
        one = held[worker.id].pop(0)
        of.complete(worker.id, [rows.accepted(one)], rows.batch(worker.id, one), now)
        ask(worker)
    assert not of.index.has_ready_work()
    return now


@pytest.mark.parametrize("grains", [16, 40, 100, 1000])
@pytest.mark.parametrize("grain_flops", [2e-3 * 5e9, 0.1 * 5e9])
@pytest.mark.parametrize("slow_first", [True, False])
def test_two_workers_at_speeds_1_and_4_finish_within_1_3_of_the_ideal_split(
    grains: int, grain_flops: float, slow_first: bool
) -> None:
    fleet = fleet_of(slow=1e9, fast=4e9)
    pool = book()
    pool.add_job(rows.job(grains=grains, grain_flops=grain_flops))
    took_s = simulated_s(pool, fleet if slow_first else fleet[::-1], cut_evenly, lambda s: slots_for(s, 0.001))
    assert took_s <= 1.3 * grains * grain_flops / 5e9


@pytest.mark.parametrize("size", [1024, 2048, 8192])
def test_so_does_a_real_matrix_product(size: int) -> None:
    fleet = fleet_of(slow=5e9, fast=20e9)
    kernel = workload("kernel")
    spec = KernelSpec(operation="matmul", size=size, seed=1)
    summary = FleetSummary(workers=2, median_speed={"matmul.float32": 12.5e9}, total_speed={"matmul.float32": 25e9})
    plan = kernel.plan(spec, summary)
    pool = book()
    pool.add_job(replace(rows.job(spec=spec), plan=plan))
    took_s = simulated_s(pool, fleet, kernel.cut, lambda s: slots_for(s, 0.001))
    assert took_s <= 1.3 * plan.cost.amount / 25e9


@settings(deadline=None)
@given(
    speeds=st.lists(st.floats(1e9, 4e9), min_size=1, max_size=8),
    grains=st.integers(1, 300),
    grain_s=st.floats(0.002, 0.2),
)
def test_every_grain_is_done_once_and_no_worker_waits_long_for_another(
    speeds: list[float], grains: int, grain_s: float
) -> None:
    fleet = fleet_of(**{f"w{n}": speed for n, speed in enumerate(speeds)})
    pool = book()
    job = pool.add_job(rows.job(grains=grains, grain_flops=grain_s * sum(speeds) / len(speeds)))
    took_s = simulated_s(pool, fleet, cut_evenly, lambda s: slots_for(s, 0.001))
    assert pool.index.complete == {job.id}
    ideal_s = job.plan.cost.amount / sum(speeds)
    slowest_grain_s = job.plan.grain_amount / min(speeds)
    assert took_s <= 1.3 * ideal_s + slowest_grain_s + min(LEAST_TASK_S, ideal_s)


def test_a_small_job_uses_every_fitting_worker() -> None:
    fleet = fleet_of(a=1e9, b=1e9, c=1e9, d=1e9)
    pool = book()
    pool.add_job(rows.job(grains=16, grain_flops=2e6))
    workers = Counter[str]()
    for worker in fleet:
        workers.update(one.task.worker or "" for one in lease(pool, worker, 64))
    assert set(workers) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("speeds", [(1e9, 1e9), (1e9, 1e9, 1e9, 1e9), (1e9, 3e9)])
def test_a_short_job_gives_each_worker_one_task(speeds: tuple[float, ...]) -> None:
    fleet = fleet_of(**{f"w{n}": speed for n, speed in enumerate(speeds)})
    pool = book()
    pool.add_job(rows.job(grains=16, grain_flops=0.5 * LEAST_TASK_S / 16 * sum(speeds)))
    assert [len(lease(pool, worker, 64)) for worker in fleet] == [1] * len(fleet)
    assert not pool.index.has_ready_work()


@pytest.mark.parametrize("speed", [1e9, 3e9])
def test_no_task_of_a_longer_job_is_much_shorter_than_a_task_should_be(speed: float) -> None:
    fleet = fleet_of(slow=1e9, fast=speed)
    pool = book()
    pool.add_job(rows.job(grains=1000, grain_flops=4e6))
    seconds = []
    while pool.index.has_ready_work():
        for worker in fleet:
            seconds += [worker.profile.seconds(one.task.spec.cost) for one in lease(pool, worker, 1)]
    assert min(seconds) >= LEFT_OVER * LEAST_TASK_S


def test_a_worker_with_many_slots_leaves_the_others_their_share_of_a_job_though_more_jobs_are_ready() -> None:
    fleet = fleet_of(a=1e9, b=1e9, c=1e9, d=1e9)
    pool = book()
    first = pool.add_job(rows.job(grains=32, grain_flops=2e6))
    for _ in range(50):
        pool.add_job(rows.job(grains=4, grain_flops=2e6))
    got = lease(pool, fleet[0], 64)
    taken = sum(stop - start for one in got if one.job.id == first.id for start, stop in [one.task.spec.grains])
    assert 8 <= taken <= 9
    assert {one.job.id for one in got} > {first.id}


def test_a_task_takes_about_a_second_where_much_is_left_and_less_towards_the_end() -> None:
    (slow, fast) = fleet_of(slow=1e9, fast=4e9)
    pool = book()
    pool.add_job(rows.job(grains=1000, grain_flops=0.05 * 1e9))
    for worker in (slow, fast):
        (one,) = lease(pool, worker, 1)
        assert worker.profile.seconds(one.task.spec.cost) == pytest.approx(TASK_S)
    sizes = []
    while pool.index.has_ready_work():
        sizes += [stop - start for one in lease(pool, fast, 1) for start, stop in [one.task.spec.grains]]
    assert sizes[0] == 80
    assert sizes[-1] * 0.05 / 4 >= LEFT_OVER * LEAST_TASK_S
    assert sizes == sorted(sizes, reverse=True)


def test_a_time_limit_halves_into_the_task_and_keeps_slow_workers_away() -> None:
    slow, fast = fleet_of(slow=1e9, fast=4e9)
    spec = KernelSpec(operation="relu", time_limit_s=0.4)
    pool = book()
    job = pool.add_job(rows.job(grains=1000, grain_flops=0.1 * 4e9, spec=spec))
    (one,) = choices(pool, fast, 1)
    assert one.cut is not None
    assert fast.profile.seconds(one.cut.cost) <= 0.2
    assert fits(job, slow)
    assert not fits(replace(job, spec=replace(spec, time_limit_s=0.3)), slow)


def test_a_worker_with_work_in_hand_does_not_queue_what_another_could_start_sooner() -> None:
    slow, _ = fleet_of(slow=1e9, fast=4e9)
    pool = book()
    pool.add_job(rows.job(grains=5, grain_flops=1e6))  # a millisecond for both together, five for this one
    assert choices(pool, replace(slow, held_s=0.002)) == []
    assert len(choices(pool, replace(slow, held_s=0.0005))) == 1
    for _ in range(100):
        pool.add_job(rows.job(grains=1, grain_flops=1e6))
    assert len(choices(pool, replace(slow, held_s=0.002))) > 1


def test_a_task_so_small_that_its_way_is_longer_queues_behind_another() -> None:
    worker, _ = fleet_of(a=1e9, b=1e9)
    pool = book()
    pool.add_job(rows.job(grains=1, grain_flops=10.0))  # the way of each takes a hundred thousand times as long
    assert len(choices(pool, replace(worker, held_s=1e-6))) == 1


# ---- turns


def test_submitters_take_turns_inside_one_call_and_over_calls() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    for submitter in ("alice", "bob"):
        for _ in range(4):
            pool.add_job(rows.job(submitter=submitter, grains=1))
    owner = {id: job.submitter for id, job in pool.jobs.rows.items()}
    assert [owner[choice.job] for choice in choices(pool, worker, 4)] == ["alice", "bob", "alice", "bob"]


def test_one_who_floods_ten_thousand_jobs_delays_anothers_single_task_by_at_most_two_rounds() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    for _ in range(10_000):
        pool.add_job(rows.job(submitter="flood", grains=1))
    lease(pool, worker, 1)
    single = pool.add_job(rows.job(submitter="single", grains=1))
    served = [one.job.id for _ in range(2) for one in lease(pool, worker, 1)]
    assert single.id in served


def test_a_flooder_of_ten_thousand_jobs_that_fit_nobody_costs_a_lease_no_more_than_one_job() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    spec = KernelSpec(operation="relu", group="elsewhere")
    for _ in range(10_000):
        job = rows.job(submitter="flood", spec=spec)
        pool.add_job(replace(job, plan=replace(job.plan, needs=Needs(kind="kernel", group="elsewhere"))))
    pool.add_job(rows.job(submitter="flood", grains=1))
    pool.add_job(rows.job(submitter="single", grains=1))
    looked: list[str] = []

    def counting(candidates: Candidates, asking: FleetWorker, slots: int, now: float) -> list[Choice]:
        class Counted:
            submitters, turn = candidates.submitters, candidates.turn

            def of(self, submitter: str, fits: Fits | None = None) -> Iterator[Candidate]:
                for candidate in candidates.of(submitter, fits):
                    looked.append(candidate.job.id)
                    yield candidate

        return choose(Counted(), asking, slots, now, cut=cut_evenly)

    assert len(pool.lease(worker, 2, counting, 0.0, 0.0)) == 2
    assert len(looked) <= 8


def test_a_submitter_of_short_tasks_gets_as_much_time_as_one_of_long_tasks() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    for _ in range(200):
        pool.add_job(rows.job(submitter="long", grains=1, grain_flops=1e9))
        pool.add_job(rows.job(submitter="short", grains=1, grain_flops=1e8))
    served = Counter[str]()
    for _ in range(110):
        (one,) = lease(pool, worker, 1)
        served[one.job.submitter] += 1
    assert served == {"short": 100, "long": 10}


def test_weight_and_what_was_used_lately_move_the_shares() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    pool.registry.tokens.put("dear", TokenRow(id="dear", hash=b"", role="submitter", weight=3.0))
    for _ in range(100):
        for submitter in ("dear", "other"):
            pool.add_job(rows.job(submitter=submitter, grains=1, grain_flops=1e8))
    served = Counter(one.job.submitter for _ in range(40) for one in lease(pool, worker, 1))
    assert served == {"dear": 30, "other": 10}
    pool.registry.usage.put("dear", UsageRow(submitter="dear", seconds=1e6, at=0.0))
    got = [pool.lease(worker, 1, lambda c, w, n, t: choose(c, w, n, t, cut=cut_evenly), 2.0, 2.0) for _ in range(40)]
    after = Counter(one.job.submitter for leases in got for one in leases)
    assert after == {"dear": 22, "other": 18}, "3 · 2^−(1 ÷ ¾) against 1"


def test_usage_is_what_results_took_by_our_clock_and_is_kept() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    pool.add_job(rows.job(grains=2))
    for one in lease(pool, worker, 2):
        pool.complete("a", [rows.accepted(one, seconds=3.0)], rows.batch("a", one), 0.0)
    assert pool.registry.usage.rows["alice"].seconds == 6.0
    assert any(change.table.name == "usage" for change in pool.journal.changes)


def test_a_higher_priority_goes_first_among_ones_own_but_not_before_what_has_waited_long() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    old = pool.add_job(rows.job(grains=1, at=0.0))
    young = pool.add_job(rows.job(grains=1, at=4000.0))
    urgent = pool.add_job(rows.job(grains=1, at=5000.0, priority=1))
    assert [choice.job for choice in choices(pool, worker, 3)] == [old.id, urgent.id, young.id]


def test_a_job_whose_data_is_here_goes_before_one_that_is_little_older_and_no_further() -> None:
    (worker,) = fleet_of(a=1e9)
    near = rows.blob(7, size_bytes=1000)
    pool = book()
    tensor = Tensor(dtype="float32", shape=(50_000_000,), data=near)  # two seconds of a gigabit link
    hot = KernelSpec(operation="relu", inputs={"a": tensor})
    far_older = pool.add_job(rows.job(grains=1, at=90.0))
    older = pool.add_job(rows.job(grains=1, at=99.0))
    hers = pool.add_job(rows.job(grains=1, at=100.0, spec=hot))
    order = [far_older.id, hers.id, older.id]
    assert [choice.job for choice in choices(pool, replace(worker, hot=frozenset({near.digest})), 3)] == order
    assert [choice.job for choice in choices(pool, worker, 3)] == [far_older.id, older.id, hers.id]


def test_a_task_that_was_cut_for_a_fast_worker_is_not_offered_to_one_that_cannot_end_it_in_time() -> None:
    slow, fast = fleet = fleet_of(slow=1e9, fast=4e9)
    pool = book()
    spec = KernelSpec(operation="relu", time_limit_s=0.4)
    pool.add_job(rows.job(grains=8, grain_flops=0.05 * 4e9, spec=spec))
    leases = lease(pool, fast, 64, fleet)
    while pool.index.has_ready_work():
        leases += lease(pool, fast, 64, fleet)
    long = next(one for one in leases if fast.profile.seconds(one.task.spec.cost) > 0.1)
    pool.hand_back("fast", [long.ref], 0.0, untouched=True)
    assert choices(pool, slow, fleet=fleet) == []
    assert [choice.task for choice in choices(pool, fast, fleet=fleet)] == [long.task.id]
    job, task = pool.jobs.rows[long.job.id], pool.tasks.rows[long.task.id]
    assert "can finish task" in waiting_reason(job, [slow], waiting=[task])


def test_memory_is_asked_in_steps_so_that_alike_jobs_are_of_one_class() -> None:
    sizes = [
        needing(memory=1 << 30),
        needing(memory=(1 << 30) + 1),
        needing(memory=9 << 27),
        needing(memory=(9 << 27) + 1),
    ]
    needed = [memory_needed(job) for job in sizes]
    assert needed[0] == 1 << 30 and needed[1] == needed[2] == 9 << 27 < needed[3]
    assert all(memory_needed(job) >= job.plan.needs.memory_bytes for job in sizes)
    assert fit_class(sizes[1]) == fit_class(sizes[2]) != fit_class(sizes[3])


@given(st.integers(0, 1 << 50))
def test_no_step_asks_for_more_than_an_eighth_too_much(needed: int) -> None:
    asked = memory_needed(needing(memory=needed))
    least = max(needed, 1 << 20)
    assert least <= asked <= least * 9 / 8


# ---- a second worker


def test_a_task_that_somebody_answered_goes_to_another_owner_only() -> None:
    mine, yours = rows.worker("w-1", owner="me"), rows.worker("w-2", owner="you")
    also_mine = rows.worker("w-3", owner="me")
    pool = book()
    pool.add_job(rows.job(grains=1, spec=KernelSpec(operation="relu", check="agree")))
    pool.registry.workers.put("w-1", rows.worker_row("w-1", owner="me"))
    (one,) = lease(pool, mine, 1)
    vote = Voted(ref=one.ref, outputs={}, statement=rows.statement_of(one), index=0, seconds=1.0)
    (answer,) = pool.complete("w-1", [vote], rows.batch("w-1", one), 0.0)
    assert (answer.verdict, answer.ended) == ("accepted", False)
    assert choices(pool, mine) == choices(pool, also_mine) == []
    assert [choice.task for choice in choices(pool, yours)] == [one.task.id]


def test_who_answered_one_task_of_a_job_still_gets_the_others() -> None:
    mine, yours = rows.worker("w-1", owner="me"), rows.worker("w-2", owner="you")
    pool = book()
    pool.add_job(rows.job(grains=2, grain_flops=20e9, spec=KernelSpec(operation="relu", check="agree")))
    pool.registry.workers.put("w-1", rows.worker_row("w-1", owner="me"))
    (one,) = lease(pool, mine, 1)
    vote = Voted(ref=one.ref, outputs={}, statement=rows.statement_of(one), index=0, seconds=1.0)
    pool.complete("w-1", [vote], rows.batch("w-1", one), 0.0)
    assert [choice.task for choice in choices(pool, mine)] == [None]
    assert [choice.task for choice in choices(pool, yours)] == [one.task.id, None]


def test_what_came_back_goes_before_fresh_grains() -> None:
    (worker,) = fleet_of(a=1e9)
    pool = book()
    pool.add_job(rows.job(grains=10, grain_flops=1e9))
    (one,) = lease(pool, worker, 1)
    pool.hand_back("a", [one.ref], 0.0, untouched=True)
    assert [choice.task for choice in choices(pool, worker, 2)] == [one.task.id, None]


# ---- where it runs


def test_a_task_is_not_offered_where_it_failed_while_another_worker_fits() -> None:
    first, second = fleet = fleet_of(a=1e9, b=1e9)
    pool = book()
    pool.add_job(rows.job(grains=1))
    (one,) = lease(pool, first, 1)
    pool.complete("a", [rows.failed(one.ref)], None, 0.0)
    job, task = pool.jobs.rows[one.job.id], pool.tasks.rows[one.task.id]
    assert choices(pool, first, fleet=fleet) == []
    assert choices(pool, first) == []
    assert [choice.task for choice in choices(pool, second, fleet=fleet)] == [task.id]
    assert may_take(job, task, first, [first])
    assert may_take(job, task, first, [first, replace(second, kinds=())])
    assert not is_hopeless(job, task, "a", fleet)
    assert is_hopeless(job, task, "b", fleet)
    assert not is_hopeless(job, task, "a", [first])


def test_a_gpu_is_preferred_where_the_job_does_not_say() -> None:
    worker = rows.worker(devices=(rows.CPU, GPU))
    for engine, expected in (("auto", "gpu0"), ("cpu", "cpu"), ("gpu", "gpu0")):
        device = device_for(needing(engine=engine), worker)
        assert device is not None
        assert device.id == expected
    assert device_for(needing(device="radeon"), worker) == GPU
    assert device_for(needing(device="CPU", engine="gpu"), worker) is None


def test_several_gpus_share_the_tasks_and_the_cpu_gets_none() -> None:
    second = replace(GPU, id="gpu1")
    worker = rows.worker(devices=(GPU, second, rows.CPU))
    pool = book()
    pool.add_job(rows.job(grains=100, grain_flops=20e9))
    picked = [choice.device for choice in choices(pool, worker, 4)]
    assert picked == ["gpu0", "gpu1", "gpu0", "gpu1"]
    assert choices(pool, replace(worker, held_on={"gpu0": 2, "gpu1": 1}), 1)[0].device == "gpu1"
    assert lanes(worker.devices) == 2 and lanes((rows.CPU,)) == 1


def needing(memory: int = 0, time_limit_s: float | None = None, **needs: Any) -> JobRow:
    job = rows.job(spec=KernelSpec(operation="relu", time_limit_s=time_limit_s))
    return replace(job, plan=replace(job.plan, needs=Needs(kind="kernel", memory_bytes=memory, **needs)))


@pytest.mark.parametrize(
    ("job", "fleet", "words"),
    [
        (needing(), [], "no worker is connected"),
        (needing(), [rows.worker(kinds=("function",))], "no worker accepts kernels"),
        (needing(), [rows.worker(consent={"kernel": ["bob"]})], "no worker accepts kernels from alice"),
        (needing(), [rows.worker(consent={"kernel": ["bob", "alice"]})], ""),
        (needing(), [rows.worker(consent={"kernel": ["*"], "other": []})], ""),
        (replace(needing(), submitter_name="Ann"), [rows.worker(consent={"kernel": ["Ann"]})], ""),
        (needing(), [rows.worker(consent={"kernel": []}), rows.worker("w-2")], ""),
        (replace(needing(), submitter_groups=("lab",)), [rows.worker(consent={"kernel": ["bob", "group:lab"]})], ""),
        (
            replace(needing(), submitter_groups=("lab", "b")),
            [rows.worker(consent={"kernel": ["lab", "group:a"]})],
            "no worker accepts kernels from alice (group:lab, group:b)",
        ),
        (
            replace(needing(), submitter_name="group:lab"),
            [rows.worker(consent={"kernel": ["group:lab"]})],
            "no worker accepts kernels from group:lab",
        ),
        # what runs its submitter's own code is an owner's to let in: the step is named
        (
            needing(own_code=True),
            [rows.worker(kinds=("function",))],
            "no worker accepts kernels; `moregpu join --allow kernels` on one lets them in",
        ),
        (
            needing(own_code=True),
            [rows.worker(consent={"kernel": ["bob"]})],
            "no worker accepts kernels from alice; `moregpu join --allow kernels=alice` on one lets them in",
        ),
        (
            replace(needing(own_code=True), submitter_name="ann b"),
            [rows.worker(consent={"kernel": ["bob"]})],
            "no worker accepts kernels from ann b; `moregpu join --allow 'kernels=ann b'` on one lets them in",
        ),
        (needing(cores=999), [rows.worker()], "no worker here has a device with 999 cores"),
        (needing(group="lab"), [rows.worker()], "no connected worker is in the group 'lab'"),
        (needing(engine="gpu"), [rows.worker()], "no worker here offers a GPU"),
        (needing(device="4090"), [rows.worker(devices=(GPU,))], "no worker here has a device called '4090'"),
        (
            needing(memory=12 << 30),
            [rows.worker(profile=WorkerProfile(memory_budget_bytes=2 << 30)), rows.worker("w-2")],
            "a task needs 12.0 GiB of memory; the largest fitting worker offers 2.0 GiB",
        ),
        (needing(time_limit_s=0.01), [rows.worker()], "no worker here can finish a task within 0.01 s"),
        # the hurdle named is one that those who took the earlier ones fail at
        (
            needing(group="lab", engine="gpu"),
            [rows.worker(devices=(GPU,)), rows.worker("w-2", groups=("lab",))],
            "no worker here offers a GPU",
        ),
        (needing(group="lab"), [rows.worker(groups=("lab",))], ""),
    ],
)
def test_a_job_that_no_worker_fits_says_for_what_it_waits(job: JobRow, fleet: list[FleetWorker], words: str) -> None:
    assert waiting_reason(job, fleet) == words
    assert (words == "") == any(fits(job, worker) for worker in fleet)


def test_a_job_whose_last_task_failed_on_every_fitting_worker_says_so() -> None:
    (worker,) = fleet = fleet_of(a=1e9)
    pool = book()
    pool.add_job(rows.job(grains=1))
    (one,) = lease(pool, worker, 1)
    pool.complete("a", [rows.failed(one.ref)], None, 0.0)
    job, task = pool.jobs.rows[one.job.id], pool.tasks.rows[one.task.id]
    assert "failed a task of it once" in waiting_reason(job, fleet, waiting=[task])
    assert waiting_reason(job, [*fleet, rows.worker("b")], waiting=[task]) == ""


def test_a_job_that_comes_after_others_says_which() -> None:
    assert waiting_reason(rows.job(), [], blocked_by=["j-1"]) == "waits for j-1 to be done"
    assert waiting_reason(rows.job(), [], blocked_by=["j-1", "j-2"]) == "waits for j-1 and 1 more to be done"


# ---- queue depth


@pytest.mark.parametrize(
    ("task_s", "round_trip_s", "slots"),
    [(1.0, 0.02, 1), (0.05, 0.0, 1), (0.01, 0.005, 6), (0.001, 0.001, 52), (1e-5, 0.001, 64), (0.0, 0.0, MAX_SLOTS)],
)
def test_a_worker_holds_about_50_ms_and_two_round_trips(task_s: float, round_trip_s: float, slots: int) -> None:
    assert slots_for(task_s, round_trip_s) == slots


@given(st.floats(), st.floats())
def test_it_holds_at_least_one_and_at_most_64_whatever_was_measured(task_s: float, round_trip_s: float) -> None:
    assert 1 <= slots_for(task_s, round_trip_s) <= MAX_SLOTS
