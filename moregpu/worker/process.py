"""The agent's own process, started by the supervisor: `python -m moregpu.worker.process PARENT_PID`.

Settings come in JSON over standard input. It ends with 0 when it was asked to stop, with an error's own status when
that error is final; any other end makes the supervisor start it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from moregpu.errors import MoreGPUError
from moregpu.platform import logs
from moregpu.platform.signals import ending_signals
from moregpu.wire.text import clean
from moregpu.worker.agent import Agent
from moregpu.worker.config import WorkerConfig
from moregpu.worker.death import die_with
from moregpu.worker.home import WorkerHome, worker_folder
from moregpu.worker.status import Lines, Status
from moregpu.worker.supervisor import FINAL


def main() -> None:
    """Run the agent of the settings on standard input."""
    die_with(int(sys.argv[1]))
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerConfig)
    folder = worker_folder(config.state)
    log = folder / "logs" / "worker.log"
    try:
        home = WorkerHome.existing(folder)
        logs.set_up(path=log)
        threading.excepthook = logs.thread_ended
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(run_agent(Agent(home, config, say_json if config.json_lines else say_status)))
    except MoreGPUError as error:
        say(f"moregpu: {clean(str(error), 1000)}", error=True)
        _end(FINAL + error.exit_code)
    except Exception:  # a defect; the supervisor starts it again, and the owner is spared the traceback
        logging.getLogger(__name__).exception("the agent ended")
        say(f"moregpu: the worker met an error of its own; details are in {log}", error=True)
        _end(1)
    _end(0)


async def run_agent(agent: Agent) -> None:
    """Run an agent; a signal that asks it to end makes it hand back its work and leave."""
    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, agent.stop)
    await agent.run()


_lines = Lines()
_said = ""


def say_status(status: Status) -> None:
    """Print the status line when it says something new, and now and then while the pool is away."""
    line = _lines.next(status, time.monotonic())
    if line is not None:
        say(line)


def say_json(status: Status) -> None:
    """Print a status whose line says something new as one JSON object."""
    global _said
    if status.line != _said:
        _said = status.line
        say(msgspec.json.encode(status).decode())


def say(line: str, *, error: bool = False) -> None:
    """Print a line at once, for whoever reads this process's output."""
    stream = sys.stderr if error else sys.stdout
    try:
        stream.write(line + "\n")
        stream.flush()
    except OSError:
        pass  # whoever read it is gone; the work goes on


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop where it exists: a tiny task costs a third less."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def _end(status: int) -> None:
    """Leave without waiting for threads that hang in a transfer; everything that matters is closed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
