"""The console in a real pty of 160 × 45: what it costs while it is looked at, and how fast it answers.

    python -m benchmarks.console [--json] [--check]

Fleets are rows and events as a coordinator would send them, made before the clock starts; decoding, cleaning, reducing
and drawing are measured, as in a real session. A child process shows the console; this one plays the terminal.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
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
from pathlib import Path

import msgspec

from benchmarks.report import Result, percentile, result, run

COLUMNS, ROWS = 160, 45
WARM_S = 4.0
RUNS = 3
TICK_S = 0.2
SHARE = 0.2
SECONDS = float(os.environ.get("MOREGPU_BENCH_SECONDS", "8"))


def measure() -> list[Result]:
    """Everything of the table of bars."""
    idle = [shown("idle-radar") for _ in range(RUNS)]
    still = [shown("idle-still") for _ in range(RUNS)]
    thousand = [shown("fleet-1000", keys=True) for _ in range(RUNS)]
    many = [shown("fleet-10000") for _ in range(RUNS)]
    log = [shown("log") for _ in range(RUNS)]
    delays = [delay for one in thousand for delay in one["delays_ms"]]
    keys = [delay for one in thousand for delay in one["keys_ms"]]
    load = f"load average {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors while measured"
    return [
        result("idle, radar on", [one["cpu"] for one in idle], "% of a core", "lower", 3.0, load),
        result("idle, radar on, to the terminal", [one["sent_kb_s"] for one in idle], "kB/s", "lower"),
        result("idle, radar off, to the terminal", [one["sent_kb_s"] for one in still], "kB/s", "lower", 10.0),
        result("idle, radar off", [one["cpu"] for one in still], "% of a core", "lower", 1.0),
        result("1,000 workers, 20 % at 5 Hz", [one["cpu"] for one in thousand], "% of a core", "lower", 12.0),
        result("event to screen, p95", delays, "ms", "lower", 100.0, of=percentile(0.95)),
        result("keystroke to screen, p95, same load", keys, "ms", "lower", 50.0, of=percentile(0.95)),
        result("10,000 workers, 20 % at 5 Hz", [one["cpu"] for one in many], "% of a core", "lower", 15.0),
        result("log, 300 lines a second", [one["cpu"] for one in log], "% of a core", "lower", 15.0),
        result("start to first paint", [first_paint() for _ in range(5)], "s", "lower", 1.0),
    ]


# ---- the terminal's side


def shown(scene: str, *, keys: bool = False) -> dict[str, object]:
    """One run of a scene: what the child measured, and how long keys took."""
    with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
        out = Path(folder) / "out.json"
        child, terminal = _spawn([sys.executable, "-m", "benchmarks.console", "--scene", scene, str(out)], folder)
        end = time.monotonic() + WARM_S + SECONDS + 20
        begin_keys = time.monotonic() + WARM_S + 1.0
        next_key, pressed, down, took = begin_keys, 0.0, True, []
        sent = 0
        while child.poll() is None and time.monotonic() < end:
            now = time.monotonic()
            if keys and now >= next_key and not pressed and now < begin_keys + SECONDS - 2:
                os.write(terminal, b"j" if down else b"k")
                down, pressed = not down, now
            if not select.select([terminal], [], [], 0.005)[0]:
                continue
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:
                break
            if begin_keys - 1.0 < time.monotonic() < begin_keys - 1.0 + SECONDS:
                sent += len(data)
            if pressed and b"48;2;29;53;80" in data:  # the cursor's ground
                took.append(1e3 * (time.monotonic() - pressed))
                pressed, next_key = 0.0, time.monotonic() + 0.15
        child.kill()
        child.wait()
        os.close(terminal)
        found = json.loads(out.read_text())
    return {**found, "keys_ms": took or [float("nan")], "sent_kb_s": sent / SECONDS / 1e3}


def first_paint() -> float:
    """From the start of the process to the first screen with something on it."""
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
    ours = ("MOREGPU_", "SSH_", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    terminal = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    own_home = {"MOREGPU_HOME": folder, "MOREGPU_BENCH_SECONDS": str(SECONDS)}
    environment = {**kept, **terminal, **own_home}
    child = subprocess.Popen(command, stdin=own, stdout=own, stderr=own, env=environment, start_new_session=True)
    os.close(own)
    return child, parent


# ---- the console's side


def show(scene: str, out: str) -> None:
    """In the child: a console over a made-up fleet, which measures itself."""
    from moregpu_tui.app import ConsoleApp
    from moregpu_tui.options import Options, Settings

    source = _Fleet(scene)

    class Measured(ConsoleApp):
        delays: list[float] = []
        first = 0.0

        def on_mount(self) -> None:
            super().on_mount()
            if scene.startswith("fleet"):
                self.switch_mode("workers")
            elif scene == "log":
                self.switch_mode("events")
            self.set_timer(WARM_S, self.begin)
            self.set_timer(WARM_S + SECONDS, self.finish)

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
            self.began = (time.process_time(), time.perf_counter())

        def finish(self) -> None:
            cpu, wall = time.process_time() - self.began[0], time.perf_counter() - self.began[1]
            found = {"cpu": 100 * cpu / wall, "delays_ms": self.delays or [float("nan")]}
            Path(out).write_text(json.dumps(found))
            self.exit(0)

    motion = "none" if scene == "idle-still" else "full"
    Measured(Options(), Settings(motion=motion), source).run()  # type: ignore[arg-type]


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
        from moregpu.wire.api import Event
        from moregpu_tui.state.events import Linked, happened
        from moregpu_tui.state.model import Link

        say = offer
        say(*self._pool.opening())  # type: ignore[operator]
        decode = msgspec.json.Decoder(Event).decode
        number = 0
        while True:
            await asyncio.sleep(TICK_S)
            number += 1
            for data in self._batches[number % len(self._batches)]:
                say(happened(decode(data)))  # type: ignore[operator]
            if self._scene == "log":
                say(happened(decode(self._log)))  # type: ignore[operator]
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
        run("The console in a pty of 160 × 45", measure)
