"""`moregpu token create`: a line for a client, over HTTP or, with `--local`, from the coordinator's state folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, ago, left, print_json, print_table, say
from moregpu.errors import InvalidRequest
from moregpu.wire.api import Role, Scope, TokenRequest
from moregpu.workloads import KINDS

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def tokens() -> None:
    """Tokens for clients."""


@app.command()
def create(
    label: Annotated[str, typer.Option(help="Who or what it is for.")] = "",
    role: Annotated[Role, typer.Option(help="What it may do.")] = "submitter",
    expires: Annotated[float | None, typer.Option(min=1, help="Seconds until it expires; default: never.")] = None,
    weight: Annotated[float, typer.Option(min=0.01, max=100, help="Its share of a busy pool, beside others' 1.")] = 1.0,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="all|compat|KIND",
            help="Kind of job that it may submit, such as kernel; may be repeated. compat: MoreGPU 1.x's calls alone.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A group of people that it belongs to; may be repeated. Workers' owners may let its functions in by "
            "functions=group:NAME.",
        ),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Make it in the state folder of this machine's coordinator, running or not.")
    ] = False,
    state: Annotated[Path | None, typer.Option(help="That state folder, where it is not the usual one.")] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Make a token. The line is shown this once: it says where the pool is and who the client is.

    `--local` mends a lost admin token for whoever can write the state folder.
    """
    calls, kinds = scopes(scope or [])
    groups = tuple(dict.fromkeys(group or []))
    if local or state is not None:
        from moregpu.coordinator.local import create_local_token
        from moregpu.platform.settings import part_folder

        line = create_local_token(
            state or part_folder("pool"),
            role,
            label,
            expires,
            weight=weight,
            scope=calls,
            kinds=kinds,
            groups=groups,
        ).line()
    else:
        with reach(profile) as pool:
            request = TokenRequest(
                label=label,
                role=role,
                expires_s=expires,
                weight=weight,
                scope=calls,
                kinds=list(kinds),
                groups=list(groups),
            )
            line = pool.create_token(request).line
    if as_json:
        print_json({"line": line, "role": role, "label": label, "scope": calls, "kinds": kinds, "groups": groups})
        return
    say("{}", line)
    typer.echo("\nWhoever has this line is that client. Give it to a program as MOREGPU_ADMIN_TOKEN.", err=True)


@app.command("list")
def list_tokens(as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """List the tokens that are good; their lines were shown once and are nowhere kept."""
    with reach(profile) as pool:
        found = pool.tokens()
    if as_json:
        print_json(found)
        return
    print_table(
        ["ID", "LABEL", "ROLE", "SCOPE", "GROUPS", "MADE", "USED", "EXPIRES"],
        [
            [
                view.id,
                view.label,
                view.role,
                " ".join(view.kinds) or view.scope,
                " ".join(view.groups),
                ago(view.created_at),
                ago(view.used_at),
                left(view.expires_at) if view.expires_at else "never",
            ]
            for view in found
        ],
        "There is no token.",
    )


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="Its id, as `moregpu token list` shows it.")],
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """End a token at once: what it has open ends, too. Its jobs go on."""
    with reach(profile) as pool:
        pool.revoke_token(id)
    print_json({"revoked": id}) if as_json else say("{} is revoked", id)


def scopes(names: list[str]) -> tuple[Scope, tuple[str, ...]]:
    """Read `--scope`: all, compat, or kinds of job. Raises `InvalidRequest`."""
    kinds = tuple(dict.fromkeys(name for name in names if name not in ("all", "compat")))
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidRequest(f"--scope {kind[:40]!r} is none", f"all, compat, or kinds: {', '.join(KINDS)}")
    if len({name if name in ("all", "compat") else "" for name in names}) > 1:
        raise InvalidRequest("--scope all and --scope compat stand alone", "or name kinds of jobs only")
    return "compat" if "compat" in names else "all", kinds
