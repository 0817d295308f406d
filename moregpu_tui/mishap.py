"""A mistake of the console's own: written down whole, and told in one line."""

from __future__ import annotations

import os
import traceback

from moregpu.errors import MoreGPUError
from moregpu.platform.paths import log_folder
from moregpu.platform.private import private_folder
from moregpu.wire.text import clean

TOLD = 200
"""Characters of what went wrong: some of it may be a stranger's."""


def written_down(error: BaseException) -> MoreGPUError:
    """The error to end with. The log has the traceback, but no values: those could be secrets."""
    path = log_folder() / "console-mistake.log"
    said = clean(f"{type(error).__name__}: {error}", TOLD)
    try:
        private_folder(log_folder())
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(traceback.format_exception(error))
    except OSError as refused:
        return MoreGPUError(f"the console made a mistake and ended: {said}", f"it could not be written down: {refused}")
    return MoreGPUError(f"the console made a mistake and ended: {said}", f"the pool goes on; {path} says where")
