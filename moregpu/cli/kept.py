"""Settings of `config.toml` beneath a command's options: what was typed goes first, then what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer

from moregpu.errors import InvalidRequest
from moregpu.platform import paths

T = TypeVar("T")


def typed(context: typer.Context, fields: Mapping[str, tuple[str, object]]) -> dict[str, object]:
    """Settings by name, of those options that were typed. `fields`: parameter → (setting, value)."""
    return {
        field: value
        for parameter, (field, value) in fields.items()
        if getattr(context.get_parameter_source(parameter), "name", "") == "COMMANDLINE"
    }


def together(section: str, kept: Mapping[str, Any], given: Mapping[str, object], check: Callable[..., T]) -> T:
    """What `check` makes of both. Raises `InvalidRequest`; of a mistake that is kept it says where it stands."""
    try:
        check(**kept)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"[{section}] of {paths.config_file()}: {error.detail}",
            f"mend it by `moregpu config set {section}.KEY VALUE`, or `moregpu config unset {section}.KEY`",
        ) from error
    return check(**{**kept, **given})
