"""`python -m moregpu`: the `moregpu` command of this very interpreter."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Load the command and run it. Ctrl-C ends it without a traceback from its first moment on."""
    try:
        from moregpu.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
