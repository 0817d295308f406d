"""Files and folders that only their owner may read."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from moregpu.errors import StateRefused
from moregpu.platform.private import check_private, private_folder, read_private, write_private

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    assert mode(private_folder(tmp_path / "state")) == 0o700


def test_a_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "state" / "key", b"secret")
    finally:
        os.umask(before)
    assert mode(tmp_path / "state" / "key") == 0o600
    assert read_private(tmp_path / "state" / "key") == b"secret"


def test_replacing_a_file_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "state")
    write_private(folder / "key", b"one")
    write_private(folder / "key", b"two")
    assert [path.name for path in folder.iterdir()] == ["key"]
    assert read_private(folder / "key") == b"two"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "state")
    (folder / "key").mkdir()  # a rename onto a folder fails
    with pytest.raises(OSError):
        write_private(folder / "key", b"two")
    assert [path.name for path in folder.iterdir()] == ["key"]


@pytest.mark.parametrize("loose", [0o644, 0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_touch_is_refused_and_the_mend_is_said(tmp_path: Path, loose: int) -> None:
    write_private(tmp_path / "state" / "key", b"secret")
    (tmp_path / "state" / "key").chmod(loose)
    with pytest.raises(StateRefused, match="chmod 600"):
        read_private(tmp_path / "state" / "key")


def test_a_folder_that_others_can_enter_is_refused_and_the_mend_is_said(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "state")
    folder.chmod(0o750)
    with pytest.raises(StateRefused, match="chmod 700"):
        private_folder(folder)
    with pytest.raises(StateRefused):
        write_private(folder / "key", b"secret")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_refused(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "state")
    os.chown(folder, 65534, 65534)
    with pytest.raises(StateRefused, match="belongs to another user"):
        check_private(folder)


def test_what_is_not_there_reads_as_nothing(tmp_path: Path) -> None:
    assert read_private(tmp_path / "none") is None


@pytest.mark.parametrize("name", ["shared", "full"])
def test_no_hint_takes_a_place_from_those_who_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`serve --state /tmp` said: chmod 700 '/tmp', and to other users: chown -R 1000 '/tmp'."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MOREGPU_HOME", raising=False)
    place = tmp_path / name
    place.mkdir()
    if name == "full":
        (place / "somebody's").touch()
    place.chmod(0o1777 if name == "shared" else 0o755)
    for user in (os.getuid(), os.getuid() + 1):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        with pytest.raises(StateRefused) as refused:
            check_private(place)
        assert "chmod" not in refused.value.hint and "chown" not in refused.value.hint
        assert f"'{place}/moregpu'" in refused.value.hint


def test_another_user_is_told_whom_to_run_as_and_root_never_to_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_private(tmp_path / "state" / "pool.json", b"{}")
    found = os.stat_result((0o40700, 0, 0, 1, 998, 998, 0, 0, 0, 0))  # a service's
    monkeypatch.setattr(Path, "stat", lambda *_, **__: found)
    for user, takes in ((0, False), (1000, True)):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        with pytest.raises(StateRefused) as refused:
            check_private(tmp_path / "state")
        assert "sudo -u '#998'" in refused.value.hint
        assert ("chown" in refused.value.hint) is takes
