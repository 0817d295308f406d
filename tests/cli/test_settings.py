"""Commands that need no pool: config, login, leave, doctor."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest
from moregpu_kernels.device import probe

from moregpu.cli.doctor import without_secrets

from .test_command_line import moregpu

TOKEN = "mgt_abcdefgh_" + "x" * 43


def test_a_setting_is_set_read_and_forgotten(home: Path) -> None:
    assert moregpu("config", "set", "worker.ceiling", "0.5", home=home).returncode == 0
    assert moregpu("config", "get", "worker.ceiling", home=home).stdout == "0.5\n"
    assert json.loads(moregpu("config", "show", "--json", home=home).stdout)["settings"]["worker"] == {"ceiling": 0.5}
    assert moregpu("config", "unset", "worker.ceiling", home=home).returncode == 0
    assert moregpu("config", "get", "worker.ceiling", home=home).stdout == ""


def test_settings_that_windows_wrote_are_read_and_changed(home: Path) -> None:
    file = home / "config" / "config.toml"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_bytes(codecs.BOM_UTF8 + b"[worker]\r\nceiling = 0.25\r\n")
    file.chmod(0o600)
    assert moregpu("config", "get", "worker.ceiling", home=home).stdout == "0.25\n"
    assert moregpu("config", "set", "worker.ceiling", "0.5", home=home).returncode == 0
    assert json.loads(moregpu("config", "show", "--json", home=home).stdout)["settings"]["worker"] == {"ceiling": 0.5}


@pytest.mark.parametrize(
    "arguments",
    [
        ("worker.ceiling", "7"),
        ("worker.ceiling", "\udcff"),
        ("console.theme", "\udcff"),
        ("worker.nonsense", "1"),
        ("worker", "1"),
        ("elsewhere.name", "1"),
    ],
)
def test_a_setting_that_a_worker_would_refuse_is_refused_at_once(home: Path, arguments: tuple[str, str]) -> None:
    shown = moregpu("config", "set", *arguments, home=home)
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr
    assert not (home / "config" / "config.toml").exists()


def test_login_saves_nothing_that_does_not_work(home: Path) -> None:
    for given in ("", "MGPUC1-nonsense", TOKEN):
        shown = moregpu("login", "other", home=home, given=given)
        assert shown.returncode in (2, 8), shown.stderr
        assert "Traceback" not in shown.stderr
    shown = moregpu("login", "other", "--url", "https://127.0.0.1:9", home=home, given=TOKEN)
    assert shown.returncode == 7
    assert TOKEN not in shown.stderr + shown.stdout
    assert not (home / "config" / "profiles").exists()


def test_a_machine_that_has_not_joined_cannot_leave(home: Path) -> None:
    shown = moregpu("leave", "--yes", home=home)
    assert shown.returncode == 2
    assert "moregpu join" in shown.stderr


def test_doctor_looks_without_a_pool_and_changes_nothing(home: Path, tmp_path: Path) -> None:
    logs = home / "logs"
    logs.mkdir()
    (logs / "coordinator.log").write_text(f"somebody showed {TOKEN}\n")
    before = sorted(home.rglob("*"))
    bundle = tmp_path / "bundle.json"
    shown = moregpu("doctor", "--json", "--bundle", str(bundle), home=home)
    found = {one["what"]: one["ok"] for one in json.loads(shown.stdout)}
    assert (found["version"], found["pool"], shown.returncode) == (True, False, 1)
    assert sorted(home.rglob("*")) == before
    assert TOKEN not in bundle.read_text()
    assert "(secret removed)" in bundle.read_text()


def test_doctor_names_what_would_compute_here_and_with_which_driver(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters = probe()
    if not adapters:
        pytest.skip("missing: a graphics adapter")
    monkeypatch.setenv("MOREGPU_SOFTWARE_GPU", "1")
    found = {one["what"]: one for one in json.loads(moregpu("doctor", "--json", home=home).stdout)}
    assert found["devices here"]["ok"]
    assert found["devices here"]["found"].startswith(f"gpu0 {adapters[0].label}, {adapters[0].backend}")
    monkeypatch.delenv("MOREGPU_SOFTWARE_GPU")
    if all(adapter.is_software for adapter in adapters):
        found = {one["what"]: one for one in json.loads(moregpu("doctor", "--json", home=home).stdout)}
        assert found["devices here"]["ok"] and found["devices here"]["found"].startswith("the CPU (")
        assert "docs/gpu.md" in found["devices here"]["hint"]


@pytest.mark.parametrize(
    "secret", [TOKEN, "MGPU1-" + "A" * 40, "MGPUC1-" + "B" * 90, "Authorization: Bearer abcdef.ghi"]
)
def test_what_opens_something_is_taken_out(secret: str) -> None:
    assert secret.split()[-1] not in without_secrets(f"before {secret} after")


def test_a_mistyped_command_of_a_group_suggests_the_right_one(home: Path) -> None:
    shown = moregpu("worker", "puase", "anna", home=home)
    assert shown.returncode == 2
    assert "pause" in shown.stderr
