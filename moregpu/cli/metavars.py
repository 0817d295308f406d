"""What stands for a value in help: a word that says something, not the name of a Python type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_OF_TYPE = {"integer": int, "integer range": int, "float": float, "float range": float, "path": Path, "text": str}
"""The command line library's names for its types."""


def metavar(kind: Any, name: str) -> str:
    """The word for a value of this type, given to the parameter of this name."""
    if kind is int:
        return "N"
    if kind is float:
        return "NUMBER"
    if kind is Path:
        return "DIR" if name == "state" else "FILE"
    return name.upper().replace("_", "-")


def name_values(command: Any) -> None:
    """Give every option of a command, and of those below it, such a word where it has none of its own."""
    for below in getattr(command, "commands", {}).values():
        name_values(below)
    for parameter in command.params:
        kind = _OF_TYPE.get(parameter.type.name)
        if parameter.param_type_name != "option" or parameter.is_flag or parameter.metavar is not None:
            continue
        if kind is not None:
            parameter.metavar = metavar(kind, parameter.name)
