"""The first run's pool: the system's own service where there is one, else a process of its own; and it says which."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from moregpu.client.pool import connect
from moregpu.errors import PortInUse, Unreachable
from moregpu.platform import services
from moregpu_tui.start import start_pool

SYSTEMCTL = """#!/bin/sh
# What systemd would do with the unit, as far as a start needs it. FAILS: the unit ends at once.
unit="$XDG_CONFIG_HOME/systemd/user/moregpu-coordinator.service"
echo "$*" >> "$HERE/calls"
case "$*" in
  "--user is-failed"*) test -e "$HERE/failed" ;;
  "--user enable --now moregpu-coordinator.service")
    if [ -n "$FAILS" ]; then touch "$HERE/failed"; exit 0; fi
    setsid $(sed -n 's/^ExecStart=//p' "$unit") >/dev/null 2>"$HERE/said" </dev/null &
    echo $! > "$HERE/pid" ;;
  "--user disable --now moregpu-coordinator.service") test -e "$HERE/pid" && kill "$(cat "$HERE/pid")"; true ;;
esac
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="missing: systemd's command line; other systems differ")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, without any system service yet."""
    for name in [name for name in os.environ if name.startswith("MOREGPU_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MOREGPU_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HERE", str(tmp_path))
    bin = tmp_path / "bin"
    bin.mkdir()
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def with_services(here: Path) -> None:
    script = here / "bin" / "systemctl"
    script.write_text(SYSTEMCTL)
    script.chmod(0o755)


def without_services(here: Path) -> None:
    script = here / "bin" / "systemctl"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)


def end(pid: int) -> None:
    process = psutil.Process(pid)
    os.kill(pid, signal.SIGTERM)
    process.wait(20)


def test_a_systems_own_services_hold_the_pool_and_it_is_said(here: Path, port: int) -> None:
    with_services(here)
    try:
        said, _access = asyncio.run(start_pool(port))
        assert "user service moregpu-coordinator.service" in said
        unit = services.place(services.COORDINATOR_UNIT).read_text()
        assert f"MOREGPU_HOME={here / 'home'}" in unit
        assert "serve --quiet --port" in unit
        pool = connect(profile="local")
        assert pool.me().role == "admin"
        pool.close()
    finally:
        pid = int((here / "pid").read_text())
        process = psutil.Process(pid)
        services.disable_coordinator()
        process.wait(20)
    assert not services.place(services.COORDINATOR_UNIT).exists()


def test_without_them_it_is_a_process_of_its_own_and_that_is_said_too(here: Path, port: int) -> None:
    without_services(here)
    said, _access = asyncio.run(start_pool(port))
    pid = int(said.partition("(")[2].partition(")")[0])
    try:
        assert "process of its own" in said
        assert not services.place(services.COORDINATOR_UNIT).exists()
        assert os.getsid(pid) == pid  # no terminal takes it down
    finally:
        end(pid)


def test_a_service_that_gives_up_is_taken_away_again(here: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_services(here)
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(Unreachable) as caught:
        asyncio.run(start_pool(port))
    assert "journalctl" in caught.value.hint
    assert not services.place(services.COORDINATOR_UNIT).exists()


def test_a_taken_port_is_said_before_anything_is_set_up(here: Path) -> None:
    with_services(here)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortInUse):
            asyncio.run(start_pool(int(other.getsockname()[1])))
    assert not (here / "calls").exists()
