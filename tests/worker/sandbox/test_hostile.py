"""Hostile functions under each sandbox, as whoever a worker may be: what they get at, seen from outside.

Rows 34, 46 and 47 of what may happen. The unprivileged user's runs are processes of their own, on a copy of the code
that this user can read.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moregpu.worker.sandbox import landlock
from moregpu.worker.sandbox.box import code_folder
from moregpu.worker.sandbox.usage import family as tree

USER = 65_401
PACKAGES = ("msgspec", "cloudpickle", "psutil", "blake3", "uvloop")


def python_for_everybody() -> str:
    """An interpreter of this version that any user may run."""
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for path in (own, Path(f"/usr/bin/python3.{sys.version_info.minor}")):
        as_other = subprocess.run(
            ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", str(path), "-c",
             "import os, sys; os.stat(sys.executable)"],
            capture_output=True, check=False, cwd="/",
        )  # fmt: skip
        if as_other.returncode == 0:
            return str(path)
    pytest.skip(f"missing: python3.{sys.version_info.minor} for all users; mend: apt-get install python3")


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """The code and what it needs, where every user can read it."""
    folder = Path(tempfile.mkdtemp(prefix="moregpu-hostile-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        shutil.copytree(code_folder() / "moregpu", folder / "moregpu", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("functions", "sandbox"):
            shutil.copytree(Path(__file__).parents[1] / name, folder / "tests" / "worker" / name)
        for name in PACKAGES:
            found = importlib.util.find_spec(name)
            assert found is not None
            assert found.origin is not None
            shutil.copytree(Path(found.origin).parent, folder / "site-packages" / name)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def command(copy: Path, program: str, level: str, *, as_root: bool) -> Iterator[tuple[list[str], dict[str, str]]]:
    """How to start a program of this folder as that user, with a folder of its own."""
    work = Path(tempfile.mkdtemp(prefix="moregpu-hostile-", dir="/tmp"))
    work.chmod(0o755)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{copy}:{copy}/site-packages",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment |= {"OWNERS_TOKEN": "the owner's secret", "HOME": str(work), "MOREGPU_FUNCTIONS_USER": str(USER)}
    words = [python_for_everybody(), "-m", f"tests.worker.sandbox.{program}", level, str(work)]
    if not as_root:
        os.chown(work, USER, USER)
        words = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", *words]
    try:
        yield words, environment
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run(copy: Path, level: str, *, as_root: bool) -> dict[str, Any]:
    with command(copy, "hostile", level, as_root=as_root) as (words, environment):
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd="/", timeout=110)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)


PARAMETERS = ["bubblewrap, worker of a user", "bubblewrap, worker of root", "landlock, worker of a user"]


def chosen(parameter: str) -> tuple[str, bool]:
    """Level, and whether the worker is root's; skips what cannot be tried here."""
    if os.geteuid() != 0:
        pytest.skip("this test becomes other users, as only root can")
    level, _, whose = parameter.partition(", worker of ")
    if level == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("missing: bubblewrap; mend: apt-get install bubblewrap")
    if level == "landlock" and landlock.version() < landlock.NEEDED:
        pytest.skip(f"this kernel's Landlock is too old: {landlock.version()}")
    return level, whose == "root"


@pytest.fixture(scope="module", params=PARAMETERS)
def found(request: pytest.FixtureRequest, copy: Path) -> dict[str, Any]:
    level, as_root = chosen(str(request.param))
    return run(copy, level, as_root=as_root) | {"level": level}


def test_nothing_of_the_machine_is_reached(found: dict[str, Any]) -> None:
    assert found["reach"] == []


def test_it_is_nobody_of_importance(found: dict[str, Any]) -> None:
    assert 0 not in found["who_am_i"]


def test_the_environment_is_clean(found: dict[str, Any]) -> None:
    assert "the owner's secret" not in json.dumps(found["environment"])
    assert not [name for name in found["environment"] if name.startswith(("MOREGPU", "PYTHONPATH", "DBUS", "XDG"))]


def test_no_descriptor_is_inherited_but_its_own(found: dict[str, Any]) -> None:
    assert len(found["open_descriptors"]) <= 7  # three standard ones, stream, regions, journal, and the look itself


def test_the_zygote_cannot_be_harmed(found: dict[str, Any]) -> None:
    assert [what for what in found["harm_the_parent"] if what in ("read", "listed")] == []
    assert found["level"] == "bubblewrap" or found["harm_the_parent"] == []  # signals to process 1 go nowhere


def test_no_namespace_can_be_made(found: dict[str, Any]) -> None:
    assert found["new_namespaces"] == []


def test_the_code_and_the_system_are_read_only(found: dict[str, Any]) -> None:
    assert found["write_the_code"] == []


def test_a_fork_bomb_meets_its_limit(found: dict[str, Any]) -> None:
    if isinstance(found["fork_bomb"], int):
        assert found["fork_bomb"] <= 256 + found["beside"]
    else:  # all that it made together took too much first
        assert "memory" in found["fork_bomb"]


def test_the_disk_cannot_be_filled(found: dict[str, Any]) -> None:
    if found["level"] == "bubblewrap":
        assert int(found["fill_the_disk"]) <= 256
    else:
        assert "memory" in found["fill_the_disk"] or int(found["fill_the_disk"]) <= 512


def test_what_one_session_leaves_behind_is_dead_before_the_next_begins(found: dict[str, Any]) -> None:
    assert found["left"] == 1
    assert "left" in found["left_seen_by_a"]
    assert found["left_alive_before"] == 1
    assert found["left_alive"] == 0
    assert "left" not in found["seen_by_b"]
    assert "left" not in found["seen_by_a_again"]


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_all_processes_die_with_a_worker_that_is_killed(copy: Path, parameter: str) -> None:
    level, as_root = chosen(parameter)
    with command(copy, "lonely", level, as_root=as_root) as (words, environment):
        worker = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, cwd="/")
        with worker:
            assert worker.stdout is not None
            name = worker.stdout.readline().strip()
            family = set(tree(worker.pid))
            assert name in {comm(pid) for pid in family}
            worker.kill()
        deadline = time.monotonic() + 20
        while alive := [pid for pid in family if comm(pid)]:
            assert time.monotonic() < deadline, {pid: comm(pid) for pid in alive}
            time.sleep(0.02)


def comm(pid: int) -> str:
    """The name of a process that lives."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return "" if state in "ZX" else Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
