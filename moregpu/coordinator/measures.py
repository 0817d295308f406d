"""What a coordinator counts: tasks as they are judged, jobs as they end, requests as they are answered.

Counts begin at zero with the process, as Prometheus expects. The names without a unit in them are those that dashboards
of MoreGPU 1.x ask for; `docs/operations.md` lists all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from moregpu.coordinator.cases import Ruling
from moregpu.coordinator.metrics import Counter, Histogram
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.protocol import JobRow, Store
from moregpu.jobs import JobState
from moregpu.wire.api import Event

SAMPLE_S = 3.0
SAMPLES = 30
"""Trends hold the work of the last 30 spans of 3 s, as in MoreGPU 1.x."""

_ENDS = {f"job.{state.value}": state for state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)}


class Measures:
    """Counters and histograms of one coordinator, and the short history that trends show."""

    def __init__(self, store: Store, clock: Clock):
        self._store = store
        self._clock = clock
        self._queued_at: dict[str, float] = {}
        self.jobs = Counter("moregpu_jobs_ended_total", "Jobs that ended, by kernel and state", ("kernel", "state"))
        self.jobs_submitted = Counter("moregpu_jobs_total", "Jobs submitted since the coordinator started")
        self.jobs_done = Counter("moregpu_jobs_done", "Jobs that ended as done")
        self.jobs_failed = Counter("moregpu_jobs_failed", "Jobs that ended as failed")
        self.per_kernel = Counter("moregpu_kernel_jobs_total", "Jobs that ended, by kernel", ("kernel",))
        self.tasks_done = Counter("moregpu_shards_done", "Tasks whose result was accepted")
        self.tasks_failed = Counter("moregpu_shards_failed", "Attempts that failed or were wrong")
        self.gpu_tasks = Counter("moregpu_gpu_shards", "Accepted tasks computed on GPUs")
        self.cpu_tasks = Counter("moregpu_cpu_shards", "Accepted tasks computed on CPUs")
        self.units = Counter("moregpu_total_units", "Elements of output computed")
        self.operations = Counter("moregpu_total_ops", "Arithmetic operations computed")
        self.worker_units = Counter("", "", ("worker",))
        self.worker_operations = Counter("", "", ("worker",))
        self.worker_tasks = Counter("", "", ("worker",))
        self.worker_errors = Counter("", "", ("worker",))
        self.worker_seconds = Counter("", "", ("worker",))
        self.task_seconds = Histogram("moregpu_task_seconds", "Time of a task on its worker, by our clock", ("kernel",))
        self.queue_seconds = Histogram("moregpu_queue_wait_seconds", "Time from a job's submission to its first lease")
        self.job_seconds = Histogram("moregpu_job_seconds", "Time from a job's submission to its end", ("kernel",))
        self.check_seconds = Histogram("moregpu_check_seconds", "Time spent checking a job's results")
        self.request_seconds = Histogram(
            "moregpu_http_request_seconds", "Time of an HTTP request to the end of its answer", ("route", "verb")
        )
        self.requests = Counter("moregpu_http_requests_total", "HTTP requests answered", ("route", "verb", "status"))
        self._unit_trends: dict[str, deque[int]] = {"": deque(maxlen=SAMPLES)}
        self._units_before: dict[str, float] = {}

    async def run(self) -> None:
        """Take in what happens until cancelled."""
        unsubscribe = self._store.subscribe(self._committed)
        try:
            while True:
                await asyncio.sleep(SAMPLE_S)
                self.sample(self.worker_units.subjects())  # not all of a large fleet: those that ever worked
        finally:
            unsubscribe()

    def judged(self, worker: str, device: str, ruling: Ruling) -> None:
        """A result was judged. `device`: "gpu" or "cpu"."""
        if ruling.completed.verdict == "accepted":
            if not ruling.fresh:  # a resend of what was counted before
                return
            self.tasks_done.add(1)
            (self.gpu_tasks if device == "gpu" else self.cpu_tasks).add(1)
            self.units.add(ruling.units)
            self.operations.add(ruling.flops)
            self.worker_units.add(ruling.units, worker)
            self.worker_operations.add(ruling.flops, worker)
            self.worker_tasks.add(1, worker)
            self.worker_seconds.add(ruling.seconds, worker)
            self.task_seconds.observe(ruling.seconds, ruling.speed_key.partition(".")[0] or "other")
        elif ruling.failed:
            self.tasks_failed.add(1)
            self.worker_errors.add(1, worker)

    def answered(self, route: str, verb: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests.add(1, route, verb, str(status))
        self.request_seconds.observe(seconds, route, verb)

    def trend(self, worker: str = "") -> list[int]:
        """Units of the last spans of a worker, or of the pool."""
        return list(self._unit_trends.get(worker, ()))

    def families(self) -> Iterable[str]:
        """HELP, TYPE and samples of all that is counted here."""
        for figure in (
            self.jobs_submitted, self.jobs_done, self.jobs_failed, self.jobs, self.per_kernel,
            self.tasks_done, self.tasks_failed, self.gpu_tasks, self.cpu_tasks, self.units, self.operations,
            self.task_seconds, self.queue_seconds, self.job_seconds, self.check_seconds,
            self.request_seconds, self.requests,
        ):  # fmt: skip
            yield from figure.lines()

    # ---- taking in

    def _committed(self, events: list[Event]) -> None:
        for event in events:
            if not event.type.startswith("job."):
                continue
            if event.type == "job.queued":
                self.jobs_submitted.add(1)
                self._queued_at[event.id] = event.at
            elif event.type == "job.running":
                queued_at = self._queued_at.get(event.id)
                if queued_at is not None:
                    self.queue_seconds.observe(max(0.0, event.at - queued_at))
            elif event.type in _ENDS:
                self._queued_at.pop(event.id, None)
                row = self._store.job_in_memory(event.id)
                if row is not None:
                    self._job_ended(row)

    def _job_ended(self, row: JobRow) -> None:
        kernel = str(getattr(row.spec, "operation", row.kind))
        self.jobs.add(1, kernel, row.state.value)
        self.per_kernel.add(1, kernel)
        if row.state is JobState.DONE:
            self.jobs_done.add(1)
        elif row.state is JobState.FAILED:
            self.jobs_failed.add(1)
        if row.ended_at is not None:
            self.job_seconds.observe(max(0.0, row.ended_at - row.created_at), kernel)
        self.check_seconds.observe(row.checking_s)

    def sample(self, workers: list[str]) -> None:
        """Close a span of the trends."""
        for worker in ("", *workers):
            now = self.worker_units.value(worker) if worker else self.units.value()
            if not now and worker not in self._unit_trends:
                continue
            before, self._units_before[worker] = self._units_before.get(worker, 0.0), now
            trend = self._unit_trends.setdefault(worker, deque(maxlen=SAMPLES))
            trend.append(int(now - before))
