"""`moregpu login`: keep how to reach a pool as a profile, so that commands and programs find it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from moregpu.cli.show import JsonOption, print_json, say
from moregpu.errors import InvalidRequest


def login(
    name: Annotated[str, typer.Argument(help="The profile's name; `local` is the one that is used unasked.")] = "local",
    url: Annotated[str | None, typer.Option(help="The pool's address, for a bare token.")] = None,
    pin: Annotated[str | None, typer.Option(help="SHA-256 of its certificate, for a bare token.")] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Forget the profile and its token instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Save a pool under a name. The line (MGPUC1-…) is asked for, or read from standard input; never an argument.

    Then: moregpu --profile works in every command as `--profile NAME`, and moregpu.connect(profile="NAME") in Python.
    """
    from moregpu.client.access import find_access
    from moregpu.client.pool import Pool
    from moregpu.platform.asking import ask_for_line
    from moregpu.platform.paths import Profile, delete_profile, profile_token_ref, save_profile
    from moregpu.platform.secrets import TokenStore
    from moregpu.wire.invite import MAX_LINE_CHARACTERS, lacks_its_end

    if forget:
        TokenStore().delete(profile_token_ref(name))
        there = delete_profile(name)
        print_json({"profile": name, "forgotten": there}) if as_json else say(
            "{} is forgotten" if there else "there was no profile {}", name
        )
        return
    if sys.stdin.isatty():
        given = ask_for_line("Line or token", lacks_its_end)
    else:
        given = sys.stdin.readline(MAX_LINE_CHARACTERS)
        while lacks_its_end(given) and (more := sys.stdin.readline(MAX_LINE_CHARACTERS)):
            given += more
    if not given.strip():
        raise InvalidRequest("no line came", "moregpu token create prints one; paste it when asked")
    access = find_access(url, given.strip(), pin=pin)
    with Pool(access) as pool:  # what does not work is not saved
        me, info = pool.me(patience_s=0.0), pool.info()
        address = pool.doors.address
    reference = profile_token_ref(name)
    TokenStore().put(reference, access.token)
    place = save_profile(
        name, Profile(url=f"https://{address}", pin=access.pin.hex(), token_ref=reference, pool_name=info.name)
    )
    if as_json:
        print_json({"profile": name, "pool": info.name, "role": me.role, "path": str(place)})
    else:
        say("{}: the pool {}, as {} ({}); saved in {}", name, info.name, me.label or me.id, me.role, place)
