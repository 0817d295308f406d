"""Before a machine joins: whose pool it is, what will run here, what holds it back; asked once."""

from __future__ import annotations

from collections.abc import Sequence

from moregpu.wire.identity import fingerprint
from moregpu.wire.invite import Invite
from moregpu.wire.text import clean
from moregpu_tray.consent import told


def promise(invite: Invite, ceiling: float, schedule: str, functions: Sequence[str] = ()) -> str:
    """What a person compares and reads: the words first, the name after, then what it means for this machine.

    A line is a paragraph; whoever shows it wraps it.
    """
    name = clean(invite.pool_name, 100) or "(no name)"
    return (
        "Compare these words with those that the pool's admin sees:\n"
        f"    {fingerprint(invite.pool_id)}\n"
        "\n"
        f"The pool is called: {name}\n"
        f"It is reached at: {clean(', '.join(invite.addresses), 300)}\n"
        "\n"
        "What will run here: fixed mathematical kernels, on the data that comes with them. They see nothing else of "
        "this machine: no files, no programs, no network.\n"
        f"Python functions of others: {told(functions)}. {_IN_A_SANDBOX if functions else _OFF}\n"
        f"How much: up to {ceiling:.0%} of the processor cores that you lend, {_when(schedule)}.\n"
        "It steps back within a tenth of a second when you touch mouse or keyboard, and stops on battery, when the "
        "machine is hot, and while a program is full screen."
    )


_OFF = "You can let people in by name, in the menu under What may run here."
_IN_A_SANDBOX = "They run in a sandbox, without your files and your network."


def _when(schedule: str) -> str:
    return "at any time" if schedule in ("always", "") else f"only {schedule}"
