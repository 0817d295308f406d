"""The console in a real pty of 160 × 45: what it costs while it is looked at, and how fast it answers.

    python -m benchmarks.console [idle still fleet crowd log paint] [--json] [--check]

Named parts only, or all of them in about two minutes. Fleets are rows and events as a coordinator would send them, made
before the clock starts; decoding, cleaning, reducing and drawing are measured, as in a real session. A child process
shows the console; this one plays the terminal.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import random
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.report import Result, percentile, result, run

COLUMNS, ROWS = 160, 45
WARM_S = 3.0
WINDOWS, WINDOW_S = 5, 3.5
"""One console is looked at through several windows, one after the other: a new process for each would mostly start."""

TICK_S = 0.2
SHARE = 0.2
KEY_S = 0.15
SCENES = {"idle": "idle-radar", "still": "idle-still", "fleet": "fleet-1000", "crowd": "fleet-10000", "log": "log"}
PARTS = (*SCENES, "paint")

_bytecode = tempfile.TemporaryDirectory(prefix="moregpu-bench-bytecode-")


def measured(parts: Sequence[str]) -> Callable[[], list[Result]]:
    """The table of bars, or the named parts of it."""
    return lambda: [one for part in parts for one in _part(part)]


def _part(part: str) -> list[Result]:
    if part == "paint":
        first_paint()  # compiles
        return [result("start to first paint", [first_paint() for _ in range(5)], "s", "lower", 1.0)]
    seen = shown(SCENES[part], keys=part == "fleet")
    load = f"load average {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors while measured"
    core, sent = "% of a core", [seen.sent_kb_s]
    match part:
        case "idle":
            return [
                result("idle, radar on", seen.cpu, core, "lower", 3.0, load),
                result("idle, radar on, to the terminal", sent, "kB/s", "lower"),
            ]
        case "still":
            return [
                result("idle, radar off", seen.cpu, core, "lower", 1.0),
                result("idle, radar off, to the terminal", sent, "kB/s", "lower", 10.0),
            ]
        case "fleet":
            return [
                result("1,000 workers, 20 % at 5 Hz", seen.cpu, core, "lower", 12.0),
                result("event to screen, p95", seen.delays_ms, "ms", "lower", 100.0, of=percentile(0.95)),
                result("keystroke to screen, p95, same load", seen.keys_ms, "ms", "lower", 50.0, of=percentile(0.95)),
            ]
        case "crowd":
            return [result("10,000 workers, 20 % at 5 Hz", seen.cpu, core, "lower", 15.0)]
        case _:
            return [result("log, 300 lines a second", seen.cpu, core, "lower", 15.0)]


# ---- the terminal's side


class Seen(msgspec.Struct, kw_only=True):
    """What was measured of a scene: the child's own figures, and what the terminal saw."""

    cpu: list[float]  # of each window
    delays_ms: list[float]
    began_at: float  # of the first window, on the clock that both processes read
    ended_at: float
    keys_ms: list[float] = []
    sent_kb_s: float = 0.0


def shown(scene: str, *, keys: bool = False) -> Seen:
    """One run of a scene."""
    with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
        out = Path(folder) / "out.json"
        child, terminal = _spawn([sys.executable, "-m", "benchmarks.console", "--scene", scene, str(out)], folder)
        end = time.monotonic() + WARM_S + WINDOWS * WINDOW_S + 20
        next_key, pressed, down = time.monotonic() + WARM_S + 1.0, 0.0, True
        took: list[float] = []
        came: list[tuple[float, int]] = []
        while child.poll() is None and time.monotonic() < end:
            now = time.monotonic()
            if keys and now >= next_key and not pressed:
                os.write(terminal, b"j" if down else b"k")
                down, pressed = not down, now
            if not select.select([terminal], [], [], 0.005)[0]:
                continue
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:
                break
            now = time.monotonic()
            came.append((now, len(data)))
            if pressed and b"48;2;29;53;80" in data:  # the cursor's ground
                took.append(1e3 * (now - pressed))
                pressed, next_key = 0.0, now + KEY_S
        child.kill()
        child.wait()
        os.close(terminal)
        found = msgspec.json.decode(out.read_bytes(), type=Seen)
    found.keys_ms = took or [float("nan")]
    within = sum(size for at, size in came if found.began_at <= at < found.ended_at)
    found.sent_kb_s = within / (found.ended_at - found.began_at) / 1e3
    return found


def first_paint() -> float:
    """From the start of the process to the first screen with something on it: as installed, with its bytecode."""
    with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
        begun = time.monotonic()
        child, terminal = _spawn([sys.executable, "-m", "moregpu_tui", "--demo"], folder)
        seen = b""
        while b"Overview" not in seen and time.monotonic() < begun + 30:
            if select.select([terminal], [], [], 0.05)[0]:
                seen += os.read(terminal, 1 << 16)
        took = time.monotonic() - begun
        child.kill()
        child.wait()
        os.close(terminal)
    return took


