"""`com.canonical.dbusmenu`: the menu as panels ask for it over the session bus.

Answers are computed from the items alone; whoever owns the bus sends them. Ids are positions in the menu; a menu that
is open does not change, so a click always means what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dbus_fast import Variant

from moregpu_tray.menu import Item

INTERFACE = "com.canonical.dbusmenu"
PATH = "/MenuBar"
PROPERTIES = {
    "Version": Variant("u", 3),
    "TextDirection": Variant("s", "ltr"),
    "Status": Variant("s", "normal"),
    "IconThemePath": Variant("as", []),
}

Answer = tuple[str, list[Any]]
"""A reply: signature and body."""


class BusMenu:
    """The menu that is shown now."""

    def __init__(self, click: Callable[[Item], None], changed: Callable[[int], None]):
        """`click` gets what was clicked; `changed` announces a new revision."""
        self.revision = 1
        self._click = click
        self._changed = changed
        self._items: tuple[Item, ...] = ()
        self._by_id: dict[int, Item] = {}
        self._children: dict[int, list[int]] = {0: []}
        self._open = False
        self._waiting: tuple[Item, ...] | None = None

    def show(self, items: tuple[Item, ...]) -> None:
        """Show these; a menu that is open is left alone until it is closed, else it would close under the mouse."""
        if items == self._items:
            self._waiting = None
        elif self._open:
            self._waiting = items
        else:
            self._replace(items)
            self._changed(self.revision)

    def answer(self, member: str, body: Sequence[Any]) -> Answer | None:
        """The reply to a call; None for one that is not known."""
        match member:
            case "GetLayout":
                root, depth = int(body[0]), int(body[1])
                return "u(ia{sv}av)", [self.revision, self._node(root if root in self._children else 0, depth)]
            case "GetGroupProperties":
                ids = [int(number) for number in body[0]] or [0, *self._by_id]
                known = [number for number in ids if number == 0 or number in self._by_id]
                return "a(ia{sv})", [[[number, self._properties(number)] for number in known]]
            case "GetProperty":
                return "v", [self._properties(int(body[0])).get(str(body[1]), Variant("s", ""))]
            case "Event":
                self._event(int(body[0]), str(body[1]))
                return "", []
            case "EventGroup":
                for event in body[0]:
                    self._event(int(event[0]), str(event[1]))
                return "ai", [[]]
            case "AboutToShow":
                return "b", [self._catch_up()]
            case "AboutToShowGroup":
                changed = self._catch_up()
                return "aiai", [[int(number) for number in body[0]] if changed else [], []]
            case _:
                return None

    def _event(self, number: int, what: str) -> None:
        if what == "clicked":
            item = self._by_id.get(number)
            if item is not None and item.do is not None and item.enabled:
                self._click(item)
        elif number == 0 and what in ("opened", "closed"):
            self._open = what == "opened"
            if not self._open and self._catch_up():
                self._changed(self.revision)

    def _catch_up(self) -> bool:
        """Take over what waited; whether anything did."""
        if self._waiting is None:
            return False
        self._replace(self._waiting)
        return True

    def _replace(self, items: tuple[Item, ...]) -> None:
        self._items, self._waiting = items, None
        self._by_id, self._children = {}, {0: []}
        self._number(items, 0)
        self.revision += 1

    def _number(self, items: Iterable[Item], parent: int) -> None:
        for item in items:
            number = len(self._by_id) + 1
            self._by_id[number] = item
            self._children[number] = []
            self._children[parent].append(number)
            self._number(item.children, number)

    def _node(self, number: int, depth: int) -> list[Any]:
        inner = [] if depth == 0 else [self._node(child, depth - 1) for child in self._children[number]]
        return [number, self._properties(number), [Variant("(ia{sv}av)", node) for node in inner]]

    def _properties(self, number: int) -> dict[str, Variant]:
        item = self._by_id.get(number)
        if item is None:
            return {"children-display": Variant("s", "submenu")} if number == 0 else {}
        if not item.label:
            return {"type": Variant("s", "separator")}
        found = {
            "label": Variant("s", item.label.replace("_", "__")),  # one underscore would mark an access key
            "enabled": Variant("b", item.enabled),
            "visible": Variant("b", True),
        }
        if item.ticked is not None:
            found["toggle-type"] = Variant("s", "radio" if item.radio else "checkmark")
            found["toggle-state"] = Variant("i", int(item.ticked))
        if item.children:
            found["children-display"] = Variant("s", "submenu")
        return found
