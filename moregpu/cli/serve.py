"""`moregpu serve`: run a coordinator; with `--worker` this machine lends its idle time to it, too."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moregpu.cli.show import JsonOption, print_json, say
from moregpu.cli.sizes import read_size

if TYPE_CHECKING:
    from moregpu.coordinator.server import Opening, ServeConfig

_WORKER_STOP_S = 15.0


def serve(
    context: typer.Context,
    worker: Annotated[bool, typer.Option("--worker", help="Make this machine a worker of the pool as well.")] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8787,
    advertise: Annotated[
        list[str] | None, typer.Option(help="Name or address that invites carry; up to four.", metavar="NAME")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name that requests may use for this coordinator.", metavar="NAME")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="State folder, where it is not the usual one.")] = None,
    name: Annotated[str, typer.Option(help="The pool's name; default: this machine's.")] = "",
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="PEM chain of a certificate of your own.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="PEM key of that certificate.")] = None,
    keep_bytes: Annotated[
        str | None,
        typer.Option(help="Outputs of ended jobs beyond this go, oldest first: 50GB; 0: no limit.", metavar="SIZE"),
    ] = None,
    submitter_jobs: Annotated[
        int | None, typer.Option(help="Most jobs of one submitter that have not ended.", min=1, metavar="N")
    ] = None,
    submitter_bytes: Annotated[
        str | None, typer.Option(help="Most that one submitter keeps here: 10GB; 0: no limit.", metavar="SIZE")
    ] = None,
    behind_tunnel: Annotated[
        str, typer.Option(help="Public address of a tunnel that forwards here; invites carry it.", metavar="URL")
    ] = "",
    insecure_loopback: Annotated[
        int | None,
        typer.Option(
            help="Open this port without TLS, on loopback alone, for programs of MoreGPU 1.x.",
            metavar="PORT",
            min=1,
            max=65535,
        ),
    ] = None,
    announce: Annotated[
        bool,
        typer.Option(
            "--announce", help="Tell the local network that the pool is here: its name and fingerprint alone."
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print neither token nor invite: for services whose output is kept.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    as_json: JsonOption = False,
) -> None:
    """Run a coordinator: this machine holds the pool. The first run prints how to get in, once.

    What is not said here is as `moregpu config set pool.…` keeps it.
    """
    from moregpu.coordinator import process

    process.prepare()
    import msgspec

    from moregpu.cli import nearby
    from moregpu.cli.kept import together, typed
    from moregpu.coordinator.reach import multicast_interfaces
    from moregpu.coordinator.server import serve as run_coordinator
    from moregpu.errors import InvalidRequest
    from moregpu.platform import logs, paths
    from moregpu.platform.settings import read_section

    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidRequest(f"--log-level {log_level[:20]!r} is no level", "debug, info, warning or error")
    if announce:
        nearby.need_zeroconf()
    logs.set_up(log_level, path=paths.log_folder() / "coordinator.log")
    options: dict[str, tuple[str, object]] = {
        "host": ("host", host),
        "port": ("port", port),
        "advertise": ("advertise", advertise),
        "allow_host": ("allowed_hosts", allow_host),
        "state": ("state", str(state)),
        "name": ("name", name),
        "tls_cert": ("tls_cert", str(tls_cert)),
        "tls_key": ("tls_key", str(tls_key)),
        "worker": ("worker_invite", worker),
        "behind_tunnel": ("behind_tunnel", behind_tunnel),
        "insecure_loopback": ("insecure_loopback", insecure_loopback),
        "keep_bytes": ("keep_bytes", read_size("--keep-bytes", keep_bytes)),
        "submitter_jobs": ("submitter_jobs", submitter_jobs),
        "submitter_bytes": ("submitter_bytes", read_size("--submitter-bytes", submitter_bytes)),
    }
    config = together("pool", read_section("pool"), typed(context, options), checked_pool)
    with contextlib.ExitStack() as stack:
        process.settle()

        def ready(opening: Opening) -> None:
            _tell(msgspec.structs.replace(opening, first=False) if quiet else opening, as_json=as_json)
            if announce:
                where = multicast_interfaces(config.host)
                stack.enter_context(nearby.announced_aside(opening.pool_name, opening.fingerprint, where))
            if opening.worker_line:
                # A folder for each pool: this machine may be a worker of another one, too, by `moregpu join`.
                worker_state = paths.state_folder(f"worker-{opening.pool_id[:12]}")
                stack.enter_context(_worker_process(worker_state, opening.worker_line))

        # A worker of our own goes first: it hands back what it has, instead of losing whom to hand it to.
        _run(run_coordinator(config, ready, leaving=stack.close))


def checked_pool(**fields: Any) -> ServeConfig:
    """A coordinator's settings; sizes may be written as people write them. Raises `InvalidRequest`."""
    from moregpu.coordinator.server import ServeConfig

    for key in ("keep_bytes", "submitter_bytes"):
        if isinstance(text := fields.get(key), str):
            fields[key] = read_size(key, text)
    return ServeConfig.checked(**fields)


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it exists."""
    import asyncio

    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)


def _tell(opening: Opening, *, as_json: bool) -> None:
    """Say once how to get in. These lines go to the terminal and nowhere else."""
    if as_json:
        print_json({**_facts(opening), "event": "listening"})
        sys.stdout.flush()
        return
    from moregpu.platform.settings import part_folder

    lines = [
        f"Pool         {opening.pool_name}",
        f"Fingerprint  {opening.fingerprint}",
        f"Listening    {opening.url}",
        f"             {opening.note}",
        f"State        {opening.state} ({_kept(opening)})",
    ]
    if opening.plain_url:
        lines.append(f"Without TLS  {opening.plain_url} (this machine, tokens of scope compat)")
    if opening.profile:
        lines.append(f"Profile      {opening.profile}: commands on this machine just work")
    if opening.first:
        where = "" if opening.state == part_folder("pool") else f" --state {shlex.quote(str(opening.state))}"
        lines += [
            "",
            "This is shown once.",
            "",
            "Admin, for another machine (MOREGPU_ADMIN_TOKEN):",
            f"  {opening.admin_line}",
            "",
            "Invite for one worker, good for an hour:",
            f"  {opening.invite_line}",
            "",
            "On the machine that joins:  moregpu join   (it asks for the invite)",
            "More invites:               moregpu invite",
            f"Lost the admin line:        moregpu token create --local --role admin{where}",
        ]
    for line in lines:
        say("{}", line)
    sys.stdout.flush()


def _facts(opening: Opening) -> dict[str, object]:
    facts: dict[str, object] = {
        "pool": opening.pool_name,
        "id": opening.pool_id,
        "fingerprint": opening.fingerprint,
        "url": opening.url,
        "addresses": list(opening.addresses),
        "note": opening.note,
        "pin": opening.pin.hex(),
        "state": str(opening.state),
        "secrets_in": opening.secrets_in,
        "profile": opening.profile,
        "first": opening.first,
    }
    if opening.plain_url:
        facts["plain_url"] = opening.plain_url
    if opening.first:
        facts |= {"admin": opening.admin_line, "invite": opening.invite_line}
    return facts


def _kept(opening: Opening) -> str:
    if opening.secrets_in == "keyring":
        return "sealed; its key is in the keyring"
    return "sealed; no keyring here, so its key is in a file that only you can read"


@contextlib.contextmanager
def _worker_process(state: Path, invite: str) -> Generator[None]:
    """Run a worker in a process of its own, as long as the coordinator runs.

    The invite goes over its standard input, which stays open: that closes with this process, even if it is killed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "moregpu.worker", "--until-closed", "--state", str(state)],
        stdin=subprocess.PIPE,
        start_new_session=os.name == "posix",  # a Ctrl-C here is passed on below, in order
    )
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it ended at once; it said why
            process.stdin.write(invite.encode() + b"\n")
            process.stdin.flush()
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_WORKER_STOP_S)
        except subprocess.TimeoutExpired:
            _kill_group(process)
            process.wait()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