def _spawn(command: list[str], folder: str) -> tuple[subprocess.Popen[bytes], int]:
    parent, own = pty.openpty()
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    ours = ("MOREGPU_", "SSH_", "NO_COLOR", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    own_places = {"MOREGPU_HOME": folder, "PYTHONPYCACHEPREFIX": _bytecode.name}
    environment = {**kept, **terminal, **own_places}
    child = subprocess.Popen(command, stdin=own, stdout=own, stderr=own, env=environment, start_new_session=True)
    os.close(own)
    return child, parent


# ---- the console's side


def show(scene: str, out: str) -> None:
    """In the child: a console over a made-up fleet, which measures itself."""
    from moregpu.platform.memory import settle
    from moregpu_tui.app import ConsoleApp
    from moregpu_tui.options import Options, Settings

    source = _Fleet(scene)

    class Measured(ConsoleApp):
        delays: list[float] = []
        first = 0.0

        def on_mount(self) -> None:  # beside the console's own, which Textual calls as well
            if scene.startswith("fleet"):
                self.switch_mode("workers")
            elif scene == "log":
                self.switch_mode("events")
            self.set_timer(WARM_S, self.begin)

        def offer(self, *inputs: object) -> None:
            if inputs and not self.first:
                self.first = time.perf_counter()
            super().offer(*inputs)  # type: ignore[arg-type]

        def _pump(self) -> None:
            first, self.first = self.first, 0.0
            super()._pump()
            if first:
                self.call_after_refresh(lambda: self.delays.append(1e3 * (time.perf_counter() - first)))

        def begin(self) -> None:
            self.delays.clear()
            self.cpu: list[float] = []
            self.marks = [(time.process_time(), time.monotonic())]
            self.set_interval(WINDOW_S, self.look, repeat=WINDOWS)

        def look(self) -> None:
            cpu, wall = time.process_time(), time.monotonic()
            before = self.marks[-1]
            self.marks.append((cpu, wall))
            self.cpu.append(100 * (cpu - before[0]) / (wall - before[1]))
            if len(self.cpu) < WINDOWS:
                return
            found = Seen(
                cpu=self.cpu, delays_ms=self.delays or [float("nan")], began_at=self.marks[0][1], ended_at=wall
            )
            Path(out).write_bytes(msgspec.json.encode(found))
            self.exit(0)

    motion = "none" if scene == "idle-still" else "full"
    app = Measured(Options(), Settings(motion=motion), source)  # type: ignore[arg-type]
    settle()
    app.run()


class _Fleet:
    """Rows once, then events from bytes, as they come from a socket."""

    kind = ""
    watched_job = ""

    def __init__(self, scene: str) -> None:
        from moregpu.wire.api import Event
        from moregpu_tui.feed.demo import SimulatedPool

        self._scene = scene
        count = int(scene.split("-")[1]) if scene.startswith("fleet") else 14
        self._pool = SimulatedPool(count)
        if scene.startswith("idle"):  # a pool in which nothing runs
            self._pool.jobs = {id: job for id, job in self._pool.jobs.items() if job.ended_at is not None}
        chance = random.Random(5)
        ids = [*self._pool.workers]
        self._batches: list[list[bytes]] = []
        for _ in range(10):
            chosen = chance.sample(ids, int(SHARE * count)) if scene.startswith("fleet") else []
            self._batches.append(
                [
                    msgspec.json.encode(
                        Event(
                            type="worker.live",
                            id=id,
                            at=time.time() + 1e6,
                            data={
                                "duty": {"gpu0": chance.random()},
                                "user_load": chance.random(),
                                "reason": "",
                                "round_trip_s": chance.random() / 20,
                                "leases": chance.randrange(5),
                            },
                        )
                    )
                    for id in chosen
                ]
            )
        lines = [f"epoch {number}: loss {chance.random():.5f}, {chance.random():.3f} s" for number in range(60)]
        data = {"lines": lines, "worker": ids[0]}
        self._log = msgspec.json.encode(Event(type="log", id="j-1", at=time.time(), data=data))

    async def run(self, offer: object) -> None:
        from moregpu_tui.state.events import Linked, heard
        from moregpu_tui.state.model import Link

        say = offer
        say(*self._pool.opening())  # type: ignore[operator]
        number = 0
        while True:
            await asyncio.sleep(TICK_S)
            number += 1
            for data in self._batches[number % len(self._batches)]:
                say(heard(data))  # type: ignore[operator]
            if self._scene == "log":
                say(heard(self._log))  # type: ignore[operator]
            if number % 5 == 0:
                say(Linked(link=Link(state="live", heard_at=time.monotonic(), lag_s=0.01)))  # type: ignore[operator]

    async def close(self) -> None:
        """Nothing to let go."""

    async def fetch_job(self, _id: str) -> None:
        """Nothing to fetch."""

    def resync(self) -> None:
        """Nothing to read."""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--scene"]:
        show(sys.argv[2], sys.argv[3])
    else:
        words = [word for word in sys.argv[1:] if word in PARTS]
        rest = [word for word in sys.argv[1:] if word not in PARTS]
        run("The console in a pty of 160 × 45", measured(words or PARTS), rest)
