"""Where things lie: configuration, profiles, state, logs, cache. `MOREGPU_HOME` moves them all under one folder.

Nothing here creates a folder by being asked for its place; writers do (`moregpu.platform.private`).
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import msgspec
import platformdirs

from moregpu.errors import InvalidRequest, NotConfigured, StateRefused
from moregpu.platform.private import read_private, write_private

_APP = "moregpu"
LOCAL_PROFILE = "local"
"""The profile that `serve` saves, so that commands on the same machine just work."""


def home() -> Path | None:
    """The folder that `MOREGPU_HOME` names, or None: the places of the platform."""
    named = os.environ.get("MOREGPU_HOME", "")
    return Path(named).expanduser() if named else None


def config_folder() -> Path:
    """Where `config.toml` and `profiles/` lie."""
    base = home()
    return base / "config" if base else Path(platformdirs.user_config_dir(_APP, appauthor=False))


def config_file() -> Path:
    """Settings in TOML: `[pool]`, `[worker]`, `[console]`."""
    return config_folder() / "config.toml"


def state_folder(part: str) -> Path:
    """State of one part: `pool` (a coordinator) or `worker`."""
    base = home()
    return (base / "state" if base else Path(platformdirs.user_state_dir(_APP, appauthor=False))) / part


def secrets_folder() -> Path:
    """Where secrets lie when there is no keyring (`moregpu.platform.secrets`)."""
    return state_folder("secrets")


def log_folder() -> Path:
    """Where log files lie."""
    base = home()
    return base / "logs" if base else Path(platformdirs.user_log_dir(_APP, appauthor=False))


# ---- profiles --------------------------------------------------------------------------------------------------------


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach one pool as one principal: `profiles/NAME.toml`, 0600.

    The token itself is in the token store under `token_ref`; `token` is for files that somebody wrote by hand.
    """

    url: str  # "https://127.0.0.1:8787"
    pin: str = ""  # SHA-256 of the certificate's DER in hex; "" = the system store verifies
    token_ref: str = ""
    token: str = ""
    pool_name: str = ""


def profile_path(name: str) -> Path:
    """The file of a profile; `InvalidRequest` for a name that is not a plain word."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise InvalidRequest(f"{name[:80]!r} is no name for a profile", "letters, digits, '.', '_' and '-' only")
    return config_folder() / "profiles" / f"{name}.toml"


def load_profile(name: str) -> Profile | None:
    """Read a profile; None when there is none. Raises `StateRefused` when loose, `NotConfigured` when not readable."""
    path = profile_path(name)
    data = read_private(path)
    if data is None:
        return None
    try:
        return msgspec.convert(tomllib.loads(data.decode()), Profile)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise NotConfigured(f"the profile {path} is not readable: {error}", "mend or delete it") from error


def save_profile(name: str, profile: Profile) -> Path:
    """Write a profile, 0600; returns where."""
    path = profile_path(name)
    fields = {key: value for key, value in msgspec.to_builtins(profile).items() if value != ""}
    lines = [f"{key} = {_toml_text(value)}\n" for key, value in fields.items()]
    write_private(path, "".join(lines).encode())
    return path


def delete_profile(name: str) -> bool:
    """Forget a profile; whether there was one."""
    path = profile_path(name)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def profile_names() -> list[str]:
    """The profiles there are."""
    folder = config_folder() / "profiles"
    return sorted(path.stem for path in folder.glob("*.toml")) if folder.is_dir() else []


def profile_token_ref(name: str) -> str:
    """The name under which a profile's token is kept in the token store: one per place and profile."""
    return f"profile/{name}" if home() is None else f"profile/{name}@{home()}"


def _toml_text(value: object) -> str:
    """A TOML basic string. JSON's escapes are a subset of TOML's, but for DEL, which TOML wants escaped."""
    if not isinstance(value, str):
        raise StateRefused(f"a profile holds text only, not {type(value).__name__}")
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
