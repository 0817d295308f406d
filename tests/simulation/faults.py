"""What each fault of a script does to a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moregpu.wire.api import WorkerChange
from tests.simulation.coordinator import ADMIN
from tests.simulation.script import Fault

if TYPE_CHECKING:
    from tests.simulation.history import History

LONGEST_FREEZE_S = 30.0


def strike(history: History, fault: Fault) -> None:
    """Make a fault happen."""
    if history.healed:
        return
    history.trace(f"fault: {fault.what} {fault.who}")
    _STRIKES[fault.what](history, fault)


def _crash_coordinator(history: History, fault: Fault) -> None:
    process = history.coordinator.process
    if fault.steps == 0:
        history.coordinator.crash()
    else:
        process.dies_at = process.steps + fault.steps


def _crash_worker(history: History, fault: Fault) -> None:
    worker = history.workers[fault.who]
    if worker.agent is not None and fault.steps:
        worker.agent.process.dies_at = worker.agent.process.steps + fault.steps % 60
    else:
        worker.crash()


def _power_off(history: History, fault: Fault) -> None:
    history.workers[fault.who].power_off()


def _sever(history: History, fault: Fault) -> None:
    agent = history.workers[fault.who].agent
    if agent is not None and agent.connection is not None:
        agent.connection.sever()


def _stall(history: History, fault: Fault) -> None:
    agent = history.workers[fault.who].agent
    if agent is not None and agent.connection is not None:
        agent.connection.stall(history.loop.now + fault.seconds, up=fault.way != "down", down=fault.way != "up")


def _cut_off(history: History, fault: Fault) -> None:
    history.workers[fault.who].cut(history.loop.now + fault.seconds, fault.way)


def _freeze_worker(history: History, fault: Fault) -> None:
    agent = history.workers[fault.who].agent
    if agent is not None:
        agent.process.frozen_until = history.loop.now + fault.seconds


def _freeze_coordinator(history: History, fault: Fault) -> None:
    history.coordinator.process.frozen_until = history.loop.now + min(fault.seconds, LONGEST_FREEZE_S)


def _wall_jump(history: History, fault: Fault) -> None:
    history.coordinator.clock.ahead_s += (fault.seconds - 10.0) * 3600.0


def _disk_full(history: History, fault: Fault) -> None:
    history.coordinator.drive.full = True

    def freed() -> None:
        history.coordinator.drive.full = False

    history.loop.call_later(fault.seconds, freed)


def _slow_disk(history: History, fault: Fault) -> None:
    history.coordinator.drive.slow_until = history.loop.now + fault.seconds


def _owner_pause(history: History, fault: Fault) -> None:
    worker = history.workers[fault.who]
    worker.paused_until = history.loop.now + fault.seconds
    if worker.agent is not None and worker.agent.process.alive:
        history.loop.call_soon(worker.agent.decide, context=worker.agent.process.context)


def _resend(history: History, fault: Fault) -> None:
    agent = history.workers[fault.who].agent
    if agent is not None and agent.process.alive:
        history.loop.call_soon(agent.resend, context=agent.process.context)


def _revoke(history: History, fault: Fault) -> None:
    id = history.workers[fault.who].id
    history.begin_admin(lambda desk: desk.revoke_worker(ADMIN, id))


def _admin_pause(history: History, fault: Fault) -> None:
    id = history.workers[fault.who].id
    history.begin_admin(lambda desk: desk.change_worker(ADMIN, id, WorkerChange(action="pause")))


def _lossy_client(history: History, fault: Fault) -> None:
    history.lossy_until[fault.who] = history.loop.now + fault.seconds


def _clone(history: History, fault: Fault) -> None:
    history.clone(fault.who)


def _housekeeping(history: History, fault: Fault) -> None:
    coordinator = history.coordinator
    if coordinator.up:
        history.loop.spawn(coordinator.process, coordinator.housekeeping())


def _engine_trouble(history: History, fault: Fault) -> None:
    history.workers[fault.who].trouble_until = history.loop.now + fault.seconds


_STRIKES: dict[str, Callable[[History, Fault], None]] = {
    "crash coordinator": _crash_coordinator,
    "restart coordinator": lambda history, fault: history.coordinator.restart(),
    "crash worker": _crash_worker,
    "power off": _power_off,
    "sever": _sever,
    "stall": _stall,
    "cut off": _cut_off,
    "freeze worker": _freeze_worker,
    "freeze coordinator": _freeze_coordinator,
    "wall jump": _wall_jump,
    "disk full": _disk_full,
    "slow disk": _slow_disk,
    "owner pause": _owner_pause,
    "resend": _resend,
    "revoke": _revoke,
    "admin pause": _admin_pause,
    "lossy client": _lossy_client,
    "clone": _clone,
    "housekeeping": _housekeeping,
    "engine trouble": _engine_trouble,
}
