"""How busy graphics cards are, and how much of it is the pool's own work.

Three ways, whichever a card has: AMD's driver tells its busy share in sysfs; NVIDIA's library tells it, where the
package `nvidia-ml-py` is installed; Intel's tells what each process used, and the sum over all that we may look at is
the card's use. What our own compute processes used comes from the same place and is taken off.

The figures of a process are those of the kernel's "DRM client usage stats" (`Documentation/gpu/drm-usage-stats.rst`):
nanoseconds, or cycles of a total, by engine. A card is as busy as its busiest engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from moregpu.worker.throttle.controller import Load

VENDORS = {"0x1002": ("amd", "radeon", "ati"), "0x8086": ("intel",), "0x10de": ("nvidia", "geforce")}
"""PCI vendor → words that its adapters are called by."""

DRM, PROC = Path("/sys/class/drm"), Path("/proc")

LIST_S = 10.0
"""Between two looks for processes that have a card open; those are read each time."""


class Card(Protocol):
    """One card."""

    def load(self) -> Load | None:
        """Its load since the last look; None at the first one, or where it cannot be told."""
        ...


def find_cards(
    names: Iterable[str],
    own: Callable[[], Iterable[int]],
    drm: Path = DRM,
    proc: Path = PROC,
    nvml: Callable[[], Any] | None = None,
) -> list[Card]:
    """Cards of this machine that can be watched, and that may be lent.

    Args:
        names: of the adapters that are lent; only cards of their makers count, or an office's picture on the one card
            would hold up the other. Where no maker is known in them, all cards count.
        own: the pool's processes.
        drm: where Linux tells of cards.
        proc: where it tells of processes.
        nvml: loads NVIDIA's library; raises anything where it is not there.
    """
    lent = " ".join(names).casefold()
    found: list[tuple[str, Card]] = []
    for device in _devices(drm):
        vendor, address = _word(device / "vendor"), device.resolve().name
        if (device / "gpu_busy_percent").exists():
            found.append((vendor, AmdCard(device / "gpu_busy_percent", ClientUse(address, own, proc))))
        elif vendor == "0x8086":
            found.append((vendor, SharedCard(ClientUse(address, lambda: _with_card_open(proc), proc),
                                             ClientUse(address, own, proc))))  # fmt: skip
    found += [("0x10de", card) for card in _nvidia_cards(own, nvml or _load_nvml)]
    lent_ones = [card for vendor, card in found if any(word in lent for word in VENDORS.get(vendor, ()))]
    return lent_ones or [card for _, card in found]


def busiest(loads: Iterable[Load | None]) -> Load | None:
    """The load of the card that others use most: all GPUs share one duty."""
    known = [load for load in loads if load is not None]
    return max(known, key=lambda load: load.total - load.own, default=None)


# ---- AMD -------------------------------------------------------------------------------------------------------------


class AmdCard:
    """A card whose driver says how busy it is."""

    def __init__(self, busy: Path, own: ClientUse):
        self._busy = busy
        self._own = own

    def load(self) -> Load | None:
        """What the driver says, less what our processes used."""
        own = self._own.share()
        try:
            total = int(_word(self._busy)) / 100.0
        except ValueError:  # asleep, or gone
            return None
        return None if own is None else Load(total=min(max(total, 0.0), 1.0), own=min(own, total))


# ---- Intel, and whatever else tells by process -----------------------------------------------------------------------


class SharedCard:
    """A card that tells only what each process used of it."""

    def __init__(self, everybody: ClientUse, own: ClientUse):
        self._everybody = everybody
        self._own = own

    def load(self) -> Load | None:
        """The sum over all processes that may be looked at; those of other users are not among them."""
        total, own = self._everybody.share(), self._own.share()
        return None if total is None or own is None else Load(total=min(total, 1.0), own=min(own, total, 1.0))


class ClientUse:
    """What some processes use of a card, by their open files."""

    def __init__(
        self,
        address: str,
        processes: Callable[[], Iterable[int]],
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`address` is the card's on the PCI bus, as the files name it."""
        self._address, self._processes, self._proc, self._clock = address, processes, proc, clock
        self._listed_at = -math.inf
        self._files: list[Path] = []
        self._before: dict[str, dict[str, tuple[float, float]]] | None = None
        self._at = 0.0

    def share(self) -> float | None:
        """Of the card's busiest engine, since the last call; None at the first."""
        now = self._clock()
        used = self._clients(now)
        before, elapsed = self._before, now - self._at
        self._before, self._at = used, now
        if before is None or elapsed <= 0.0:
            return None
        engines: dict[str, float] = {}
        for client, counts in used.items():
            for engine, (count, of) in counts.items():
                count0, of0 = before.get(client, {}).get(engine, (0.0, 0.0))
                span = of - of0 if of else elapsed * 1e9
                if count > count0 and span > 0.0 and (client in before):
                    engines[engine] = engines.get(engine, 0.0) + (count - count0) / span
        return max(engines.values(), default=0.0)

    def _clients(self, now: float) -> dict[str, dict[str, tuple[float, float]]]:
        """Client → engine → its count, and the count it is a part of (0: it counts nanoseconds)."""
        if now - self._listed_at >= LIST_S:
            self._listed_at, self._files = now, list(self._list())
        clients: dict[str, dict[str, tuple[float, float]]] = {}
        for file in self._files:
            facts = _facts(file)
            if facts.get("drm-pdev") == self._address and "drm-client-id" in facts:
                clients[facts["drm-client-id"]] = _engines(facts)  # a client's files all say the same
        return clients

    def _list(self) -> Iterable[Path]:
        for pid in self._processes():
            folder = self._proc / str(pid)
            try:
                names = [file.name for file in (folder / "fd").iterdir() if "/dri/" in _target(file)]
            except OSError:  # ended, or another user's
                continue
            yield from (folder / "fdinfo" / name for name in names)


