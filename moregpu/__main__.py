"""`python -m moregpu`: the `moregpu` command of this very interpreter."""

from __future__ import annotations

from moregpu.cli.main import main

if __name__ == "__main__":
    main()
