"""A worker without a desktop: a systemd user unit on Linux, a scheduled task on Windows, a LaunchAgent on macOS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from moregpu.errors import Unavailable
from moregpu.platform import autostart

UNIT = "moregpu-worker.service"
TASK = "MoreGPU worker"
_CALL_S = 20.0


def unit(argv: Sequence[str]) -> str:
    """The unit: started at boot when the user may linger, restarted when it fails, ended with its children."""
    return (
        "[Unit]\n"
        "Description=MoreGPU worker: lends this machine's idle time to a pool\n"
        "After=network-online.target\n"
        "\n"
        "[Service]\n"
        f"ExecStart={' '.join(_quoted(word) for word in argv)}\n"
        "Restart=on-failure\n"
        "RestartSec=5\n"
        "RestartPreventExitStatus=2 3 8 9\n"
        "KillMode=mixed\n"
        "TimeoutStopSec=10\n"
        "Nice=10\n"
        "UMask=0077\n"
        "NoNewPrivileges=yes\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def place() -> Path:
    """The unit's file."""
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(config) / "systemd" / "user" / UNIT


def is_enabled() -> bool:
    """Whether the service is set up."""
    if sys.platform == "win32":
        return _call("schtasks", "/Query", "/TN", TASK)
    if sys.platform == "darwin":
        return autostart.is_enabled()
    return place().exists()


def enable(argv: Sequence[str] | None = None) -> str:
    """Set it up and start it; returns what the user should still do, or nothing. Raises `Unavailable`, `OSError`."""
    argv = [*autostart.command(), "--headless"] if argv is None else list(argv)
    autostart.disable()
    if sys.platform == "win32":
        quoted = " ".join(f'"{word}"' for word in argv)
        if not _call("schtasks", "/Create", "/F", "/TN", TASK, "/SC", "ONLOGON", "/TR", quoted):
            raise Unavailable("Windows refused the scheduled task", "look at it with taskschd.msc")
        return ""
    if sys.platform == "darwin":
        file = autostart.place()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(autostart.launch_agent(argv))
        return f"it starts at the next login; now: launchctl load '{file}'"
    file = place()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(unit(argv))
    if not _call("systemctl", "--user", "daemon-reload") or not _call("systemctl", "--user", "enable", "--now", UNIT):
        return f"the unit is written, but systemd did not take it; once it runs: systemctl --user enable --now {UNIT}"
    return "to keep it running while nobody is logged in: loginctl enable-linger"


def disable() -> None:
    """Stop it and take it away; no error when there is none."""
    if sys.platform == "win32":
        _call("schtasks", "/Delete", "/F", "/TN", TASK)
    elif sys.platform != "darwin" and place().exists():
        _call("systemctl", "--user", "disable", "--now", UNIT)
        place().unlink(missing_ok=True)
        _call("systemctl", "--user", "daemon-reload")


def _call(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=_CALL_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _quoted(word: str) -> str:
    """As systemd's ExecStart wants it: `%` and `$` stand for something there."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or any(sign.isspace() for sign in word) or not word else word
