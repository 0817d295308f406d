"""`moregpu-tray`: the worker in the system tray, not built yet."""

from __future__ import annotations

import sys


def main() -> None:
    """Say what to use meanwhile."""
    sys.exit("moregpu-tray is not there yet. Meanwhile: moregpu join")


if __name__ == "__main__":
    main()
