"""What others use of a graphics card, on files as Linux shows them and a library that answers as NVIDIA's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moregpu.worker.probes.gpu import ClientUse, busiest, find_cards
from moregpu.worker.probes.gpu_watch import GpuWatch
from moregpu.worker.throttle.controller import Load

AMD, INTEL = "0000:03:00.0", "0000:00:02.0"


class Machine:
    """`/sys/class/drm` and `/proc`, as files."""

    def __init__(self, folder: Path):
        self.drm, self.proc = folder / "drm", folder / "proc"
        self.drm.mkdir()
        self.proc.mkdir()
        self._pci = folder / "pci"

    def card(self, number: int, vendor: str, address: str, busy: int | None = None) -> Path:
        device = self._pci / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        if busy is not None:
            (device / "gpu_busy_percent").write_text(f"{busy}\n")
        (self.drm / f"card{number}").mkdir()
        (self.drm / f"card{number}" / "device").symlink_to(device)
        (self.drm / f"card{number}-HDMI-A-1").mkdir()  # a connector, no card
        return device

    def process(self, pid: int, address: str, client: int, files: int = 1, **engines: str) -> None:
        """A process that has the card open, in so many files of one client."""
        for folder in ("fd", "fdinfo"):
            (self.proc / str(pid) / folder).mkdir(parents=True, exist_ok=True)
        for number in range(files):
            link = self.proc / str(pid) / "fd" / str(client * 100 + number)
            if not link.is_symlink():
                link.symlink_to("/dev/dri/renderD128")
            lines = [f"drm-driver:\tany\ndrm-pdev:\t{address}\ndrm-client-id:\t{client}"]
            lines += [f"drm-{name.replace('_', '-')}:\t{value}" for name, value in engines.items()]
            (self.proc / str(pid) / "fdinfo" / link.name).write_text("\n".join(lines) + "\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    defaults = ClientUse.__init__.__defaults__
    assert defaults is not None
    monkeypatch.setattr(ClientUse.__init__, "__defaults__", (defaults[0], lambda: now[0]))
    return now


def no_nvml() -> Any:
    raise ImportError("no such library")


def find(machine: Machine, *names: str, own: Callable[[], list[int]] = list) -> Any:
    return find_cards(names, own, machine.drm, machine.proc, no_nvml)


def test_amds_busy_share_less_what_our_processes_used(machine: Machine, clock: list[float]) -> None:
    device = machine.card(0, "0x1002", AMD, busy=0)
    machine.process(7, AMD, 1, files=3, engine_compute="1000000000 ns")
    (card,) = find(machine, "AMD Radeon RX", own=lambda: [7])
    assert card.load() is None
    (device / "gpu_busy_percent").write_text("80\n")
    machine.process(7, AMD, 1, files=3, engine_compute="1250000000 ns")
    clock[0] += 0.5
    assert card.load() == Load(total=0.8, own=0.5), "three files of one client are one client"


def test_a_card_that_sleeps_tells_nothing(machine: Machine, clock: list[float]) -> None:
    device = machine.card(0, "0x1002", AMD, busy=5)
    (card,) = find(machine, "AMD Radeon RX")
    card.load()
    (device / "gpu_busy_percent").unlink()
    clock[0] += 0.5
    assert card.load() is None


def test_intels_use_is_the_sum_over_processes_of_its_busiest_engine(machine: Machine, clock: list[float]) -> None:
    machine.card(0, "0x8086", INTEL)
    machine.process(7, INTEL, 1, engine_render="0 ns", engine_video="0 ns")
    machine.process(8, INTEL, 2, engine_render="0 ns")
    machine.process(9, "0000:09:00.0", 2, engine_render="0 ns")  # on another card
    (card,) = find(machine, "Intel(R) Iris(R) Xe", own=lambda: [7])
    assert card.load() is None
    machine.process(7, INTEL, 1, engine_render="100000000 ns", engine_video="50000000 ns")
    machine.process(8, INTEL, 2, engine_render="150000000 ns")
    machine.process(9, "0000:09:00.0", 2, engine_render="500000000 ns")
    clock[0] += 0.5
    load = card.load()
    assert load is not None
    assert (load.total, load.own) == pytest.approx((0.5, 0.2))


def test_cycles_are_a_share_of_the_cycles_there_were(machine: Machine, clock: list[float]) -> None:
    machine.card(0, "0x8086", INTEL)
    machine.process(8, INTEL, 2, cycles_rcs="1000", total_cycles_rcs="10000")
    (card,) = find(machine, "Intel Arc")
    card.load()
    machine.process(8, INTEL, 2, cycles_rcs="1300", total_cycles_rcs="11000")
    clock[0] += 0.5
    load = card.load()
    assert load is not None and load.total == pytest.approx(0.3)


def test_a_process_that_came_or_went_between_two_looks_counts_for_nothing(machine: Machine, clock: list[float]) -> None:
    machine.card(0, "0x8086", INTEL)
    machine.process(8, INTEL, 2, engine_render="9000000000 ns")
    (card,) = find(machine, "Intel Arc")
    card.load()
    (machine.proc / "8" / "fdinfo" / "200").unlink()
    machine.process(9, INTEL, 3, engine_render="9000000000 ns")
    clock[0] += 11.0
    assert card.load() == Load(total=0.0, own=0.0)


def test_lines_that_make_no_sense_are_passed_over(machine: Machine, clock: list[float]) -> None:
    machine.card(0, "0x8086", INTEL)
    machine.process(8, INTEL, 2, engine_render="many ns", engine_capacity_video="2", cycles_rcs="3", engine_copy="")
    (card,) = find(machine, "Intel Arc")
    card.load()
    clock[0] += 0.5
    assert card.load() == Load(total=0.0, own=0.0)


def test_only_cards_of_the_makers_that_are_lent_are_watched(machine: Machine) -> None:
    machine.card(0, "0x8086", INTEL)
    machine.card(1, "0x1002", AMD, busy=5)
    assert len(find(machine, "AMD Radeon RX 7900")) == 1
    assert len(find(machine, "a card of an unknown maker")) == 2
    assert find_cards([], list, machine.drm / "none", machine.proc, no_nvml) == []


# ---- NVIDIA ----


class Library:
    """Answers as `pynvml` does."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.busy = 0
        self.samples: list[Any] = []
        self.asked_since: list[int] = []
        self.is_lost = False

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, number: int) -> str:
        return f"card {number}"

    def nvmlDeviceGetUtilizationRates(self, _handle: str) -> Any:
        if self.is_lost:
            raise self.NVMLError("GPU is lost")
        return SimpleNamespace(gpu=self.busy, memory=0)

    def nvmlDeviceGetProcessUtilization(self, _handle: str, since: int) -> list[Any]:
        self.asked_since.append(since)
        if not self.samples:
            raise self.NVMLError("not found")
        return self.samples


