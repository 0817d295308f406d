"""The machine's load, battery, heat and network."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from dbus_fast import PropertyAccess
from dbus_fast.service import ServiceInterface, dbus_property

from moregpu.worker.probes.cpu import SAMPLE_S, CpuLoad
from moregpu.worker.probes.metered import is_metered
from moregpu.worker.probes.surroundings import is_hot, on_battery
from tests.displays import served, session_bus

SPIN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


def test_the_work_of_own_processes_is_told_from_the_owners() -> None:
    spinning = subprocess.Popen([sys.executable, "-c", SPIN.format(60)])
    try:
        ours = CpuLoad(lambda: [spinning.pid])
        theirs = CpuLoad(list)
        assert ours.sample() is None, "too soon"
        child = psutil.Process(spinning.pid)
        begun, before = time.monotonic(), child.cpu_times().user
        while child.cpu_times().user < before + 0.5:  # it shares the cores with whatever else runs
            time.sleep(SAMPLE_S)
        spent = (child.cpu_times().user - before) / (time.monotonic() - begun) / (psutil.cpu_count() or 1)
        mine, foreign = ours.sample(), theirs.sample()
    finally:
        spinning.kill()
        spinning.wait()
    assert mine is not None
    assert foreign is not None
    assert mine.own > spent / 2
    assert foreign.own == 0.0
    assert theirs.others > ours.others


def test_a_child_that_ended_is_still_counted_as_own() -> None:
    pids = [os.getpid()]
    load = CpuLoad(lambda: pids)
    subprocess.run([sys.executable, "-c", SPIN.format(0.6)], check=True)
    sample = load.sample()
    assert sample is not None
    assert sample.own > 0.02


def test_processes_that_are_gone_cost_nothing() -> None:
    load = CpuLoad(lambda: [2**22 + 1])
    time.sleep(SAMPLE_S)
    assert load.sample() is not None


def supply(folder: Path, name: str, **facts: str) -> None:
    (folder / name).mkdir()
    for fact, value in facts.items():
        (folder / name / fact).write_text(value + "\n")


@pytest.mark.skipif(sys.platform != "linux", reason="sysfs")
@pytest.mark.parametrize(
    ("supplies", "battery"),
    [
        ({}, False),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Charging"}}, False),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}, "AC": {"type": "Mains", "online": "0"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}, "AC": {"type": "Mains", "online": "1"}}, False),
        ({"mouse": {"type": "Battery", "status": "Discharging", "scope": "Device"}}, False),
        ({"BAT0": {"type": "Battery", "status": "Full"}, "BAT1": {"type": "Battery", "status": "Discharging"}}, True),
    ],
)
def test_running_from_a_battery_is_seen(tmp_path: Path, supplies: dict[str, dict[str, str]], battery: bool) -> None:
    for name, facts in supplies.items():
        supply(tmp_path, name, **facts)
    assert on_battery(tmp_path) is battery


def test_a_battery_pulled_out_while_read_is_no_error(tmp_path: Path) -> None:
    assert on_battery(tmp_path / "gone") is False


@pytest.mark.parametrize(
    ("current", "high", "critical", "was_hot", "hot"),
    [
        (60.0, 80.0, 100.0, False, False),
        (76.0, 80.0, 100.0, False, True),
        (70.0, 80.0, 100.0, True, True),
        (64.0, 80.0, 100.0, True, False),
        (89.0, None, None, False, False),
        (91.0, None, None, False, True),
        (91.0, 0.0, 65261.8, False, True),  # nonsense limits, as real sensors have them
        (255.0, None, None, False, False),  # a sensor that is not connected
    ],
)
def test_heat_is_judged_by_the_sensors_own_limit_and_stays_until_it_is_over(
    current: float, high: float | None, critical: float | None, was_hot: bool, hot: bool
) -> None:
    reading = SimpleNamespace(current=current, high=high, critical=critical)
    assert is_hot({"k10temp": [reading]}, was_hot) is hot


class Network(ServiceInterface):
    def __init__(self, metered: int):
        super().__init__("org.freedesktop.NetworkManager")
        self._metered = metered

    @dbus_property(access=PropertyAccess.READ)
    def Metered(self) -> "u":  # type: ignore[name-defined]  # noqa: F821, UP037
        return self._metered


@pytest.mark.parametrize(("said", "metered"), [(0, False), (1, True), (2, False), (3, True), (4, False)])
def test_network_manager_says_whether_bytes_cost(tmp_path: Path, said: int, metered: bool) -> None:
    name, path = "org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager"
    with session_bus(tmp_path) as address, served(address, name, {path: Network(said)}):
        assert is_metered(address) is metered


def test_without_network_manager_or_bus_nothing_is_metered(tmp_path: Path) -> None:
    with session_bus(tmp_path) as address:
        assert is_metered(address) is False
    assert is_metered(f"unix:path={tmp_path}/nobody") is False
    assert is_metered("nonsense") is False
