"""What keeps functions from running though nothing has to confine them: folders that their user may not enter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.worker.sandbox import level
from moregpu.worker.sandbox.box import Runtime
from moregpu.worker.sandbox.level import Who, out_of_reach

STRANGER = Who(user=65_400, group=65_401)


@pytest.fixture
def top(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody may enter, as pytest's own are not; the pool's code lies in one, too."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        monkeypatch.setattr(level, "code_folder", lambda: folder)
        (folder / "moregpu").mkdir()
        for each in (folder, folder / "moregpu"):
            each.chmod(0o755)
        yield folder


@pytest.fixture
def python(top: Path) -> Path:
    """A Python in folders of our own."""
    path = top / "versions" / "bin" / "python"
    for folder in (path.parents[1], path.parents[0]):
        folder.mkdir()
        folder.chmod(0o755)
    path.write_bytes(b"")
    return path


def runtime(python: Path, *folders: Path) -> Runtime:
    return Runtime(python=str(python), version="3.11", folders=tuple(map(str, folders)))


def test_a_python_that_everybody_may_read_is_within_reach(python: Path) -> None:
    assert out_of_reach(runtime(python, python.parent), STRANGER) == ""


@pytest.mark.parametrize("mode", [0o700, 0o770, 0o766])
def test_a_folder_above_it_that_is_private_is_named(python: Path, mode: int) -> None:
    private = python.parents[1]
    private.chmod(mode)
    assert out_of_reach(runtime(python), STRANGER) == str(private)
    assert out_of_reach(runtime(Path("/usr/bin/python3"), python.parent), STRANGER) == str(private)  # its packages
    assert out_of_reach(runtime(python), Who()) == ""  # our own user's


def test_the_pools_own_code_has_to_be_within_reach_too(python: Path, top: Path) -> None:
    (top / "moregpu").chmod(0o700)
    assert out_of_reach(runtime(python), STRANGER) == str(top / "moregpu")


def test_a_link_is_followed_to_where_its_python_lies(python: Path, top: Path) -> None:
    link = top / "python3"
    link.symlink_to(python)
    assert out_of_reach(runtime(link), STRANGER) == ""
    python.parent.chmod(0o700)
    assert out_of_reach(runtime(link), STRANGER) == str(python.parent)


def test_the_group_of_a_folder_may_enter_it_where_others_may_not(python: Path) -> None:
    python.parent.chmod(0o750)
    its_group = Who(user=STRANGER.user, group=python.parent.stat().st_gid)
    assert out_of_reach(runtime(python), its_group) == ""
    assert out_of_reach(runtime(python), STRANGER) == str(python.parent)