def test_nvidias_library_tells_both(machine: Machine) -> None:
    library = Library()
    (card,) = find_cards(["NVIDIA GeForce RTX"], lambda: [7], machine.drm, machine.proc, lambda: library)
    assert card.load() == Load(total=0.0, own=0.0)
    library.busy = 90
    library.samples = [
        SimpleNamespace(pid=7, smUtil=20, timeStamp=5), SimpleNamespace(pid=7, smUtil=30, timeStamp=9),
        SimpleNamespace(pid=8, smUtil=60, timeStamp=9),
    ]  # fmt: skip
    assert card.load() == Load(total=0.9, own=0.3)
    card.load()
    assert library.asked_since == [0, 0, 9]
    library.is_lost = True
    assert card.load() is None


# ---- the thread ----


class Slow:
    """A card whose driver answers when it may."""

    def __init__(self, load: Load):
        self.answer, self.may = load, threading.Event()

    def load(self) -> Load | None:
        self.may.wait()
        return self.answer


def test_a_driver_that_hangs_holds_nobody_up_and_what_it_says_is_told_once() -> None:
    card = Slow(Load(total=0.5, own=0.1))
    watch = GpuWatch(lambda: [card])
    assert watch.sample() is None
    card.may.set()
    end = time.monotonic() + 30.0
    while (load := watch.sample()) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    watch.close()
    assert load == card.answer


def test_the_card_that_others_use_most_counts() -> None:
    assert busiest([None, Load(total=0.9, own=0.9), Load(total=0.4, own=0.1)]) == Load(total=0.4, own=0.1)
    assert busiest([None]) is None
