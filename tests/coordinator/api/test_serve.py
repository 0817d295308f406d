"""A coordinator from its start to its end: first run, restart, what refuses to start, and no secret left behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from moregpu.cli.loopback import free_port
from moregpu.client.pool import connect
from moregpu.coordinator.local import create_local_token
from moregpu.coordinator.server import ServeConfig
from moregpu.errors import InvalidRequest, PortInUse, StateRefused, VersionMismatch
from moregpu.platform import paths
from moregpu.platform.private import write_private
from moregpu.wire.invite import parse_client_line, parse_invite

from .conftest import Running

UNTIL_S = 60.0


def test_a_restart_knows_everything_and_tells_no_secret_again(config: ServeConfig) -> None:
    with Running(config) as pool:
        token, first = pool.admin, pool.opening
        job = pool.submit(token)
    assert first.first and first.invite_line
    with Running(replace(config, port=pool.port), known=pool) as again:
        assert not again.opening.first
        assert again.opening.admin_line == again.opening.invite_line == ""
        assert (again.opening.fingerprint, again.opening.pin) == (first.fingerprint, first.pin)
        assert again.ask("GET", f"/v1/jobs/{job}", token).json()["state"] == "queued"


def test_the_lines_of_the_first_run_lead_here(config: ServeConfig) -> None:
    with Running(config) as pool:
        invite = parse_invite(pool.opening.invite_line)
        assert (invite.addresses, invite.pin, invite.pool_id) == ((pool.address,), pool.pin, pool.services.pool.id)
        assert pool.ask("GET", "/v1/me", parse_client_line(pool.opening.admin_line).token).json()["role"] == "admin"


@pytest.mark.parametrize(
    "changes", [{}, {"behind_tunnel": "https://pool.example.com"}, {"advertise": ("pool.example.com",)}]
)
def test_the_worker_of_this_machine_comes_in_here_whatever_is_advertised(
    config: ServeConfig, changes: dict[str, Any]
) -> None:
    with Running(replace(config, worker_invite=True, **changes)) as pool:
        assert parse_invite(pool.opening.worker_line).addresses == (f"127.0.0.1:{pool.services.pool.reach.port}",)


def test_the_profile_makes_commands_on_this_machine_just_work(config: ServeConfig, home: Path) -> None:
    config = replace(config, profile="local")
    with Running(config) as pool, connect() as client:
        assert client.me().role == "admin"
        assert pool.opening.profile == "local"
        profile = paths.load_profile("local")
    assert profile is not None
    with Running(config, known=pool) as again, connect() as client:  # on another port: the profile follows
        assert client.me().role == "admin"
        moved = paths.load_profile("local")
        assert moved is not None
        assert moved.url == f"https://{again.address}"
        assert moved.token_ref == profile.token_ref


def test_a_second_pool_does_not_take_anothers_profile_at_its_restart(
    config: ServeConfig, home: Path, tmp_path: Path
) -> None:
    config = replace(config, profile="local")
    with Running(config) as first:
        pass
    other = replace(config, state=str(tmp_path / "other"))
    with Running(other) as second:
        pass
    with Running(config, known=first):
        profile = paths.load_profile("local")
        assert profile is not None
        assert profile.url == f"https://{second.address}"


def test_a_local_token_works_at_once_on_a_running_coordinator(config: ServeConfig) -> None:
    with Running(config) as pool:
        line = create_local_token(Path(config.state), "admin")
        assert line.addresses == (pool.address,)
        assert pool.ask("GET", "/v1/me", line.token).json()["label"] == "made on this machine"


def test_a_taken_port_is_said_and_nothing_was_told(config: ServeConfig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortInUse), Running(replace(config, port=taken.getsockname()[1])):
            pass
    with Running(config) as pool:
        assert pool.opening.first  # the admin line was not lost with the failed start


def test_one_coordinator_a_folder(config: ServeConfig) -> None:
    with Running(config), pytest.raises(StateRefused, match="another coordinator"), Running(config):
        pass


def test_a_store_of_a_newer_version_is_refused(config: ServeConfig) -> None:
    import sqlite3

    with Running(config):
        pass
    database = sqlite3.connect(Path(config.state) / "pool.sqlite")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    database.execute(f"PRAGMA user_version = {max(version, 1) + 999}")
    database.close()
    with pytest.raises(VersionMismatch), Running(config):
        pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"advertise": ("a b",)}, {"host": "x y"}, {"tls_cert": "/nowhere.pem"},
        {"tls_cert": "/n.pem", "tls_key": "/n.pem"},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_are_said_before_anything_is_told(config: ServeConfig, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest), Running(replace(config, **wrong)):
        pass
    with Running(config) as pool:
        assert pool.opening.first


def test_all_that_it_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    with started(tmp_path) as (_, opening):
        for path in Path(opening["state"]).rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode & 0o077 == 0, (path, oct(mode))


@pytest.mark.slow
def test_no_secret_is_left_in_a_log_an_argument_or_a_file(tmp_path: Path) -> None:
    """Faults, row 36: the artefacts of a run are searched for every secret that there was."""
    with started(tmp_path) as (process, opening):
        line = parse_client_line(opening["admin"])
        invite = parse_invite(opening["invite"])
        secrets = [line.token, line.token[13:], opening["admin"], opening["invite"], invite.secret.hex()]
        environment = environment_of(tmp_path)
        for arguments in (["invite"], ["token", "create"], ["jobs"], ["workers"]):
            done = run(arguments, environment)
            assert done.returncode == 0, done.stderr
            secrets += [word for word in done.stdout.split() if word.startswith("MGPU")]
        run(["submit", "relu", "--size", "16", "--no-wait"], environment)
        run(["jobs"], environment | {"MOREGPU_URL": line.addresses[0], "MOREGPU_ADMIN_TOKEN": "mgt_wrong"})
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes() if os.path.exists("/proc") else b""
    logs = b"".join(path.read_bytes() for path in (tmp_path / "logs").rglob("*") if path.is_file())
    assert b"the coordinator listens" in logs
    state = b"".join(
        path.read_bytes() for path in (tmp_path / "state" / "pool").rglob("*")
        if path.is_file() and path.parent.name != "secrets"
    )  # fmt: skip
    assert len(secrets) >= 7
    for secret in secrets:
        assert secret.encode() not in logs
        assert secret.encode() not in arguments
        assert secret.encode() not in state
    assert invite.secret not in state


@pytest.mark.slow
def test_it_stops_in_order_when_it_is_told_to(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with started(tmp_path) as (process, _):
            process.send_signal(number)
            assert process.wait(30) == 0
    assert "the coordinator stopped" in (tmp_path / "logs" / "coordinator.log").read_text()


@pytest.mark.slow
def test_a_killed_one_starts_again_with_all_that_was_accepted(tmp_path: Path) -> None:
    with started(tmp_path) as (process, _):
        made = run(["submit", "relu", "--size", "16", "--no-wait", "--json"], environment_of(tmp_path))
        assert made.returncode == 0, made.stderr
        process.kill()
        process.wait()
    with started(tmp_path) as (_, opening):
        assert not opening["first"]
        listed = json.loads(run(["jobs", "--json"], environment_of(tmp_path)).stdout)
        assert [job["id"] for job in listed] == [json.loads(made.stdout)["id"]]


@pytest.mark.slow
def test_a_user_reads_one_line_and_no_traceback(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(["serve", "--port", str(taken.getsockname()[1])], environment_of(tmp_path))
    assert done.returncode == PortInUse.exit_code
    assert "another program listens on port" in done.stderr
    assert "Traceback" not in done.stderr
    assert run(["serve", "--log-level", "loud"], environment_of(tmp_path)).returncode == 2


@pytest.mark.slow
def test_a_person_is_told_how_to_get_in_once(tmp_path: Path) -> None:
    def said() -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "moregpu", "serve", "--port", "0"], env=environment_of(tmp_path),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith(("Profile", "Lost")) and ("Lost" in line or not first):
                break
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert "Traceback" not in errors
        return "".join(lines)

    first = True
    text = said()
    for part in ("Fingerprint", "MGPUC1-", "MGPU1-", "moregpu join", "this machine only", "no keyring here"):
        assert part in text
    first = False
    assert "MGPU" not in said().replace("MOREGPU", "")


@pytest.mark.slow
def test_a_service_tells_no_secret_and_opens_its_plain_port(tmp_path: Path) -> None:
    port = free_port()
    with started(tmp_path, "--quiet", "--insecure-loopback", str(port)) as (_, facts):
        assert facts["plain_url"] == f"http://127.0.0.1:{port}"
        assert not {"admin", "invite"} & set(facts)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        done = run(["invite", "--json"], environment_of(tmp_path))  # the profile is there all the same
        assert done.returncode == 0 and "MGPU1-" in done.stdout


def test_with_worker_this_machine_is_one_too_and_it_ends_with_the_coordinator(tmp_path: Path) -> None:
    with started(tmp_path, "--worker") as (process, _):
        environment = environment_of(tmp_path)
        until = time.monotonic() + UNTIL_S
        states: list[str] = []
        while states != ["online"]:
            assert time.monotonic() < until, states
            states = [view["state"] for view in json.loads(run(["workers", "--json"], environment).stdout or "[]")]
        done = run(["submit", "matmul", "--size", "64", "--json"], environment)
        assert done.returncode == 0, done.stderr + done.stdout
        process.terminate()
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert "does not answer" not in process.stdout.read()  # the worker went while there was somebody to tell
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout.split()
    assert left == []


def environment_of(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MOREGPU_")}
    # Whoever runs the tests uses this machine: a worker that gives way to them would wait.
    return kept | {"MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file", "MOREGPU_YIELD": "off", "NO_COLOR": "1"}


def run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moregpu", *arguments], env=environment, capture_output=True, text=True, check=False,
        timeout=UNTIL_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def started(home: Path, *options: str) -> Generator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`moregpu serve --json` as a process; yields it with what it said when it listened."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moregpu", "serve", "--port", "0", "--json", *options],
        env=environment_of(home), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_pool_whose_database_is_gone_does_not_begin_anew(config: ServeConfig, how: str) -> None:
    """Else workers, tokens, jobs and ledger are gone, and nobody was told: the admin is the first admin again."""
    with Running(config):
        pass
    for file in Path(config.state).glob("pool.sqlite*"):
        file.unlink()
    if how == "empty":
        write_private(Path(config.state) / "pool.sqlite", b"")
    with pytest.raises(StateRefused, match=f"its database is {how}"), Running(config):
        pass
    assert [file.stat().st_size for file in Path(config.state).glob("pool.sqlite*")] == [0] * (how == "empty")
