"""What the command line says, and the settings that are kept."""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moregpu.errors import InvalidRequest
from moregpu.platform.paths import config_file
from moregpu.platform.private import write_private


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `moregpu-tui`."""

    demo: bool = False
    demo_workers: int = 14
    demo_churn: float = 0.0
    connect: str = ""
    profile: str = ""
    readonly: bool = False
    ascii: bool = False
    plain: bool = False
    mouse: bool = True
    record: str = ""
    replay: str = ""
    web: bool = False
    port: int = 0
    open: bool = True


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[console]` of config.toml; the screen Settings is made from this."""

    theme: Annotated[
        Literal["dark", "light", "contrast", "ansi"],
        Meta(title="Theme", description="ansi uses the sixteen colours of your terminal"),
    ] = "dark"
    glyphs: Annotated[
        Literal["auto", "unicode", "ascii"], Meta(title="Signs", description="auto looks at the locale and TERM")
    ] = "auto"
    motion: Annotated[
        Literal["auto", "full", "none"],
        Meta(title="Motion", description="The radar's beam; auto is slower over SSH and without the focus"),
    ] = "auto"
    zone: Annotated[Literal["local", "utc"], Meta(title="Time zone", description="Of all times that are shown")] = (
        "local"
    )
    worker_columns: Annotated[
        str,
        Meta(
            title="Worker columns",
            description="Names with spaces between; empty: as many as fit",
            max_length=200,
        ),
    ] = ""
    keys: Annotated[
        dict[str, str], Meta(title="Keys", description="Other keys: action = key; checked for clashes")
    ] = {}


def load_settings() -> Settings:
    """Read `[console]`; what cannot be read is an error that says where."""
    path = config_file()
    if not path.exists():
        return Settings()
    try:
        section = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("console", {})
        return msgspec.convert(section, Settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidRequest(f"[console] of {path} cannot be read: {error}", "mend or delete that section") from error


def save_settings(settings: Settings) -> None:
    """Write `[console]`; the other sections stay as they are."""
    path = config_file()
    text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    write_private(path, with_section(text, "console", _toml(settings)).encode())


def with_section(text: str, name: str, body: str) -> str:
    """TOML text with one section, and its sub-tables, replaced."""
    own = re.compile(rf"^\[\s*{re.escape(name)}\s*(\.[^\]]*)?\]")
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = own.match(line.lstrip()) is not None
        if not inside:
            kept.append(line)
    head = "\n".join(kept).rstrip()
    return f"{head}\n\n{body}" if head else body


def _toml(settings: Settings) -> str:
    fields = msgspec.to_builtins(settings)
    keys = fields.pop("keys")
    lines = ["[console]", *(f"{name} = {_text(str(value))}" for name, value in fields.items())]
    if keys:
        lines += ["", "[console.keys]", *(f"{_text(name)} = {_text(key)}" for name, key in keys.items())]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
