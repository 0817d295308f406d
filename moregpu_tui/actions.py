"""The one list of what the console can do: keys, palette, `:` line, menu, help and the documentation come from it."""

from __future__ import annotations

from typing import Literal

import msgspec

Target = Literal["", "worker", "job", "invite", "token"]

SCREENS = ("overview", "workers", "jobs", "job", "submit", "events", "access", "settings")
ROLE_RANK = {"": 0, "viewer": 1, "submitter": 2, "admin": 3}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a key does."""

    id: str
    key: str  # Textual's names, comma for alternatives
    title: str
    help: str
    brief: str = ""  # for the bar of keys: the title where there is none
    scope: tuple[str, ...] = ()  # screens; none: everywhere
    target: Target = ""  # what it acts on
    danger: int = 0  # 0 undo, 1 asks, 2 asks for the id
    role: str = "viewer"  # least role
    changes: bool = False  # changes the pool: not when read only, old or offline
    argument: str = ""  # what may follow it on the `:` line
    command: str = ""  # the same from a shell; "" for what only this terminal shows
    widget: bool = False  # the widget that has the focus does it


_SHOWN_BY = {
    "overview": "moregpu top",
    "workers": "moregpu workers",
    "jobs": "moregpu jobs",
    "job": "moregpu job ID",
    "submit": "moregpu submit",
    "access": "moregpu invite --list; moregpu token list",
    "settings": "moregpu config show",
}


def _go(name: str, number: int) -> Action:
    title = name.capitalize()
    return Action(
        id=f"screen.{name}",
        key=str(number),
        title=f"Go to {title}",
        help=f"Show the screen {title}",
        command=_SHOWN_BY.get(name, ""),
    )


_LISTS = ("overview", "workers", "jobs", "job", "access")
_ON_WORKERS = ("overview", "workers")
_ON_JOBS = ("overview", "jobs", "job")

ACTIONS: tuple[Action, ...] = (
    *(_go(name, number) for number, name in enumerate(SCREENS, 1)),
    # -- the pool
    Action(id="job.new", key="c", title="New job", help="Fill in a form, see its plan, submit", role="submitter",
           command="moregpu submit"),
    Action(id="invite.new", key="i", title="Invite a worker", brief="invite",
           help="Make an invite: a line and a QR code",
           role="admin", changes=True, argument="OWNER", command="moregpu invite"),
    # -- workers
    Action(id="worker.open", key="enter", title="Show the worker", help="Everything about one worker",
           scope=_ON_WORKERS, target="worker", argument="NAME", command="moregpu workers", widget=True),
    Action(id="worker.pause", key="p", title="Pause or resume", brief="pause",
           help="A paused worker gets nothing more to do",
           scope=_ON_WORKERS, target="worker", role="admin", changes=True, command="moregpu worker pause"),
    Action(id="worker.drain", key="d", title="Drain", help="It finishes what it holds and gets nothing more",
           scope=_ON_WORKERS, target="worker", role="admin", changes=True, danger=1, command="moregpu worker drain"),
    Action(id="worker.ceiling", key="t", title="Duty ceiling", brief="ceiling",
           help="The highest share of a device that it may use",
           scope=_ON_WORKERS, target="worker", role="admin", changes=True, argument="PERCENT",
           command="moregpu worker set --ceiling"),
    Action(id="worker.schedule", key="T", title="Schedule", help="When it may compute: always, 22:00-07:00, …",
           scope=_ON_WORKERS, target="worker", role="admin", changes=True, argument="SCHEDULE",
           command="moregpu worker set --schedule"),
    Action(id="worker.approve", key="a", title="Approve", help="Let a worker in that waits for approval",
           scope=_ON_WORKERS, target="worker", role="admin", changes=True, command="moregpu worker approve"),
    Action(id="worker.rename", key="e", title="Rename", help="Another name for the worker", scope=_ON_WORKERS,
           target="worker", role="admin", changes=True, argument="NAME", command="moregpu worker set --name"),
    Action(id="worker.revoke", key="X", title="Revoke", help="Refuse it for good; its tasks run elsewhere",
           scope=("workers",), target="worker", role="admin", changes=True, danger=2, command="moregpu worker remove"),
    # -- jobs
    Action(id="job.open", key="enter", title="Show the job", help="Road, tasks, attempts, evidence, signatures",
           scope=("overview", "jobs"), target="job", argument="ID", command="moregpu job ID", widget=True),
    Action(id="job.cancel", key="X", title="Cancel the job", brief="cancel",
           help="End it; what its workers do is dropped",
           scope=_ON_JOBS, target="job", role="submitter", changes=True, danger=1, command="moregpu cancel ID"),
    Action(id="job.retry", key="A", title="Run again", brief="again",
           help="Submit the same job anew", scope=_ON_JOBS, target="job",
           role="submitter", changes=True, command="moregpu retry ID"),
    Action(id="job.purge", key="P", title="Purge", help="Forget an ended job's outputs and keys", scope=("jobs", "job"),
           target="job", role="submitter", changes=True, danger=2, command="moregpu job --purge ID"),
    Action(id="job.verify", key="v", title="Verify signatures", brief="verify",
           help="Fetch who signed the tasks, and verify it here",
           scope=("job",), target="job", role="submitter", command="moregpu job ID"),
    Action(id="job.preview", key="o", title="Open the result", brief="result", help="The result in a few lines",
           scope=("job",), target="job", role="submitter", command="moregpu job ID"),
    # -- submit
    Action(id="form.submit", key="f10,ctrl+s", title="Submit", help="Send the form", scope=("submit",),
           role="submitter", changes=True, command="moregpu submit"),
    Action(id="form.reset", key="ctrl+r", title="Reset the form", brief="reset", help="Back to the defaults",
           scope=("submit", "settings")),
    # -- events
    Action(id="log.follow", key="f", title="Follow", help="Stay at the end of the log, or stop there",
           scope=("events",)),
    Action(id="log.level", key="l", title="Least level", brief="level",
           help="All lines, warnings and errors, errors only", scope=("events",)),
    Action(id="log.source", key="o", title="Source", help="Lines of workers, jobs, tasks, invites or all",
           scope=("events",)),
    Action(id="log.wrap", key="w", title="Wrap", help="Break long lines, or cut them", scope=("events",)),
    # -- access
    Action(id="token.new", key="n", title="New token", help="A line for a client of a chosen role", scope=("access",),
           role="admin", changes=True, argument="LABEL", command="moregpu token create"),
    Action(id="access.revoke", key="X", title="Withdraw or revoke", brief="revoke", help="End the invite or the token",
           scope=("access",), target="token", role="admin", changes=True, danger=1,
           command="moregpu token revoke; moregpu invite --withdraw"),
    Action(id="ledger.verify", key="v", title="Verify the ledger", brief="verify ledger",
           help="Walk every row, signature and checkpoint", scope=("access",), command="moregpu audit"),
    Action(id="pool.rotate", key="K", title="Rotate the pool's key", help="Announce a next session key, or finish that",
           scope=("access",), role="admin", changes=True, danger=2, command="moregpu pool rotate"),
    Action(id="pool.change", key="f8", title="Name, disk, retention", brief="name, disk",
           help="The pool's own settings",
           scope=("settings",), role="admin", changes=True, command="moregpu pool rename"),
    # -- lists
    Action(id="list.filter", key="slash", title="Filter", help="Show only what matches; !word: what does not",
           scope=("overview", "workers", "jobs", "events"), argument="TEXT"),
    Action(id="list.next", key="n", title="Next match", help="To the next row that matches what was searched last",
           scope=("workers", "jobs", "events")),
    Action(id="list.previous", key="N", title="Previous match", help="To the one before",
           scope=("workers", "jobs", "events")),
    Action(id="list.sort", key="s", title="Sort", help="By the next column", scope=("workers", "jobs"),
           argument="COLUMN"),
    Action(id="list.reverse", key="S", title="Sort the other way", help="Turn the order round",
           scope=("workers", "jobs")),
    Action(id="copy.id", key="y", title="Copy the id", help="To the clipboard of this terminal", scope=_LISTS),
    Action(id="copy.json", key="Y", title="Copy as JSON", help="All that is known of it", scope=_LISTS),
    Action(id="view.radar", key="r", title="Radar", help="Show the radar alone, or everything", scope=("overview",)),
    Action(id="view.zoom", key="z", title="Zoom", help="The part with the focus alone, or everything",
           scope=("overview", "workers", "jobs", "job", "submit")),
    Action(id="view.focus", key="tab", title="Next part", help="Move the keys to the next part", widget=True),
    # -- everywhere
    Action(id="app.menu", key="x", title="Actions", help="What can be done with what is under the cursor"),
    Action(id="app.palette", key="ctrl+p", title="Search all actions", help="Type a few letters of what you want"),
    Action(id="app.command", key="colon", title="Command line", help="Actions by name, with their argument"),
    Action(id="app.resync", key="R", title="Read everything anew", help="If you do not trust what is shown"),
    Action(id="app.undo", key="u", title="Undo", help="Take the last change back, for five seconds"),
    Action(id="app.help", key="question_mark,f1", title="Help", help="All keys of this screen"),
    Action(id="app.back", key="q", title="Back, or quit", brief="back",
           help="Out of this part; on a whole screen: quit"),
    Action(id="app.escape", key="escape", title="Out", help="Clear the filter, then the marks, then go back"),
    Action(id="app.quit", key="ctrl+q", title="Quit", help="Leave the console; the pool goes on"),
    Action(id="app.interrupt", key="ctrl+c", title="Copy, or quit", help="Copy what is selected; else twice quits"),
    # -- of the widgets
    Action(id="move.down", key="j,down", title="Down", help="Down a row", widget=True),
    Action(id="move.up", key="k,up", title="Up", help="Up a row", widget=True),
    Action(id="move.top", key="g,home", title="First", help="To the first row", widget=True),
    Action(id="move.bottom", key="G,end", title="Last", help="To the last row", widget=True),
    Action(id="move.page_down", key="ctrl+d,pagedown", title="Page down", help="Half a page down", widget=True),
    Action(id="move.page_up", key="ctrl+u,pageup", title="Page up", help="Half a page up", widget=True),
    Action(id="mark.one", key="space", title="Mark", help="Mark the row: actions take all that is marked",
           scope=("workers", "jobs"), widget=True),
    Action(id="mark.all", key="asterisk", title="Mark all", help="Mark all rows that are shown, or none",
           scope=("workers", "jobs"), widget=True),
)  # fmt: skip

_MOVE = frozenset({
    "job.new", "job.open", "worker.open", "invite.new", "token.new", "worker.ceiling", "worker.schedule",
    "worker.rename", "pool.change", "list.filter", "app.menu", "app.palette", "app.command", "app.help", "app.back",
    "app.escape", "form.submit",
})  # fmt: skip


def moves(action: Action) -> bool:
    """Whether it brings another screen, a dialog or a line to type in: keys that follow are meant for that."""
    return action.danger > 0 or action.id in _MOVE or action.id.startswith("screen.")


BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}


def on_screen(screen: str) -> list[Action]:
    """What can be done on a screen, in the order of the list."""
    return [action for action in ACTIONS if not action.scope or screen in action.scope]


def refusal(action: Action, *, role: str, readonly: bool, not_now: str) -> str:
    """Why an action cannot be done; "" when it can. `not_now`: why nothing can be changed at present."""
    if ROLE_RANK.get(role, 0) < ROLE_RANK[action.role] and role:
        return f"a token of role {role} may not do that: it takes {action.role}"
    if action.changes and readonly:
        return "this console was started with --readonly"
    if action.changes and not_now:
        return f"not now: {not_now}"
    return ""


def permitted(action: Action, *, role: str, readonly: bool) -> bool:
    """Whether its key is there at all."""
    return not refusal(action, role=role or "admin", readonly=readonly, not_now="")


def matching(text: str, actions: list[Action]) -> list[Action]:
    """Actions by a few letters of their title, id or help, best first."""
    words = text.lower().split()
    if not words:
        return actions
    found: list[tuple[int, int, Action]] = []
    for place, action in enumerate(actions):
        title, rest = action.title.lower(), f"{action.id} {action.help.lower()}"
        if all(word in title or word in rest for word in words):
            found.append((0 if title.startswith(words[0]) else 1 if words[0] in title else 2, place, action))
    return [action for _, _, action in sorted(found, key=lambda each: each[:2])]


# ---- names of keys ---------------------------------------------------------------------------------------------------

SHOWN = {
    "slash": "/", "question_mark": "?", "colon": ":", "asterisk": "*", "escape": "Esc", "enter": "Enter",
    "space": "Space", "tab": "Tab", "pagedown": "PgDn", "pageup": "PgUp", "home": "Home", "end": "End",
    "up": "↑", "down": "↓",
}  # fmt: skip


def shown_key(key: str) -> str:
    """A key as people read it: the first of the alternatives."""
    return _one_key(key.split(",")[0])


def shown_keys(key: str) -> str:
    """All alternatives."""
    return " ".join(_one_key(one) for one in key.split(","))


def _one_key(key: str) -> str:
    if key.startswith("ctrl+"):
        return "^" + key[5:].upper()
    if key[:1] == "f" and key[1:].isdigit():
        return key.upper()
    return SHOWN.get(key, key)
