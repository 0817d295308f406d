"""What goes on without a window: a systemd user unit on Linux, a scheduled task on Windows, a LaunchAgent on macOS.

The worker of a machine without a desktop (set up by the tray's command line), and the coordinator that the console's
first run starts.
"""

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
COORDINATOR_UNIT = "moregpu-coordinator.service"
COORDINATOR_TASK = "MoreGPU coordinator"
COORDINATOR_LABEL = "org.moregpu.coordinator"
_CALL_S = 20.0
_WORKER = "MoreGPU worker: lends this machine's idle time to a pool"
_COORDINATOR = "MoreGPU coordinator: holds the pool of this machine"


def unit(argv: Sequence[str], *, coordinator: bool = False) -> str:
    """The unit: started at boot when the user may linger, restarted when it fails, ended with its children."""
    # A user's services do not have the variables of the user's shell.
    home = os.environ.get("MOREGPU_HOME", "") if coordinator else ""
    return (
        "[Unit]\n"
        f"Description={_COORDINATOR if coordinator else _WORKER}\n"
        "After=network-online.target\n"
        "\n"
        "[Service]\n"
        f"ExecStart={' '.join(_quoted(word) for word in argv)}\n"
        + (f"Environment={_quoted(f'MOREGPU_HOME={home}', dollars=False)}\n" if home else "")
        + "Restart=on-failure\n"
        "RestartSec=5\n"
        "RestartPreventExitStatus=2 3 8 9\n"
        "KillMode=mixed\n"
        "TimeoutStopSec=10\n" + ("" if coordinator else "Nice=10\n") + "UMask=0077\n"
        "NoNewPrivileges=yes\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def place(name: str = UNIT) -> Path:
    """The unit's file."""
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(config) / "systemd" / "user" / name


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
        raise Unavailable(
            f"systemd did not take the unit {file}, which stays there",
            f"where systemd runs for you: systemctl --user enable --now {UNIT}; without it: moregpu-tray --headless",
        )
    return "to keep it running while nobody is logged in: loginctl enable-linger"


def disable() -> None:
    """Stop it and take it away; no error when there is none."""
    if sys.platform == "win32":
        _call("schtasks", "/Delete", "/F", "/TN", TASK)
    elif sys.platform != "darwin" and place().exists():
        _call("systemctl", "--user", "disable", "--now", UNIT)
        place().unlink(missing_ok=True)
        _call("systemctl", "--user", "daemon-reload")


# ---- the coordinator -------------------------------------------------------------------------------------------------


def enable_coordinator(argv: Sequence[str]) -> str:
    """Hand the coordinator to the system's own services, started now and at every login; what they are called here.

    "" where this system has none for this user (a container, no session bus): nothing was changed then.
    """
    if sys.platform == "win32":
        if os.environ.get("MOREGPU_HOME"):
            return ""  # a task has no variables of its own
        quoted = " ".join(f'"{word}"' for word in argv)
        made = _call("schtasks", "/Create", "/F", "/TN", COORDINATOR_TASK, "/SC", "ONLOGON", "/TR", quoted)
        started = made and _call("schtasks", "/Run", "/TN", COORDINATOR_TASK)
        return f"the scheduled task {COORDINATOR_TASK!r}" if started else ""
    if sys.platform == "darwin":
        file = _coordinator_agent()
        file.parent.mkdir(parents=True, exist_ok=True)
        home = os.environ.get("MOREGPU_HOME", "")
        file.write_bytes(
            autostart.launch_agent(argv, label=COORDINATOR_LABEL, environment={"MOREGPU_HOME": home} if home else {})
        )
        if _call("launchctl", "load", "-w", str(file)):
            return f"the LaunchAgent {COORDINATOR_LABEL}"
        file.unlink(missing_ok=True)
        return ""
    if not _call("systemctl", "--user", "show-environment"):
        return ""
    file = place(COORDINATOR_UNIT)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(unit(argv, coordinator=True))
    if _call("systemctl", "--user", "daemon-reload") and _call(
        "systemctl", "--user", "enable", "--now", COORDINATOR_UNIT
    ):
        return f"the user service {COORDINATOR_UNIT}"
    disable_coordinator()
    return ""


def coordinator_failed() -> bool:
    """Whether the service gave up; only systemd tells."""
    return sys.platform not in ("win32", "darwin") and _call("systemctl", "--user", "is-failed", COORDINATOR_UNIT)


def disable_coordinator() -> None:
    """Stop it and take it away; no error when there is none."""
    if sys.platform == "win32":
        _call("schtasks", "/End", "/TN", COORDINATOR_TASK)
        _call("schtasks", "/Delete", "/F", "/TN", COORDINATOR_TASK)
    elif sys.platform == "darwin":
        if _coordinator_agent().exists():
            _call("launchctl", "unload", "-w", str(_coordinator_agent()))
            _coordinator_agent().unlink(missing_ok=True)
    elif place(COORDINATOR_UNIT).exists():
        _call("systemctl", "--user", "disable", "--now", COORDINATOR_UNIT)
        place(COORDINATOR_UNIT).unlink(missing_ok=True)
        _call("systemctl", "--user", "daemon-reload")


def _coordinator_agent() -> Path:
    return Path.home() / "Library" / "LaunchAgents" / f"{COORDINATOR_LABEL}.plist"


def _call(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=_CALL_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _quoted(word: str, *, dollars: bool = True) -> str:
    """As systemd's ExecStart wants it: `%` and `$` stand for something there; `$` does not in Environment."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("$", "$$") if dollars else escaped
    return f'"{escaped}"' if escaped != word or any(sign.isspace() for sign in word) or not word else word
