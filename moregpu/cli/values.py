"""Values of options: the word that stands for one in help (not the name of a Python type), and what is none."""

from __future__ import annotations

import copy
import math
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


def settle_values(command: Any) -> None:
    """Give every option of a command, and of those below it, such a word where it has none; a number is one."""
    for below in getattr(command, "commands", {}).values():
        settle_values(below)
    for parameter in command.params:
        kind = _OF_TYPE.get(parameter.type.name)
        if kind is float:
            parameter.type = _real(parameter.type)
        if parameter.param_type_name != "option" or parameter.is_flag or parameter.metavar is not None:
            continue
        if kind is not None:
            parameter.metavar = metavar(kind, parameter.name)


def _real(kind: Any) -> Any:
    """The same type without `nan`, which is within every range and says nothing: a token would never expire."""
    convert = kind.convert

    def real(value: Any, parameter: Any, context: Any) -> Any:
        found = convert(value, parameter, context)
        if math.isnan(found):
            kind.fail(f"{value!r} is no number.", parameter, context)
        return found

    kind = copy.copy(kind)
    kind.convert = real
    return kind
