"""The linear view: a line for each thing that happens, figures now and then. For screen readers and logs."""

from __future__ import annotations

import asyncio
import contextlib
import locale
import os
import signal
import sys
import time

from moregpu.platform.signals import ending_signals
from moregpu_tui.feed.choose import choose_source
from moregpu_tui.options import Options, load_settings
from moregpu_tui.present.bar import connection
from moregpu_tui.present.glyphs import glyphs, plain
from moregpu_tui.present.log import log_line
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.time import zone_of
from moregpu_tui.present.units import per_second, plural
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.selectors import job_counts, needs
from moregpu_tui.state.store import BATCH_S, Store

FIGURES_S = 30.0


def run_plain(options: Options) -> int:
    """Print until interrupted."""
    return asyncio.run(_print(options))


async def _print(options: Options) -> int:
    settings = load_settings()
    manner = Manner(
        glyphs=glyphs("ascii" if options.ascii else settings.glyphs, os.environ, locale.getpreferredencoding(False)),
        zone=zone_of(settings.zone),
    )
    source = choose_source(options)
    store = Store()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    status = 0

    def end(number: int) -> None:
        nonlocal status
        status = 0 if number == signal.SIGINT else 128 + number
        ended.set()

    for number in ending_signals():
        loop.add_signal_handler(number, end, number)
    feeding = asyncio.create_task(source.run(store.offer))
    try:
        await _follow(store, manner, ended)
    except BrokenPipeError:  # whoever read is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await source.close()
    return status


async def _follow(store: Store, manner: Manner, ended: asyncio.Event) -> None:
    shown = 0
    next_figures = 0.0
    before = ""
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), BATCH_S)
        now = time.monotonic()
        store.take(now)
        store.sample(now)
        state = store.state
        fresh = state.log_total - shown
        shown = state.log_total
        for entry in state.log[-fresh:] if fresh else ():
            _say("".join(text for text, _ in log_line(entry, manner)), manner)
        word = connection(state, manner, now)[0].strip().split(",")[0].rstrip("0123456789. ms")
        if word != before or (state.loaded and now >= next_figures):
            before = word
            next_figures = now + FIGURES_S
            _say(_figures(state, manner, now), manner)
            for need in needs(state, 5) if state.loaded else ():
                _say(f"  needs you: {need.text}", manner)


def _figures(state: PoolState, manner: Manner, now: float) -> str:
    queued, running = job_counts(state)
    online = sum(worker.connected for worker in state.workers.values())
    rate = state.history.get("throughput", (0.0,))[-1] if state.history else 0.0
    name = state.pool.name if state.pool else "pool"
    return (
        f"{name}:{connection(state, manner, now)[0]}, {online} of {plural(len(state.workers), 'worker')} online, "
        f"{plural(queued, 'job')} waiting, {running} running, {per_second(rate)}"
    )


def _say(line: str, manner: Manner) -> None:
    sys.stdout.write(plain(line, manner.glyphs) + "\n")
    sys.stdout.flush()
