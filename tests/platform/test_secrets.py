"""The token store's three outcomes, against a real, a locked and an absent keyring."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.errors import InvalidRequest, StateRefused
from moregpu.platform.secrets import MAX_CHARACTERS, Kept, TokenStore

TRY = """
import sys
from pathlib import Path
from moregpu.errors import KeyringLocked
from moregpu.platform.secrets import TokenStore

store = TokenStore(Path(sys.argv[1]), timeout_s=10)
print("where", store.where().value)
try:
    print("kept", store.put("pool/1/wrap", "s" * 1200).value)
    print("got", store.get("pool/1/wrap") == "s" * 1200, store.get("other"))
    store.delete("pool/1/wrap")
    print("gone", store.get("pool/1/wrap"))
    store.delete("pool/1/wrap")
except KeyringLocked as error:
    print("locked", error.hint)
print("told", store.told())
"""
UNLOCKED = "printf 'a password' | gnome-keyring-daemon --unlock --components=secrets >&2; exec \"$@\""
LOCKED = 'gnome-keyring-daemon --start --components=secrets >&2; exec "$@"'


def run_in_session(prepare: str, home: Path, secrets: Path) -> list[str]:
    """Run `TRY` in a D-Bus session of its own, with a keyring in `home`."""
    for program in ("dbus-run-session", "gnome-keyring-daemon"):
        if shutil.which(program) is None:
            pytest.skip(f"missing: {program}; mend: apt-get install gnome-keyring dbus")
    (home / ".cache").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", TRY, str(secrets)]
    return _printed(["dbus-run-session", "--", "sh", "-c", prepare, "sh", *command], home)


def _printed(command: list[str], home: Path) -> list[str]:
    hidden = ("MOREGPU_SECRETS", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden and name[:4] != "XDG_"}
    done = subprocess.run(
        command, env=environment | {"HOME": str(home)}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_real_keyring_keeps_a_secret_and_no_file_is_written(tmp_path: Path) -> None:
    lines = run_in_session(UNLOCKED, tmp_path / "home", tmp_path / "secrets")
    assert lines == [
        "where keyring", "kept keyring", "got True None", "gone None", "told secrets are in this system's keyring",
    ]  # fmt: skip
    assert not (tmp_path / "secrets").exists()


def test_a_locked_keyring_is_waited_for_and_nothing_is_written(tmp_path: Path) -> None:
    run_in_session(UNLOCKED, tmp_path / "home", tmp_path / "secrets")  # so that there is one to lock
    lines = run_in_session(LOCKED, tmp_path / "home", tmp_path / "secrets")
    assert lines[0] == "where locked"
    assert lines[1].startswith("locked unlock it")
    assert lines[2].startswith("told the keyring is locked")
    assert not (tmp_path / "secrets").exists()


def test_without_a_keyring_secrets_go_to_a_file_and_the_user_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    lines = _printed([sys.executable, "-c", TRY, str(tmp_path / "secrets")], tmp_path / "home")
    assert lines[:4] == ["where file", "kept file", "got True None", "gone None"]
    assert "only you can read" in lines[4]


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    """One that keeps secrets in files: the tests' environment says so."""
    return TokenStore(tmp_path / "secrets")


def test_files_are_for_their_owner_alone_and_do_not_show_names(store: TokenStore) -> None:
    assert store.put("profile/local", "secret") is Kept.FILE
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    (file,) = store.folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "local" not in file.name


def test_names_do_not_leak_into_each_other(store: TokenStore) -> None:
    store.put("profile/a", "one")
    store.put("profile/b", "two")
    store.delete("profile/a")
    assert (store.get("profile/a"), store.get("profile/b")) == (None, "two")


def test_a_file_that_others_can_read_is_refused(store: TokenStore) -> None:
    store.put("profile/local", "secret")
    (file,) = store.folder.iterdir()
    file.chmod(0o640)
    with pytest.raises(StateRefused, match="chmod 600"):
        store.get("profile/local")


def test_what_does_not_fit_every_keyring_is_refused(store: TokenStore) -> None:
    store.put("just", "s" * MAX_CHARACTERS)
    with pytest.raises(InvalidRequest):
        store.put("over", "s" * (MAX_CHARACTERS + 1))
