"""The packages for Linux, really built, installed where nothing else is, run, upgraded and removed.

`DIST_UNDER_TEST=FOLDER` tests packages that `make installers` built before; else they are built here (some minutes).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.wire.api import InviteRequest
from moregpu.workloads import KernelSpec
from tests.displays import need
from tests.tray.desktop import DEADLINE_S, Tray, desktop, plain_environment, until

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(sys.platform != "linux", reason="packages for Linux"),
]

ROOT = Path(__file__).parents[2]
PROGRAMS = ("moregpu", "moregpu-tray", "moregpu-tui")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("DIST_UNDER_TEST")
    if given:
        return Path(given).absolute()
    need("dpkg-deb", "dpkg")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "installers.build", "--out", folder, "--work", folder / "work"], cwd=ROOT, check=True
    )
    return folder


@pytest.fixture(scope="module")
def package(dist: Path) -> Path:
    (found,) = dist.glob("*.deb")
    return found


@pytest.fixture
def clean_root(package: Path, tmp_path: Path) -> Path:
    """A root with the libraries that the package says it needs, and nothing else: no Python, no shell, no desktop."""
    need("dpkg", "dpkg")
    root = tmp_path / "root"
    for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "root", "tmp", "etc", "proc", "dev"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    for link in ("lib", "lib64", "bin", "sbin"):
        (root / "usr" / link).mkdir(parents=True)
        (root / link).symlink_to(f"usr/{link}")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True, check=True).stdout
    for name in [one.split()[0] for one in depends.split(",")]:
        listed = subprocess.run(["dpkg", "-L", name], capture_output=True, text=True, check=True).stdout.splitlines()
        for line in listed:
            source = Path(line)
            if source.is_file() and ("/lib/" in line or "/lib64/" in line):
                place = root / str(source.resolve().parent / source.name).lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)
                place.chmod(0o755)
    loader = root / "usr/lib64"
    for file in root.glob("usr/lib/*/ld-linux-*.so.*"):
        shutil.copy(file, loader / file.name)
    return root


def dpkg(root: Path, *arguments: str | Path) -> None:
    command = ["dpkg", f"--root={root}", "--force-depends", "--force-not-root", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def inside(root: Path, program: str) -> list[str]:
    """A program of that root, with nothing of this machine but its kernel, /tmp and the network."""
    return [
        need("bwrap", "bubblewrap"), "--bind", str(root), "/", "--dev", "/dev", "--proc", "/proc",
        "--bind", "/tmp", "/tmp", "--die-with-parent", program,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def attic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackPool]:
    with LoopbackPool(tmp_path_factory.mktemp("attic") / "home") as local:
        local.start_coordinator()
        yield local


def invite(pool: Pool) -> str:
    return pool.invite(InviteRequest(owner="eva")).line


def test_from_the_package_to_its_removal(package: Path, clean_root: Path, attic: LoopbackPool, tmp_path: Path) -> None:
    dpkg(clean_root, "--install", package)
    command = inside(clean_root, "/usr/bin/moregpu-tray")
    with (
        attic.connect() as pool,
        desktop(tmp_path / "desk", command=command, MOREGPU_YIELD="off", HOME="/root") as place,
    ):
        process = place.tray.start("join", "--yes", given=invite(pool))
        assert place.panel.property("Id") == "moregpu"
        worker = place.tray.until(lambda report: report["view"]["status"]["worker"])["view"]["status"]["worker"]
        until(
            lambda: any(
                one.id == worker and one.reason != "being measured" and one.state == "online" for one in pool.workers()
            ),
            5 * DEADLINE_S,  # measuring is the least of a busy machine's worries
        )

        job = pool.submit_job(KernelSpec(operation="matmul", size=3000, seed=1, name="rays", check="none"))
        until(lambda: place.tray.status()["view"]["status"]["running"])
        place.panel.click("Pause")
        place.tray.until(lambda report: report["mood"] == "paused")
        assert job.status().state == "running"
        until(lambda: "Resume" in place.panel.menu())
        place.panel.click("Resume")
        job.result(timeout_s=2 * DEADLINE_S)
        place.tray.until(lambda report: any(one["name"] == "rays" for one in report["jobs"]))

        attic.kill_coordinator()
        place.tray.until(lambda report: report["mood"] == "offline")
        attic.start_coordinator()
        place.tray.until(lambda report: report["mood"] in ("idle", "working"))
        place.tray.say("quit")
        assert process.wait(30) == 0

        del place.tray.environment["MOREGPU_YIELD"]
        process = place.tray.start()
        place.tray.until(lambda report: report["view"]["status"]["worker"])

        def gives_way() -> bool:
            place.screen.move_mouse()
            return "you are using this machine" in place.tray.status()["line"]

        until(gives_way)
        assert place.tray.say("leave").returncode == 0
        place.tray.say("quit")
        assert process.wait(30) == 0
        assert "Traceback" not in place.tray.output() + place.tray.log()

    dpkg(clean_root, "--remove", "moregpu")
    left = [path for path in clean_root.rglob("*moregpu*") if "dpkg" not in path.parts]
    assert left == []


def test_the_other_programs_run_from_the_package_too(package: Path, clean_root: Path) -> None:
    dpkg(clean_root, "--install", package)
    for program, arguments in (("moregpu", ["version"]), ("moregpu-tui", ["--help"]), ("moregpu-tray", ["--version"])):
        done = subprocess.run(
            [*inside(clean_root, f"/usr/bin/{program}"), *arguments],
            env={"HOME": "/root", "PATH": "/usr/bin"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_a_newer_package_takes_the_place_of_an_older_one_and_leaves_nothing_of_either(
    package: Path, clean_root: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    subprocess.run(["dpkg-deb", "--raw-extract", package, old], check=True)
    control = old / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    control.write_text("\n".join("Version: 0.1" if line.startswith("Version:") else line for line in lines) + "\n")
    (old / "opt/moregpu/of-an-older-version").touch()
    (old / "DEBIAN" / "md5sums").unlink()
    made = tmp_path / "old.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", old, made], check=True)
    dpkg(clean_root, "--install", made)
    assert (clean_root / "opt/moregpu/of-an-older-version").exists()
    dpkg(clean_root, "--install", package)
    assert not (clean_root / "opt/moregpu/of-an-older-version").exists()
    done = subprocess.run(
        [*inside(clean_root, "/usr/bin/moregpu-tray"), "--version"],
        env={"HOME": "/root", "PATH": "/usr/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    dpkg(clean_root, "--purge", "moregpu")
    assert [path for path in clean_root.rglob("*moregpu*") if "dpkg" not in path.parts] == []


# ---- functions ----


def test_functions_run_on_a_python_of_the_machine_s(dist: Path, attic: LoopbackPool, tmp_path: Path) -> None:
    need("bwrap", "bubblewrap")
    (archive,) = dist.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    environment = {**plain_environment(), "MOREGPU_YIELD": "off", "MOREGPU_FUNCTIONS_USER": "65400"}
    tray = Tray(tmp_path / "tray", environment, [str(tmp_path / "moregpu" / "moregpu-tray")])
    with attic.connect() as pool:
        try:
            tray.start("--headless", "join", "--yes", given=invite(pool))
            tray.until(lambda report: report["view"]["status"]["worker"])
            assert tray.say("allow", "everybody").returncode == 0
            status = tray.until(
                lambda report: report["view"]["status"]["state"] == "online" and _offers_functions(pool, report)
            )["view"]["status"]
            if "could not be fetched" in status["functions_off"]:
                pytest.skip(f"missing: a package index ({status['functions_off']}); mend: connect this machine to one")
            assert status["functions_off"] == ""

            def where() -> tuple[str, bool]:
                return sys.executable, hasattr(sys, "frozen")

            python, frozen = pool.submit(where).result(timeout=2 * DEADLINE_S)
            assert not frozen
            assert python.startswith(str(tray.home)), "an environment of the worker's"
        finally:
            tray.say("quit")
            tray.end()
    assert "Traceback" not in tray.output() + tray.log()


def _offers_functions(pool: Pool, report: dict[str, Any]) -> bool:
    """Or says why it does not."""
    status = report["view"]["status"]
    known = [worker for worker in pool.workers() if worker.id == status["worker"]]
    return bool(status["functions_off"]) or any("function" in worker.consent for worker in known)


def test_without_a_python_the_package_says_what_functions_need(
    package: Path, clean_root: Path, attic: LoopbackPool, tmp_path: Path
) -> None:
    dpkg(clean_root, "--install", package)
    environment = {**plain_environment(), "MOREGPU_YIELD": "off", "MOREGPU_FUNCTIONS_USER": "65400", "HOME": "/root"}
    environment["PATH"] = "/usr/bin"
    tray = Tray(tmp_path / "tray", environment, inside(clean_root, "/usr/bin/moregpu-tray"))
    with attic.connect() as pool:
        try:
            tray.start("--headless", "join", "--yes", given=invite(pool))
            tray.until(lambda report: report["view"]["status"]["worker"])
            assert tray.say("allow", "everybody").returncode == 0
            report = tray.until(lambda report: report["view"]["status"]["functions_off"])
            assert "sudo apt install python3" in report["view"]["status"]["functions_off"]
        finally:
            tray.say("quit")
            tray.end()


# ---- the script ----


def script(
    dist: Path, home: Path, *arguments: str, given: str = "", source: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {
        "HOME": str(home), "PATH": os.environ["PATH"], "MOREGPU_FROM": str(source or dist), "MOREGPU_SECRETS": "file",
    }  # fmt: skip
    return subprocess.run(
        ["sh", dist / "install.sh", *arguments],
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_installs_joins_upgrades_and_takes_all_away(dist: Path, attic: LoopbackPool, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with attic.connect() as pool:
        line = invite(pool)
    done = script(dist, home, given=line)
    assert done.returncode == 0, done.stderr
    assert line not in done.stdout
    assert (home / ".local/state/moregpu/worker/enrolment.json").exists()
    place = home / ".local/share/moregpu"
    (place / "of-an-older-version").touch()
    assert script(dist, home).returncode == 0, "again, over what is there"
    assert not (place / "of-an-older-version").exists()
    assert (home / ".local/state/moregpu/worker/enrolment.json").exists()
    for program in PROGRAMS:
        assert (home / ".local/bin" / program).resolve() == place / program
    assert script(dist, home, "--uninstall").returncode == 0
    assert [path for path in home.rglob("*moregpu*") if path.parts[-2:] != (".config", "moregpu")] == []


def test_the_script_refuses_what_was_changed_on_the_way(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    source = tmp_path / "source"
    source.mkdir()
    changed = bytearray(archive.read_bytes())
    changed[len(changed) // 2] ^= 1
    (source / archive.name).write_bytes(changed)
    home = tmp_path / "home"
    home.mkdir()
    done = script(dist, home, source=source)
    assert done.returncode == 1
    assert "not what this script was made for" in done.stderr
    assert list(home.iterdir()) == []


def test_the_script_takes_no_invite_as_an_argument(dist: Path, tmp_path: Path) -> None:
    done = script(dist, tmp_path, "MGPU1-AAAA")
    assert done.returncode == 1
    assert "pipe it in" in done.stderr
