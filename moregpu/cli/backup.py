"""`moregpu pool backup` and `restore`: the whole pool in one file under a passphrase, on the coordinator's machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from moregpu.cli.show import JsonOption, counted, print_json, say, size
from moregpu.errors import InvalidRequest
from moregpu.platform.private import read_private

MIN_CHARACTERS = 12

StateOption = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="State folder of the coordinator, where it is not the usual one."),
]
PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="File (0600) that holds the passphrase."),
]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; one that exists is not replaced.")],
    state: StateOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the whole pool to one file: keys, jobs, results, workers, tokens, ledger. The pool may run meanwhile.

    The file is sealed under a passphrase, which is asked for, or read from --passphrase-file or standard input. Whoever
    has both is the pool: keep them apart. Without the passphrase the file is worth nothing, for you as well.
    """
    passphrase = _passphrase(passphrase_file, new=True)
    from moregpu.coordinator.backup import back_up
    from moregpu.platform.settings import part_folder

    made = back_up(state or part_folder("pool"), file, passphrase)
    if as_json:
        print_json({"file": str(file), "id": made.id, "blobs": made.blobs, "bytes": made.bytes})
        return
    say("{}: the pool as it was just now, with {}, {}", file, counted(made.blobs, "blob"), size(made.bytes))


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `moregpu pool backup` wrote.")],
    state: StateOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an empty state folder the pool that a backup holds. Workers and clients find it again at its old address.

    What was accepted after the backup is gone; invites used and tokens revoked after it hold again.
    """
    passphrase = _passphrase(passphrase_file, new=False)
    from moregpu.coordinator.backup import restore as put_back
    from moregpu.platform.settings import part_folder

    folder = state or part_folder("pool")
    made = put_back(file, folder, passphrase)
    if as_json:
        print_json({"state": str(folder), "id": made.id, "blobs": made.blobs, "secrets_in": made.secrets_in})
        return
    where = f" --state {shlex.quote(str(folder))}" if state else ""
    say(
        "{}: the pool is back, with {}. Its key is in {}.\n"
        "Never run it beside the one that it was made of: stop that one first, and for good.\n"
        "Next: moregpu serve{}   and, without an admin token here,\n"
        "      moregpu token create --local --role admin{}",
        folder,
        counted(made.blobs, "blob"),
        "the keyring" if made.secrets_in == "keyring" else "a file that only you can read",
        where,
        where,
    )


def _passphrase(file: Path | None, *, new: bool) -> str:
    """Ask for the passphrase, twice for a new one; or read the first line of a private file, or of standard input."""
    if file is not None:
        content = read_private(file)
        if content is None:
            raise InvalidRequest(f"there is no file {file}", "write the passphrase into it, mode 0600")
        try:
            given = content.decode().splitlines()[0] if content.strip() else ""
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{file} holds no text", "write the passphrase into it, as UTF-8") from error
    elif sys.stdin.isatty():
        given = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    if not given or (new and len(given) < MIN_CHARACTERS):
        raise InvalidRequest(
            f"a passphrase of {len(given)} characters" if given else "there is no passphrase",
            f"type one of {MIN_CHARACTERS} characters or more, or give it by --passphrase-file or standard input",
        )
    return given
