"""Battery, heat and metered networks: what changes in seconds, looked at on a thread of its own."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from moregpu.worker.probes.metered import is_metered

_log = logging.getLogger(__name__)

BATTERY_S = 2.0
HEAT_S = 10.0
METERED_S = 60.0

HOT_C = 90.0
"""Hot when the sensor names no limit of its own."""

BELOW_LIMIT_C = 5.0
"""Hot that much below a sensor's limit: the chip slows itself down there."""

COOL_AGAIN_C = 10.0
"""Stays hot until it is cooler than hot by so much, else heat and rest would alternate."""

SUPPLIES = Path("/sys/class/power_supply")


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's circumstances. What cannot be told is False: few machines have all sensors."""

    on_battery: bool = False
    hot: bool = False
    metered: bool = False


class SurroundingsWatch:
    """Looks from time to time."""

    def __init__(self, changed: Callable[[], None], supplies: Path = SUPPLIES):
        """`changed` is called on its thread. `supplies`: where Linux tells of batteries and plugs."""
        self.now = Surroundings()
        self._changed = changed
        self._supplies = supplies
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="surroundings", daemon=True).start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()

    def _run(self) -> None:
        heat_at = metered_at = 0.0
        hot = metered = False
        while True:
            now = time.monotonic()
            if now >= heat_at:
                hot, heat_at = is_hot(_sensors(), hot), now + HEAT_S
            if now >= metered_at:
                metered, metered_at = is_metered(), now + METERED_S
            seen = Surroundings(on_battery=on_battery(self._supplies), hot=hot, metered=metered)
            if seen != self.now:
                self.now = seen
                if self._stop.is_set():
                    return
                self._changed()
            if self._stop.wait(BATTERY_S):
                return


def on_battery(supplies: Path = SUPPLIES) -> bool:
    """Whether a battery of the machine itself is being emptied; a mouse's battery does not count."""
    if sys.platform != "linux":
        battery = psutil.sensors_battery()
        return battery is not None and battery.power_plugged is False
    discharging = False
    try:
        for supply in supplies.iterdir():
            kind, scope = _word(supply / "type"), _word(supply / "scope")
            if kind in ("Mains", "USB") and _word(supply / "online") == "1":
                return False
            if kind == "Battery" and scope != "Device":
                discharging = discharging or _word(supply / "status") == "Discharging"
    except OSError:
        return False
    return discharging


def _word(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def is_hot(sensors: Mapping[str, Iterable[Any]], was_hot: bool) -> bool:
    """Whether any sensor is near its limit (`psutil.sensors_temperatures`: current, high, critical in °C)."""
    for readings in sensors.values():
        for reading in readings:
            limits = [limit for limit in (reading.high, reading.critical) if limit and 40.0 < limit < 150.0]
            hot_c = min([limit - BELOW_LIMIT_C for limit in limits], default=HOT_C)
            if reading.current < 150.0 and reading.current >= hot_c - (COOL_AGAIN_C if was_hot else 0.0):
                return True
    return False


def _sensors() -> Mapping[str, Iterable[Any]]:
    read: Callable[[], Mapping[str, Iterable[Any]]] | None = getattr(psutil, "sensors_temperatures", None)
    if read is None:  # Windows and macOS have none
        return {}
    try:
        return read()
    except (OSError, RuntimeError):
        return {}
