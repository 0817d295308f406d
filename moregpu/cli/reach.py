"""How a command reaches its pool: the options for it, and the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moregpu.client.pool import Pool

ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="The pool to talk to, by the name of its profile.", metavar="NAME")
]


def reach(profile: str | None) -> Pool:
    """Connect as `moregpu.connect()` does; a coordinator that is not there is said at once, not waited for."""
    from moregpu.client.pool import connect

    return connect(profile=profile, timeout_s=0.0)
