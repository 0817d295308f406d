"""How a worker gets into a pool: where its invite may come from, and what is said before it joins."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from moregpu.errors import InviteRefused, NotConfigured
from moregpu.platform.private import read_private
from moregpu.wire.identity import fingerprint
from moregpu.wire.invite import INVITE_PREFIX, MAX_LINE_CHARACTERS, Invite, parse_invite, pasted
from moregpu.worker.home import WorkerHome

TOKEN_VARIABLE = "MOREGPU_TOKEN"  # noqa: S105 — the variable's name


def refuse_argument(given: str) -> None:
    """Raise `InviteRefused` for an invite in the argument list: other users read it there."""
    if given:
        raise InviteRefused(
            "an invite is not taken from the command line: other users of this machine can read it there",
            "paste it when asked, or pipe it in: moregpu join < invite.txt; if it was real, make a new one",
        )


def find_invite(file: Path | None = None, typed: TextIO | None = None) -> Invite | None:
    """Read an invite from a 0600 file, `MOREGPU_TOKEN`, or standard input when that is no terminal.

    None when none is there. Raises `InviteRefused` for text that is no invite, `StateRefused` for a file that others
    can read, `NotConfigured` for a file that does not exist.
    """
    if file is not None:
        data = read_private(file)
        if data is None:
            raise NotConfigured(f"there is no file {file}", "name the file that holds the invite")
        return parse_invite(data.decode(errors="replace"))
    variable = os.environ.get(TOKEN_VARIABLE, "")
    if pasted(variable).upper().startswith(INVITE_PREFIX):
        return parse_invite(variable)
    typed = sys.stdin if typed is None else typed
    if typed is None or typed.isatty():  # a service may have no standard input at all
        return None
    text = typed.read(MAX_LINE_CHARACTERS + 1).strip()
    return parse_invite(text) if text else None


def introduction(invite: Invite, functions: tuple[str, ...] = ()) -> str:
    """What a person compares and reads before this machine joins: the words first, the name after.

    `functions`: those whose Python functions this machine's owner lets in, `*` for everybody's.
    """
    whose = "everybody" if "*" in functions else ", ".join(functions)
    let_in = f"Python functions of {whose} are let in too: docs/contributor.md says what holds them.\n"
    return (
        f"pool fingerprint: {fingerprint(invite.pool_id)}\n"
        f"pool name:        {invite.pool_name or '(none)'}\n"
        f"reached at:       {', '.join(invite.addresses)}\n"
        "Compare the words with those that the pool's admin sees. Kernels of the pool will run here; they see\n"
        "the data they compute on and nothing else of this machine.\n" + (let_in if functions else "")
    )


def enrol(folder: Path, invite: Invite) -> None:
    """Note the invite in the state folder; the agent presents it. Raises `StateRefused` (see `WorkerHome`)."""
    home = WorkerHome(folder)
    try:
        home.accept(invite)
    finally:
        home.close()
