"""Other keys for actions, from the settings: checked for names that do not exist and keys that would clash."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Mapping

from moregpu.errors import InvalidRequest
from moregpu_tui.actions import ACTIONS, BY_ID, SCREENS, SHOWN, Action

_log = logging.getLogger(__name__)

_WITH = re.compile(r"(?:\^|ctrl[+-]|alt[+-])([a-z])")

_RENAMED = {
    "solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
    "plus_sign": "plus", "low_line": "underscore",
}  # fmt: skip
"""Characters that Textual does not call as Unicode does."""


def _name_of(character: str) -> str:
    if character.isalnum():
        return character
    name = unicodedata.name(character, character).lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name)


_NAMES = {
    *SHOWN, "left", "right", "insert", "delete", "backspace", *(f"f{number}" for number in range(1, 25)),
    *(_name_of(chr(sign)) for sign in range(33, 127)),
}  # fmt: skip

_MODIFIERS = {"", "ctrl", "alt", "shift", "super"}

_SHORT = {shown.lower(): name for name, shown in SHOWN.items()} | {"del": "delete", "ins": "insert"}


def checked(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides as the console's own list spells keys, if they are sound.

    Raises `InvalidRequest` naming the first that is not.
    """
    for id in overrides:
        if id not in BY_ID:
            raise InvalidRequest(f"there is no action called {id[:40]!r}", "docs/console.md lists them")
    keys = {id: ",".join(_spelled(key) for key in given.split(",")) for id, given in overrides.items()}
    found = clashes(keys)
    if found:
        raise InvalidRequest(found[0], "choose another key")
    return keys


def usable(overrides: Mapping[str, str]) -> dict[str, str]:
    """Of keys that were saved, those that are good: a console that starts without one is better than none."""
    try:
        return checked(overrides)
    except InvalidRequest:
        pass
    keys: dict[str, str] = {}
    for id, given in overrides.items():
        try:
            keys = checked({**keys, id: given})
        except InvalidRequest as error:
            _log.warning("a key of the settings is left out: %s", error.detail)
    return keys


def _spelled(given: str) -> str:
    """The name of a key that is given as people write it, and as the console itself shows it: F5, ^P, Space, /."""
    key = given.strip()
    if len(key) == 1:
        return _name_of(key)
    lower = key.lower()
    modified = _WITH.fullmatch(lower)
    if modified:
        return f"{'alt' if lower.startswith('alt') else 'ctrl'}+{modified[1]}"
    with_, plus, last = lower.rpartition("+")
    name = f"{with_}{plus}{_SHORT.get(last, last)}"
    if {*with_.split("+")} - _MODIFIERS or _SHORT.get(last, last) not in _NAMES:
        raise InvalidRequest(
            f"{given[:40]!r} is no key", "a character, or one like F5, ctrl+t, space, enter, home, pagedown"
        )
    return name


def clashes(overrides: Mapping[str, str]) -> list[str]:
    """Pairs of actions that one key would mean on one screen."""
    found: list[str] = []
    for screen in SCREENS:
        taken: dict[str, Action] = {}
        for action in ACTIONS:
            if action.scope and screen not in action.scope:
                continue
            for key in overrides.get(action.id, action.key).split(","):
                other = taken.get(key)
                if other is not None and not _share(action, other):
                    found.append(f"{key} would mean both {other.id} and {action.id} on {screen}")
                taken.setdefault(key, action)
    return found


def _share(one: Action, other: Action) -> bool:
    """Whether two actions may have one key: they act on different things, or a widget decides."""
    return bool(one.target and other.target and one.target != other.target) or (one.widget and other.widget)
