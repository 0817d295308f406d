"""Nothing that opens a door lies where others look: logs, process lists, databases, URLs, what commands print."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.wire.api import InviteRequest, TokenRequest
from moregpu.wire.invite import parse_client_line, parse_invite


def spellings(secret: bytes) -> list[bytes]:
    """A secret as it could be written down."""
    import base64

    return [secret, secret.hex().encode(), base64.b64encode(secret)[:20], base64.urlsafe_b64encode(secret)[:20]]


def everything_under(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_secret_in_any_artefact(lone: LoopbackPool) -> None:
    """Row 36 of the fault table: tokens, invites' secrets and blobs' keys, over all files and all command lines."""
    with lone.connect() as pool:
        invite = pool.invite(InviteRequest(owner="anna"))
        lone.start_worker("anna", invite=invite.line)
        lone.wait_for_workers()
        made = parse_client_line(pool.create_token(TokenRequest(label="a script")).line).token
        handle = pool.kernel("vector_add", np.ones(100_000, np.float32), np.ones(100_000, np.float32))
        handle.result(60)
        keys = [tensor.data.key for tensor in handle.status().result.outputs.values()]  # type: ignore[union-attr]
        commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout
        printed = "".join(lone.run(*words).stdout for words in (["jobs"], ["job", handle.id], ["workers"], ["audit"]))
        json_printed = lone.run("job", handle.id, "--json").stdout
    lone.stop()
    admin = lone.access().token
    secret = parse_invite(invite.line).secret
    needles = {
        "a client's token": [made.encode(), made.rpartition("_")[2].encode()],
        "the admin's token": [admin.encode(), admin.rpartition("_")[2].encode()],
        "the invite": [invite.line.encode(), *spellings(secret)],
        "a blob's key": [spelling for key in keys for spelling in spellings(key)],
    }
    places = everything_under(lone.home)
    places[Path("the process list")] = commands
    places[Path("what commands printed")] = (printed + json_printed).encode()
    found = {
        (str(path.relative_to(lone.home)) if path.is_absolute() else str(path), what)
        for path, content in places.items()
        for what, spelled in needles.items()
        if any(needle in content for needle in spelled)
    }
    # The admin's token: once on the first run's screen, and where this user's own commands find it, 0600.
    allowed = {
        (place, what)
        for place, what in found
        if what == "the admin's token"
        and (place == "coordinator.log" or place.startswith(("state/secrets/", "config/profiles/")))
    }
    assert found == allowed
    for place, _ in allowed:
        if place != "coordinator.log":
            assert (lone.home / place).stat().st_mode & 0o077 == 0


def test_an_invite_on_the_command_line_is_refused_with_that_advice(lone: LoopbackPool) -> None:
    with lone.connect() as pool:
        line = pool.invite().line
    shown = lone.run("join", line)
    assert shown.returncode != 0
    assert line not in shown.stdout + shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("given", ["", "nonsense", "MGPU1-", "MGPU1-0000000000000000"])
def test_what_is_no_invite_is_refused_in_one_line(lone: LoopbackPool, tmp_path: Path, given: str) -> None:
    shown = lone.run("join", "--state", str(tmp_path / "worker"), given=given + "\n")
    assert shown.returncode != 0
    assert "Traceback" not in shown.stderr
    assert not any((tmp_path / "worker").rglob("*.json"))
