"""Which pool a console shows: what the options say, else the profile of this machine."""

from __future__ import annotations

from pathlib import Path

from moregpu.client.access import Access, find_access
from moregpu_tui.feed.source import Source
from moregpu_tui.options import Options


def choose_source(options: Options) -> Source:
    """The source for these options. Raises `NotConfigured` when no pool is known here."""
    if options.demo:
        from moregpu_tui.feed.demo import SimulatedPool

        return SimulatedPool(options.demo_workers, churn=options.demo_churn)
    if options.replay:
        from moregpu_tui.feed.replay import Replay

        return Replay(Path(options.replay))
    from moregpu_tui.feed.live import LivePool

    return LivePool(access_of(options))


def access_of(options: Options) -> Access:
    """How to reach the pool that the options, the environment or a profile name."""
    return find_access(options.connect or None, profile=options.profile or None)
