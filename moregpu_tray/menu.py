"""The menu, made from the view. Pure: every backend shows the same, and what did not change is left alone."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moregpu.wire.messages import EVERYBODY
from moregpu.worker.config import WorkerConfig
from moregpu_tray.history import Ran, Sum, duration, energy
from moregpu_tray.view import View

CEILINGS = (0.25, 0.5, 0.75, 0.85, 1.0)
SCHEDULES = (
    ("Always", "always"),
    ("Nights, 22:00 to 07:00", "22:00-07:00"),
    ("Outside office hours", "mon-fri 18:00-08:00; sat,sun"),
    ("Weekends", "sat,sun"),
)
KIND_WORDS = {"kernel": "Kernels: fixed mathematics on the data they come with"}
FUNCTION = "function"
"""The kind that is other people's code: off until somebody is named, and chosen by people rather than ticked."""


class Do(StrEnum):
    """What a click wants."""

    SHOW = "show"
    PAUSE = "pause"
    PAUSE_HOUR = "pause-hour"
    PAUSE_RESTART = "pause-restart"
    RESUME = "resume"
    CEILING = "ceiling"
    SCHEDULE = "schedule"
    KIND = "kind"
    FUNCTIONS = "functions"  # whose: nobody's or everybody's
    FUNCTIONS_OF = "functions-of"  # one person's, or no longer
    FUNCTIONS_ASK = "functions-ask"  # of people who are to be named
    LOG = "log"
    JOIN = "join"
    LEAVE = "leave"
    AUTOSTART = "autostart"
    QUIT = "quit"


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An entry; without a label a separator, with children a submenu."""

    label: str = ""
    do: Do | None = None
    value: str | float | None = None
    ticked: bool | None = None
    radio: bool = False
    enabled: bool = True
    children: tuple[Item, ...] = ()


SEPARATOR = Item()


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """What ran here, as the menu tells it."""

    today: Sum = Sum()
    month: Sum = Sum()
    jobs: tuple[Ran, ...] = ()


def menu_of(
    view: View, config: WorkerConfig, kinds: tuple[str, ...], contribution: Contribution, autostart: bool
) -> tuple[Item, ...]:
    """The whole menu, top to bottom."""
    top = [
        Item(label=_short(view.line), do=Do.SHOW),
        *([Item(label=_asked(view), enabled=False)] if _asks_too_much(view) else []),
        SEPARATOR,
        *_pauses(view),
        _ceiling(config),
        _schedule(config),
        _kinds(view, config, kinds, tuple(ran.submitter for ran in contribution.jobs)),
        _contribution(contribution),
        SEPARATOR,
        Item(label="Show log", do=Do.LOG),
        Item(label=f"Leave {view.status.pool_name or 'the pool'}", do=Do.LEAVE)
        if view.joined
        else Item(label="Join a pool…", do=Do.JOIN),
        Item(label="Start at login", do=Do.AUTOSTART, ticked=autostart),
        SEPARATOR,
        Item(label="Quit", do=Do.QUIT),
    ]
    return tuple(top)


def _pauses(view: View) -> list[Item]:
    if view.paused:
        return [Item(label="Resume", do=Do.RESUME)]
    return [
        Item(label="Pause", do=Do.PAUSE),
        Item(
            label="Pause for a while",
            children=(
                Item(label="For 1 hour", do=Do.PAUSE_HOUR),
                Item(label="Until restart", do=Do.PAUSE_RESTART),
            ),
        ),
    ]


def _ceiling(config: WorkerConfig) -> Item:
    values = sorted({*CEILINGS, config.ceiling})
    children = tuple(
        Item(label=f"{value:.0%}", do=Do.CEILING, value=value, ticked=value == config.ceiling, radio=True)
        for value in values
    )
    return Item(label=f"Ceiling: {config.ceiling:.0%} of this machine", children=children)


def _schedule(config: WorkerConfig) -> Item:
    known = [*SCHEDULES]
    if config.schedule not in [schedule for _, schedule in known]:
        known.append((config.schedule, config.schedule))
    children = tuple(
        Item(label=label, do=Do.SCHEDULE, value=schedule, ticked=schedule == config.schedule, radio=True)
        for label, schedule in known
    )
    return Item(label="Schedule", children=children)


def _kinds(view: View, config: WorkerConfig, kinds: tuple[str, ...], known: tuple[str, ...]) -> Item:
    allowed = kinds if config.kinds is None else config.kinds
    ticks = tuple(
        Item(label=KIND_WORDS.get(kind, kind), do=Do.KIND, value=kind, ticked=kind in allowed)
        for kind in kinds
        if kind != FUNCTION
    )
    others = _functions(view, config, known) if FUNCTION in kinds else ()
    return Item(label="What may run here", children=(*ticks, *others))


def _functions(view: View, config: WorkerConfig, known: tuple[str, ...]) -> tuple[Item, ...]:
    """Whose Python code may run here: nobody's, that of people by name, or everybody's."""
    whose = config.functions
    everybody = EVERYBODY in whose
    names = dict.fromkeys((*(name for name in whose if name != EVERYBODY), *(name for name in known if name)))
    people = tuple(
        Item(label=_short(name), do=Do.FUNCTIONS_OF, value=name, ticked=not everybody and name in whose)
        for name in names
    )
    said = view.status.functions_off
    return (
        SEPARATOR,
        Item(label="Python functions, in a sandbox: whose?", enabled=False),
        Item(label="Nobody's", do=Do.FUNCTIONS, value="", ticked=not whose, radio=True),
        Item(
            label="Of people by name",
            children=(*people, *([SEPARATOR] if people else []), Item(label="Name somebody…", do=Do.FUNCTIONS_ASK)),
        ),
        Item(label="Everybody's in this pool", do=Do.FUNCTIONS, value=EVERYBODY, ticked=everybody, radio=True),
        *([Item(label=_short(said), enabled=False)] if said else []),
    )


def _contribution(contribution: Contribution) -> Item:
    jobs = tuple(
        Item(
            label=_short(f"{ran.name or ran.kind} for {ran.submitter or 'the pool'}: {duration(ran.seconds)}"),
            enabled=False,
        )
        for ran in contribution.jobs
    )
    lines = (
        Item(label=f"Today: {_sum(contribution.today)}", enabled=False),
        Item(label=f"30 days: {_sum(contribution.month)}", enabled=False),
    )
    return Item(label="Contribution so far", children=(*lines, *((SEPARATOR, *jobs) if jobs else ())))


def _sum(total: Sum) -> str:
    return f"{duration(total.seconds)}, {total.tasks} tasks, {energy(total.watt_hours)}"


def _asks_too_much(view: View) -> bool:
    """The admin lowers what holds; asking for more than the owner allows is refused, and shown."""
    return view.joined and view.status.ceiling > 0.0 and 1.0 > view.status.asked > view.status.ceiling


def _asked(view: View) -> str:
    return f"The pool asks for {view.status.asked:.0%}; your {view.status.ceiling:.0%} holds"


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
