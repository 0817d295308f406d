"""Which signals ask a program to end."""

from __future__ import annotations

import signal


def ending_signals() -> tuple[signal.Signals, ...]:
    """Signals that ask this process to end: Ctrl-C, SIGTERM, and, where there is such a thing, its terminal's end.

    The end of the terminal is none where whoever started it said so: that is all that `nohup moregpu join &` says.
    """
    asking = (signal.SIGINT, signal.SIGTERM)
    terminal = getattr(signal, "SIGHUP", None)
    return asking if terminal is None or signal.getsignal(terminal) is signal.SIG_IGN else (*asking, terminal)
