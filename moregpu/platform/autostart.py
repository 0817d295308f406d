r"""Start at login, in the one way that this system has for it: XDG autostart, `HKCU\\…\\Run`, or a LaunchAgent.

For machines without a desktop see `moregpu.platform.services`; `enable` of one takes the other away, so that nothing is
started twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LABEL = "org.moregpu.tray"
_RUN_KEY = r"Software\Microsoft\Windows\CurrentVersion\Run"
_RUN_NAME = "MoreGPU"


def command() -> list[str]:
    """How this program is started again: the frozen one by itself, else by its Python."""
    if getattr(sys, "frozen", False):
        return [sys.executable]
    return [sys.executable, "-m", "moregpu_tray"]


def is_enabled() -> bool:
    """Whether it starts at login."""
    if sys.platform == "win32":
        return _registry_value() is not None
    return place().exists()


def enable(argv: Sequence[str] | None = None) -> None:
    """Start it at login from now on. Raises `OSError` where that cannot be written."""
    from moregpu.platform import services

    services.disable()
    argv = command() if argv is None else list(argv)
    if sys.platform == "win32":
        _set_registry_value(" ".join(f'"{word}"' for word in argv))
        return
    file = place()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(launch_agent(argv) if sys.platform == "darwin" else desktop_entry(argv).encode())


def disable() -> None:
    """No longer; no error when it never did."""
    if sys.platform == "win32":
        _set_registry_value(None)
    else:
        place().unlink(missing_ok=True)


def place() -> Path:
    """The file that makes it start."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(config) / "autostart" / "moregpu-tray.desktop"


def desktop_entry(argv: Sequence[str]) -> str:
    """An entry of XDG's autostart; a delay lets the panel come first where the desktop knows delays."""
    return (
        "[Desktop Entry]\n"
        "Type=Application\n"
        "Name=MoreGPU\n"
        "Comment=Lends this machine's idle time to a pool\n"
        f"Exec={' '.join(_quoted(word) for word in argv)}\n"
        "Icon=moregpu\n"
        "Terminal=false\n"
        "X-GNOME-Autostart-Delay=5\n"
    )


def launch_agent(
    argv: Sequence[str], *arguments: str, label: str = LABEL, environment: Mapping[str, str] | None = None
) -> bytes:
    """A LaunchAgent that starts it at login, once."""
    agent: dict[str, Any] = {
        "Label": label,
        "ProgramArguments": [*argv, *arguments],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
        **({"EnvironmentVariables": dict(environment)} if environment else {}),
    }
    import plistlib  # macOS alone; elsewhere it would lie in the memory of every worker

    return plistlib.dumps(agent)


def _quoted(word: str) -> str:
    """As the Desktop Entry Specification wants arguments of Exec; `%` starts a field code there."""
    escaped = "".join(f"\\{sign}" if sign in '"`$\\' else sign for sign in word.replace("%", "%%"))
    return '"' + escaped.replace("\\", "\\\\") + '"' if escaped != word or not _is_plain(word) else word


def _is_plain(word: str) -> bool:
    return bool(word) and all(sign.isalnum() or sign in "/._-+:@," for sign in word)


def _registry_value() -> str | None:
    import winreg  # pyright: ignore[reportMissingModuleSource] — Windows only

    registry: Any = winreg
    try:
        with registry.OpenKey(registry.HKEY_CURRENT_USER, _RUN_KEY) as key:
            return str(registry.QueryValueEx(key, _RUN_NAME)[0])
    except FileNotFoundError:
        return None


def _set_registry_value(value: str | None) -> None:
    import winreg  # pyright: ignore[reportMissingModuleSource] — Windows only

    registry: Any = winreg
    with registry.CreateKey(registry.HKEY_CURRENT_USER, _RUN_KEY) as key:
        if value is not None:
            registry.SetValueEx(key, _RUN_NAME, 0, registry.REG_SZ, value)
            return
        try:
            registry.DeleteValue(key, _RUN_NAME)
        except FileNotFoundError:
            pass
