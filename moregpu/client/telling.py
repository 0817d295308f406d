"""What a program is told beside its results, on its stderr: never a reason for anything to fail."""

from __future__ import annotations

import sys


def is_watched() -> bool:
    """Whether stderr is a terminal. It may be anything, or nothing: programs without a window of text have none."""
    try:
        return bool(sys.stderr.isatty())
    except Exception:  # noqa: BLE001  (closed, or somebody's own stand-in)
        return False


def tell(text: str) -> None:
    """Write to stderr, if anybody reads it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # noqa: BLE001, S110  (nobody reads it)
        pass