def _engines(facts: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for key, value in facts.items():
        try:
            if key.startswith("drm-engine-") and not key.startswith("drm-engine-capacity-"):
                found[key.removeprefix("drm-engine-")] = (float(value.split()[0]), 0.0)
            elif key.startswith("drm-cycles-"):
                name = key.removeprefix("drm-cycles-")
                found[name] = (float(value.split()[0]), float(facts[f"drm-total-cycles-{name}"].split()[0]))
        except (ValueError, IndexError, KeyError):
            continue
    return found


def _with_card_open(proc: Path) -> Sequence[int]:
    """All processes; which of them have a card open is seen when their files are listed."""
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


# ---- NVIDIA ----------------------------------------------------------------------------------------------------------


class NvidiaCard:
    """A card by NVIDIA's management library."""

    def __init__(self, nvml: Any, handle: Any, own: Callable[[], Iterable[int]]):
        self._nvml, self._handle, self._own = nvml, handle, own
        self._seen_us = 0

    def load(self) -> Load | None:
        """Busy share, and our processes' part of it as the library samples it."""
        nvml = self._nvml
        try:
            total = nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100.0
        except nvml.NVMLError:
            return None
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen_us)
        except nvml.NVMLError:  # no process used it since
            samples = []
        self._seen_us = max([self._seen_us, *(int(sample.timeStamp) for sample in samples)])
        ours = set(self._own())
        latest = {int(sample.pid): float(sample.smUtil) for sample in samples if int(sample.pid) in ours}
        return Load(total=total, own=min(sum(latest.values()) / 100.0, total))


def _nvidia_cards(own: Callable[[], Iterable[int]], load: Callable[[], Any]) -> list[NvidiaCard]:
    try:
        nvml = load()
        nvml.nvmlInit()
        return [
            NvidiaCard(nvml, nvml.nvmlDeviceGetHandleByIndex(number), own)
            for number in range(nvml.nvmlDeviceGetCount())
        ]
    except Exception:  # noqa: BLE001 — not installed, no driver, another version: the card goes unwatched
        return []


def _load_nvml() -> Any:
    from importlib import import_module

    return import_module("pynvml")


# ---- files -----------------------------------------------------------------------------------------------------------


def _devices(drm: Path) -> list[Path]:
    try:
        cards = sorted(path for path in drm.iterdir() if path.name.startswith("card") and path.name[4:].isdigit())
    except OSError:
        return []
    return [card / "device" for card in cards]


def _facts(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""


def _word(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
