"""`moregpu-tui`: the admin console, not built yet."""

from __future__ import annotations

import sys


def main() -> None:
    """Say what to use meanwhile."""
    sys.exit("moregpu-tui is not there yet. Meanwhile: moregpu workers, moregpu jobs, moregpu job ID")


if __name__ == "__main__":
    main()
