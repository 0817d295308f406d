"""What cannot be built here is checked as far as it can be: inputs are there, scripts can be read, hashes are right."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from installers import entry
from installers.build import PROGRAMS, SIZES, _debian_version, debian, scripts, tarball
from installers.entry import MODULES
from installers.entry import PROGRAMS as ENTRIES
from moregpu.platform import services

ROOT = Path(__file__).parents[2]
HERE = ROOT / "installers"


def test_every_program_and_every_module_that_is_started_exists_and_has_a_main() -> None:
    assert set(PROGRAMS) == set(ENTRIES)
    for module in {*ENTRIES.values(), *MODULES.values()}:
        found = find_spec(module)
        assert found is not None
        assert found.origin is not None
        assert re.search(r"^def main\(|^from \S+ import .*\bmain\b", Path(found.origin).read_text(), re.MULTILINE), (
            module
        )


def test_every_module_that_our_programs_start_is_one_that_the_frozen_program_knows() -> None:
    """`sys.executable -m NAME` works in a frozen program only for the names of `installers/entry.py`."""
    started = set()
    for package in ("moregpu", "moregpu_tray", "moregpu_tui"):
        for file in (ROOT / package).rglob("*.py"):
            # Written out, or handed to what starts a compute process or a window.
            started |= set(
                re.findall(r'(?:sys\.executable,\s*"-m",|spawn\(|_asked\()\s*"(moregpu[\w.]*)"', file.read_text())
            )
    assert {"moregpu.worker.child", "moregpu.worker.process", "moregpu_tray.who", "moregpu_tui"} <= started
    assert started <= set(MODULES)


@pytest.mark.parametrize("before", [None, "/their/own"])
def test_what_a_frozen_program_starts_finds_its_own_libraries(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "argv", ["moregpu"])
    monkeypatch.setattr("installers.entry.import_module", lambda _name: SimpleNamespace(main=lambda: None))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/moregpu/_internal")
    if before is not None:
        monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", before)
    monkeypatch.setenv("PYINSTALLER_RESET_ENVIRONMENT", "0")
    with pytest.raises(SystemExit):
        entry.main()
    assert os.environ.get("LD_LIBRARY_PATH") == before, "the system's, for programs of the system"
    assert os.environ["PYINSTALLER_RESET_ENVIRONMENT"] == "1", "ours set it again, for their own"


def test_the_pictures_are_there_at_every_size() -> None:
    for size in SIZES:
        assert (ROOT / "assets" / "icons" / f"moregpu-{size}.png").is_file()
    assert (ROOT / "assets" / "icons" / "moregpu.ico").read_bytes()[:4] == b"\0\0\1\0"
    assert (ROOT / "assets" / "icons" / "moregpu.icns").read_bytes()[:4] == b"icns"


def test_the_service_in_the_package_is_the_one_that_the_program_writes() -> None:
    kept = (HERE / "linux" / "moregpu-worker.service").read_text()
    assert kept == services.unit(["/usr/bin/moregpu-tray", "--headless"])


def test_windows_setup_names_only_what_is_there() -> None:
    text = (HERE / "windows" / "moregpu.iss").read_text()
    assert "PrivilegesRequired=lowest" in text
    named = re.findall(r'^(?:SetupIconFile|LicenseFile)=(.+)$|Source: "([^"{]+)"', text, re.MULTILINE)
    for path in [one or other for one, other in named]:
        assert (HERE / "windows" / path.replace("\\", "/")).resolve().exists(), path
    programs = set(re.findall(r'"\{app\}\\(moregpu[\w-]*)\.exe"', text))
    assert programs <= set(PROGRAMS)


def test_the_mac_recipe_finds_its_inputs() -> None:
    done = subprocess.run(
        [HERE / "macos" / "build_dmg.sh", "--dry-run", "1.0"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert plistlib.loads((HERE / "macos" / "entitlements.plist").read_bytes())


@pytest.mark.parametrize("script", ["linux/install.sh", "macos/build_dmg.sh"])
def test_shell_scripts_can_be_read_by_a_plain_shell(script: str) -> None:
    assert subprocess.run(["sh", "-n", HERE / script], check=False).returncode == 0
    if shutil.which("shellcheck"):
        assert subprocess.run(["shellcheck", "-s", "sh", HERE / script], check=False).returncode == 0


def test_the_desktop_entry_is_valid() -> None:
    checker = shutil.which("desktop-file-validate")
    if checker is None:
        pytest.skip("missing: desktop-file-validate; mend: apt-get install desktop-file-utils")
    done = subprocess.run(
        [checker, HERE / "linux" / "moregpu-tray.desktop"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_scripts_get_version_and_hash_and_no_word_is_left_open(tmp_path: Path) -> None:
    archive = tmp_path / "moregpu-1.0-linux-x86_64.tar.gz"
    archive.write_bytes(b"x")
    (tmp_path / "moregpu-1.0-windows-x86_64-setup.exe").write_bytes(b"y")
    shell, power = scripts(tmp_path, "1.0", archive, "https://example.org/1.0")
    for place, digest in ((shell, "2d711642b726b044"), (power, "a1fce4363854ff88")):
        text = place.read_text()
        assert digest in text, "the SHA-256 of what it fetches"
        assert not re.search(r"@[A-Z0-9]+@", text)


def test_a_script_without_a_hash_installs_nothing(tmp_path: Path) -> None:
    text = (HERE / "linux" / "install.sh").read_text().replace("@SHA256@", "").replace("@VERSION@", "1.0")
    script = tmp_path / "install.sh"
    script.write_text(text)
    done = subprocess.run(
        ["sh", script],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no hash" in done.stderr


def test_two_packages_of_one_folder_are_the_same_bytes_whenever_and_wherever_they_are_made(tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("missing: dpkg-deb; mend: apt-get install dpkg")
    made: list[bytes] = []
    for number, names in enumerate((("a", "b"), ("b", "a"))):
        folder, out = tmp_path / f"frozen{number}", tmp_path / f"out{number}"
        for place in (folder / "inner", out):
            place.mkdir(parents=True)
        for name in names:  # another order, another date, another umask
            file = folder / "inner" / name
            file.write_text(name)
            os.utime(file, (1_000_000.0 * (number + 1), 2_000_000.0 * (number + 1)))
            file.chmod(0o600 if number else 0o644)
        for program in PROGRAMS:
            (folder / program).write_text("#!/bin/sh\n")
            (folder / program).chmod(0o755)
        epoch = 1_700_000_000
        package = debian(folder, out, tmp_path / f"work{number}", "1.2.3", epoch)
        made += [package.read_bytes(), tarball(folder, out, "1.2.3", epoch).read_bytes()]
    assert made[0] == made[2]
    assert made[1] == made[3]


def test_development_versions_sort_before_the_release() -> None:
    newer = subprocess.run(["dpkg", "--compare-versions", _debian_version("2.0.0.dev0"), "lt", "2.0.0"], check=False)
    assert newer.returncode == 0
