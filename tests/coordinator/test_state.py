"""The state folder: private, one coordinator at a time, sealed, never changed when refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.coordinator.state import STATE_VERSION, open_state
from moregpu.errors import StateRefused, VersionMismatch


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A state folder of a coordinator that ran and stopped."""
    path = tmp_path / "pool"
    open_state(path).close()
    return path


def everything(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_first_run_makes_a_pool_and_later_runs_find_it(tmp_path: Path) -> None:
    first = open_state(tmp_path / "pool")
    first.close()
    again = open_state(tmp_path / "pool")
    again.close()
    assert (first.fresh, again.fresh) == (True, False)
    assert again.keys.pool_id == first.keys.pool_id
    assert again.keys.cs_pub == first.keys.cs_pub
    assert (again.row_key, again.tls_password) == (first.row_key, first.tls_password)
    assert again.row_key != again.tls_password[:32]


def test_all_of_it_is_for_its_owner_alone(pool: Path) -> None:
    for path in [pool, *pool.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_no_private_key_lies_open_in_the_folder(tmp_path: Path) -> None:
    state = open_state(tmp_path / "pool")
    state.close()
    secret = state.keys.cs.private_bytes_raw()
    files = {name: data for name, data in everything(tmp_path / "pool").items() if not name.startswith("secrets")}
    assert not any(secret in data or secret.hex().encode() in data for data in files.values())


def test_a_second_coordinator_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    state = open_state(tmp_path / "pool")
    with pytest.raises(StateRefused, match="another coordinator uses"):
        open_state(tmp_path / "pool")
    state.close()
    open_state(tmp_path / "pool").close()


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom moregpu.coordinator.state import open_state\n"
        "open_state(Path(sys.argv[1]))\nprint('open', flush=True)\nsys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "pool")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(StateRefused):
            open_state(tmp_path / "pool")
        process.kill()
    open_state(tmp_path / "pool").close()


@pytest.mark.parametrize("name", ["", "keys", "pool.json", "lock", "secrets"])
def test_loosened_permissions_are_refused_with_the_mend(pool: Path, name: str) -> None:
    path = pool / name
    path.chmod(path.stat().st_mode | 0o040)
    before = everything(pool)
    with pytest.raises(StateRefused, match=r"chmod [67]00"):
        open_state(pool)
    assert everything(pool) == before


def test_a_symbolic_link_in_it_is_refused(pool: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_bytes((pool / "keys").read_bytes())
    (pool / "keys").unlink()
    (pool / "keys").symlink_to(target)
    with pytest.raises(StateRefused, match="symbolic link"):
        open_state(pool)


def test_a_folder_of_a_newer_version_is_refused_and_left_alone(pool: Path) -> None:
    newer = {"version": STATE_VERSION + 1, "something": "else"}
    (pool / "pool.json").write_text(json.dumps(newer))
    before = everything(pool)
    with pytest.raises(VersionMismatch, match="update MoreGPU"):
        open_state(pool)
    assert everything(pool) == before


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"version": "x"}', b'{"version": 1}', b"\xff"])
def test_a_damaged_description_is_said(pool: Path, content: bytes) -> None:
    (pool / "pool.json").write_bytes(content)
    with pytest.raises(StateRefused, match="damaged"):
        open_state(pool)


def test_a_copy_is_refused_and_the_mend_works(pool: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(pool, copy)
    with pytest.raises(StateRefused, match=r"is a copy of .*/pool.*\"path\"") as refused:
        open_state(copy)
    assert str(copy) in refused.value.hint
    description = json.loads((copy / "pool.json").read_text())
    (copy / "pool.json").write_text(json.dumps(description | {"path": str(copy)}))
    open_state(copy).close()


def test_a_renamed_folder_and_a_restored_backup_go_on(pool: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    pool.rename(moved)
    state = open_state(moved)
    state.close()
    shutil.copytree(moved, tmp_path / "backup")
    shutil.rmtree(moved)
    shutil.copytree(tmp_path / "backup", moved)
    restored = open_state(moved)
    restored.close()
    assert restored.keys.pool_id == state.keys.pool_id


def test_without_its_wrapping_key_it_is_refused_not_made_anew(pool: Path) -> None:
    shutil.rmtree(pool / "secrets")
    before = everything(pool)
    with pytest.raises(StateRefused, match="sealed under"):
        open_state(pool)
    assert everything(pool) == before


def test_keys_of_another_folder_do_not_open(pool: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    open_state(other).close()
    shutil.copy(other / "keys", pool / "keys")
    with pytest.raises(StateRefused, match="does not open"):
        open_state(pool)


def test_a_first_run_that_was_cut_short_is_made_again(pool: Path) -> None:
    (pool / "pool.json").unlink()  # it is written last
    state = open_state(pool)
    state.close()
    assert state.fresh


def test_a_pool_whose_description_is_gone_is_not_overwritten(pool: Path) -> None:
    (pool / "pool.json").unlink()
    (pool / "pool.sqlite").touch(mode=0o600)
    with pytest.raises(StateRefused, match="restore"):
        open_state(pool)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_refused(pool: Path) -> None:
    os.chown(pool, 65534, 65534)
    with pytest.raises(StateRefused, match="another user"):
        open_state(pool)
