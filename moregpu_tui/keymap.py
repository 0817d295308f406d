"""Other keys for actions, from the settings: checked for names that do not exist and keys that would clash."""

from __future__ import annotations

from collections.abc import Mapping

from moregpu.errors import InvalidRequest
from moregpu_tui.actions import ACTIONS, BY_ID, SCREENS, Action


def checked(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides, if they are sound. Raises `InvalidRequest` naming the first that is not."""
    for id in overrides:
        if id not in BY_ID:
            raise InvalidRequest(f"there is no action called {id[:40]!r}", "docs/console.md lists them")
    found = clashes(overrides)
    if found:
        raise InvalidRequest(found[0], "choose another key")
    return dict(overrides)


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
