"""The one logger set-up: stdlib `logging`, one JSON object a line, and no secret in it.

    log = logging.getLogger(__name__)
    log.info("worker joined", extra=facts(worker=id))

Secrets are never passed to a logger in the first place; the formatter blots out what looks like a token or an invite
all the same, since exceptions of libraries quote what they were given.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

import msgspec

from moregpu.platform.private import private_folder

_SECRET = re.compile(
    r"""mgt_[A-Za-z0-9]{4,16}_[A-Za-z0-9_\-]{8,}     # client tokens
      | MGPUC?1-[0-9A-Za-z\-\s]{20,}                 # invites and client lines
      | (?i:bearer)\s+[^\s"',]{8,}                   # whatever stood in an Authorization header
    """,
    re.VERBOSE,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
LOG_FILE_BYTES = 10 << 20
LOG_FILES_KEPT = 3


def facts(**values: Any) -> dict[str, Any]:
    """`extra=` of a log call: facts that stand beside the message, by name."""
    return {"facts": values}


def set_up(level: str = "info", *, path: Path | None = None, stream: TextIO | None = None) -> logging.Handler:
    """Send all logging, as JSON lines, to a file (rotated, 0600) or a stream (standard error by default).

    A file that cannot be written, on a full disk say, stops nobody: that is said once, and nothing is logged.
    """
    handler = logging.StreamHandler(stream or sys.stderr) if path is None else _file(path)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.raiseExceptions = False  # a log that cannot be written is no reason to print tracebacks at people
    return handler


def _file(path: Path) -> logging.Handler:
    try:
        private_folder(path.parent)
        path.touch(mode=0o600)
        return RotatingFileHandler(path, maxBytes=LOG_FILE_BYTES, backupCount=LOG_FILES_KEPT, encoding="utf-8")
    except OSError as error:
        if sys.stderr is not None:
            sys.stderr.write(f"moregpu: {path} cannot be written ({error.strerror}): nothing is logged\n")
        return logging.NullHandler()


def thread_ended(ended: threading.ExceptHookArgs) -> None:
    """Log what ended a thread: as `threading.excepthook` it spares whoever reads standard error the traceback."""
    name = ended.thread.name if ended.thread is not None else "?"
    error = ended.exc_value or ended.exc_type()
    logging.getLogger(__name__).error("the thread %s ended", name, exc_info=error)


class JsonLines(logging.Formatter):
    """One compact JSON object a record: `at`, `level`, `logger`, `message`, then facts, then the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        given = getattr(record, "facts", None)
        if isinstance(given, dict):
            for name, value in given.items():
                line.setdefault(str(name), value)
        if record.exc_info:
            line["traceback"] = without_secrets(self.formatException(record.exc_info))
        return without_secrets(msgspec.json.encode(line, enc_hook=repr).decode())


def without_secrets(text: str) -> str:
    """Blot out what looks like a secret, and drop what could steer a terminal."""
    return _CONTROL.sub("", _SECRET.sub("[secret]", text))
