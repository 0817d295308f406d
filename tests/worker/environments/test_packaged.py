"""A packaged program carries a Python that runs nothing else: functions run on one of the machine's."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import moregpu.worker.environments.build
from moregpu.errors import EnvironmentUnavailable
from moregpu.worker.config import WorkerConfig
from moregpu.worker.environments.cache import Environments
from moregpu.worker.environments.interpreters import best_of
from moregpu.worker.functions.offer import offer_functions
from moregpu.worker.functions.probe import find_level
from moregpu.worker.sandbox.box import SOURCE, code_folder, own_runtime

OWN = own_runtime().version


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setenv("MOREGPU_FUNCTIONS_USER", "65400")


def listed(*versions: str) -> bytes:
    """What `uv python list --output-format json` says."""
    return json.dumps(
        [{"version": each.partition(" ")[0], "implementation": each.partition(" ")[2] or "cpython", "path": "/x"}
         for each in versions]
    ).encode()  # fmt: skip


def test_the_program_s_own_version_is_taken_where_the_machine_has_it_else_the_newest() -> None:
    assert best_of(listed("3.14.1", f"{OWN}.4", "3.9.2")) == OWN
    assert best_of(listed("3.12.4", "3.99.0", "3.13.1")) == "3.99"


def test_old_versions_pre_releases_and_other_pythons_do_not_do() -> None:
    assert best_of(listed("3.10.4", "3.99.0a3", "3.12.1 pypy")) is None


@pytest.mark.usefixtures("packaged")
def test_without_a_python_functions_stay_off_and_the_owner_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho '[]'\n")
    uv.chmod(0o755)
    monkeypatch.setattr(moregpu.worker.environments.build, "uv", lambda: str(uv))
    for unconfined in (False, True):
        config = WorkerConfig(functions=("*",), functions_unconfined=unconfined)
        offer = asyncio.run(offer_functions(config, tmp_path / "worker"))
        assert not offer.is_open
        assert "function" not in offer.kinds
        assert "sudo apt install python3" in offer.trouble
        assert "python_downloads" in offer.trouble


@pytest.mark.usefixtures("packaged")
def test_without_uv_the_owner_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    level = asyncio.run(find_level(tmp_path / "functions"))
    assert level.isolation == "none"
    assert not level.has_python
    assert "install it" in level.why[0]


@pytest.mark.slow
@pytest.mark.usefixtures("packaged")
@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="missing: root, to become somebody else")
def test_the_sandbox_is_tried_with_an_environment_of_the_machine_s_and_the_source_that_the_program_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of this program's own packages is in there: its code is a copy, its Python one that uv made."""
    if shutil.which("bwrap") is None:
        pytest.skip("missing: bwrap; mend: apt-get install bubblewrap")
    program = code_folder().parent
    assert code_folder() == program / SOURCE
    source = tmp_path / SOURCE
    done = subprocess.run(["git", "ls-files", "-z", "moregpu/**.py"], cwd=program, capture_output=True, check=True)
    for name in done.stdout.decode().split("\0")[:-1]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(program / name, source / name)
    monkeypatch.setattr("moregpu.worker.sandbox.bubblewrap.code_folder", lambda: source)
    environments = Environments(tmp_path / "environments")
    try:
        runtime = asyncio.run(environments.base())
    except EnvironmentUnavailable as error:
        pytest.skip(f"missing: a package index ({error}); mend: connect this machine to one")
    assert Path(runtime.python).is_relative_to(tmp_path)
    level = asyncio.run(find_level(tmp_path / "functions", environments))
    assert level.isolation == "bubblewrap", level.why
