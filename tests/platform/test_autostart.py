"""Start at login: one way a system, never two, and gone without a trace."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.errors import Unavailable
from moregpu.platform import autostart, services

AWKWARD = ["/opt/More GPU/moregpu-tray", "100%", 'a"b', "$HOME", "back\\slash", "`id`"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="XDG")
def test_on_and_off(config: Path) -> None:
    assert not autostart.is_enabled()
    autostart.enable(["/usr/bin/moregpu-tray"])
    assert autostart.is_enabled()
    assert "Exec=/usr/bin/moregpu-tray\n" in autostart.place().read_text()
    autostart.disable()
    autostart.disable()
    assert not autostart.is_enabled()


@pytest.mark.skipif(sys.platform != "linux", reason="systemd")
def test_a_service_and_autostart_are_never_on_together(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_call", lambda *command: True)
    services.enable(["/usr/bin/moregpu-tray", "--headless"])
    assert services.is_enabled()
    autostart.enable(["/usr/bin/moregpu-tray"])
    assert (autostart.is_enabled(), services.is_enabled()) == (True, False)
    services.enable(["/usr/bin/moregpu-tray", "--headless"])
    assert (autostart.is_enabled(), services.is_enabled()) == (False, True)
    services.disable()
    assert not services.is_enabled()


@pytest.mark.skipif(sys.platform != "linux", reason="systemd")
def test_a_service_that_systemd_does_not_take_is_no_success_and_says_what_to_do(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_call", lambda *command: False)
    with pytest.raises(Unavailable, match="--headless") as refused:
        services.enable(["/usr/bin/moregpu-tray", "--headless"])
    assert str(services.place()) in refused.value.detail and services.place().exists()


def unquoted(text: str) -> list[str]:
    """The Desktop Entry Specification's Exec, read by its rules: first the string's escapes, then the quoting."""
    string = text.replace("\\\\", "\x00").replace("\x00", "\\")
    words: list[str] = []
    place = 0
    while place < len(string):
        word = ""
        if string[place] == '"':
            place += 1
            while string[place] != '"':
                if string[place] == "\\":
                    place += 1
                word += string[place]
                place += 1
            place += 1
        else:
            while place < len(string) and string[place] != " ":
                word += string[place]
                place += 1
        words.append(word.replace("%%", "%"))
        place += 1
    return words


def test_awkward_paths_survive_the_desktop_entrys_quoting() -> None:
    line = next(line for line in autostart.desktop_entry(AWKWARD).splitlines() if line.startswith("Exec="))
    assert unquoted(line.removeprefix("Exec=")) == AWKWARD


def test_the_entry_is_valid_where_that_can_be_checked(tmp_path: Path) -> None:
    checker = shutil.which("desktop-file-validate")
    if checker is None:
        pytest.skip("missing: desktop-file-validate; mend: apt-get install desktop-file-utils")
    file = tmp_path / "moregpu-tray.desktop"
    file.write_text(autostart.desktop_entry(["/usr/bin/moregpu-tray"]))
    done = subprocess.run([checker, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("coordinator", [False, True])
def test_the_unit_is_valid_where_that_can_be_checked(
    coordinator: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOREGPU_HOME", str(tmp_path / "a home, 100% $mine"))
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("missing: systemd-analyze; mend: apt-get install systemd")
    file = tmp_path / (services.COORDINATOR_UNIT if coordinator else services.UNIT)
    file.write_text(services.unit(["/bin/true", "--headless", "100%"], coordinator=coordinator))
    done = subprocess.run([checker, "--user", "verify", file], capture_output=True, text=True, check=False)
    assert file.name not in done.stderr, done.stderr


def test_a_launch_agent_starts_once_and_again_only_after_a_failure() -> None:
    agent = plistlib.loads(autostart.launch_agent(AWKWARD, "--headless"))
    assert agent["ProgramArguments"] == [*AWKWARD, "--headless"]
    assert (agent["RunAtLoad"], agent["KeepAlive"]) == (True, {"SuccessfulExit": False})
