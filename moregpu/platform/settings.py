"""`config.toml`, section by section: what a program writes leaves the rest of the file, comments too, as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from moregpu.errors import NotConfigured
from moregpu.platform import paths
from moregpu.platform.private import write_private

Value = str | bool | int | float | list[str]

_HEADER = re.compile(r"^\s*\[")


def read_section(name: str) -> dict[str, Any]:
    """The settings of `[name]`; raises `NotConfigured` for a file that is not TOML."""
    try:
        table = tomllib.loads(paths.config_file().read_text(encoding="utf-8-sig")).get(name, {})
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NotConfigured(f"{paths.config_file()} is not readable: {error}", "mend or delete it") from error
    if not isinstance(table, dict):
        raise NotConfigured(f"`{name}` in {paths.config_file()} is no section", f"write [{name}] on a line of its own")
    return table


def part_folder(part: str) -> Path:
    """State of the coordinator (`pool`) or of the worker here: where its section says, or the usual place."""
    named = read_section(part).get("state")
    return Path(named).expanduser().absolute() if named and isinstance(named, str) else paths.state_folder(part)


def write_section(name: str, values: Mapping[str, Value]) -> None:
    """Replace `[name]` by these settings, keys in order."""
    file = paths.config_file()
    read_section(name)  # a file that is not TOML is not made worse
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        lines = []
    header = re.compile(rf"^\s*\[\s*{re.escape(name)}\s*\]\s*(#.*)?$")
    start = next((place for place, line in enumerate(lines) if header.match(line)), None)
    fresh = [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    if start is None:
        lines = [*lines, *([""] if lines and lines[-1].strip() else []), *fresh]
    else:
        stop = next((place for place in range(start + 1, len(lines)) if _HEADER.match(lines[place])), len(lines))
        rest = [""] if stop < len(lines) else []
        lines[start:stop] = [*fresh, *rest]
    write_private(file, ("\n".join(lines) + "\n").encode())


def _toml(value: Value) -> str:
    """JSON's texts, numbers, booleans and lists are TOML's, but for DEL."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
