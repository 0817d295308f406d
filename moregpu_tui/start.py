"""A first run's two real ways: start a coordinator that outlives the console, or connect to one elsewhere."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time

from moregpu.client.access import Access, find_access
from moregpu.client.pool import connect
from moregpu.errors import MoreGPUError, NotConfigured, PortInUse, StateRefused, Unavailable, Unreachable
from moregpu.platform import services
from moregpu.platform.paths import Profile, load_profile, log_folder, profile_token_ref, save_profile
from moregpu.platform.private import private_folder
from moregpu.platform.secrets import TokenStore
from moregpu.wire.invite import parse_client_line

START_S = 60.0
LOOK_S = 0.1
PROFILE = "local"


async def start_pool(port: int | None = None) -> tuple[str, Access]:
    """Start `moregpu serve` as this system's own service, else as a process of its own; wait until it answers.

    Gives what to tell, and how to reach it. Raises what the coordinator said when it ended instead: a taken port, a
    state folder that cannot be trusted.
    """
    return await asyncio.to_thread(_start, port)


async def join_as_client(line: str) -> tuple[str, Access]:
    """Try an `MGPUC1-` line, and keep it as a profile when it is good. Raises typed errors."""
    return await asyncio.to_thread(_join, line)


def _start(port: int | None) -> tuple[str, Access]:
    private_folder(log_folder())
    chosen = port if port is not None else int(os.environ.get("MOREGPU_PORT", "8787"))
    _must_be_free(chosen)
    # What it prints once (admin line, invite) goes nowhere: the console has the profile that it saves.
    argv = [sys.executable, "-m", "moregpu", "serve", "--quiet", "--port", str(chosen)]
    service = services.enable_coordinator(argv)
    return _await_service(service) if service else _await_process(argv)


def _await_service(service: str) -> tuple[str, Access]:
    until = time.monotonic() + START_S
    while time.monotonic() < until and not services.coordinator_failed():
        if (access := _answering()) is not None:
            return (
                f"the pool runs on this machine as {service}: it stays when you quit, and comes with each login",
                access,
            )
        time.sleep(LOOK_S)
    services.disable_coordinator()
    raise Unreachable(
        f"{service} did not answer: it was taken away again", f"journalctl --user -u {services.COORDINATOR_UNIT}"
    )


def _await_process(argv: list[str]) -> tuple[str, Access]:
    path = log_folder() / "coordinator-start.log"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as said:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # it must outlive the terminal: no SIGHUP, no ctrl+c
        )
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            lines = path.read_text(errors="replace").strip().splitlines()
            reason = lines[-1].removeprefix("moregpu: ") if lines else f"exit status {process.returncode}"
            raise MoreGPUError(f"the coordinator ended at once: {reason[:300]}", f"its log is {path}")
        if (access := _answering()) is not None:
            return (
                f"the pool runs on this machine as a process of its own ({process.pid}), since there are no user "
                "services here: it stays when you quit, but not beyond a restart of the machine",
                access,
            )
        time.sleep(LOOK_S)
    process.terminate()
    raise Unreachable("the coordinator did not answer within a minute", f"its log is {path}")


def _answering() -> Access | None:
    """How to reach the coordinator, once it answers."""
    try:
        connect(profile=PROFILE, timeout_s=0.0).close()
    except (NotConfigured, StateRefused, Unreachable, Unavailable):
        return None
    return find_access(profile=PROFILE)


def _must_be_free(port: int) -> None:
    """A service that cannot have its port would only say so in a journal. Raises `PortInUse`."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            raise PortInUse(
                f"port {port} is taken: {error.strerror}", "MOREGPU_PORT=8788 moregpu-tui takes another"
            ) from error


def _join(line: str) -> tuple[str, Access]:
    parsed = parse_client_line(line)
    access = Access(addresses=parsed.addresses, token=parsed.token, pin=parsed.pin)
    from moregpu.client.pool import Pool

    pool = Pool(access)
    try:
        pool.me(patience_s=3.0)
        name = pool.info().name
        address = pool.doors.address
    finally:
        pool.close()
    profile = _free_name(name)
    reference = profile_token_ref(profile)
    kept = TokenStore().put(reference, parsed.token)
    save_profile(profile, Profile(url=f"https://{address}", pin=parsed.pin.hex(), token_ref=reference, pool_name=name))
    return f"connected to {name}; kept as profile {profile} ({kept}): moregpu-tui --profile {profile}", access


def _free_name(wanted: str) -> str:
    """A profile's name made of the pool's; the first is `local`, so that plain `moregpu-tui` finds it."""
    if load_profile(PROFILE) is None:
        return PROFILE
    plain = "".join(character if character.isalnum() else "-" for character in wanted if character.isascii())
    plain = plain.strip("-")[:40] or "pool"
    name, number = plain, 2
    while load_profile(name) is not None:
        name, number = f"{plain}-{number}", number + 1
    return name
