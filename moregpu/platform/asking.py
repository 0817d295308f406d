"""Asks on the terminal for a secret line, as it was pasted: unseen, and whole also where mail had broken it."""

from __future__ import annotations

import getpass
import os
import select
import sys
from collections.abc import Callable

MORE_S = 0.3
"""How long the rest of a line that lacks its end may take: a paste comes at once, also over a slow connection."""

_READ_BYTES = 1 << 16


def ask_for_line(words: str, lacks_its_end: Callable[[str], bool]) -> str:
    """Ask on the terminal that is standard input; raises `EOFError` where it is closed.

    `getpass` reads the first line of a paste and throws the rest away.
    """
    try:
        import termios
    except ImportError:  # Windows
        return getpass.getpass(f"{words}: ")
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    unseen = [*before]
    unseen[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, unseen)
    try:
        sys.stderr.write(f"{words}: ")
        sys.stderr.flush()
        text = _line(terminal)
        while lacks_its_end(text) and select.select([terminal], [], [], MORE_S)[0]:
            text += _line(terminal)
        return text
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)  # what is left of a paste answers no other question
        sys.stderr.write("\n")


def _line(terminal: int) -> str:
    """One line; as bytes of the terminal's own, since a buffer would hide from `select` what is there."""
    read = os.read(terminal, _READ_BYTES)
    if not read:
        raise EOFError
    return read.decode(errors="replace")
