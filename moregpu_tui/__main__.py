"""`moregpu-tui`: the admin console."""

from __future__ import annotations

from moregpu_tui.cli import main

if __name__ == "__main__":
    main()
