"""Commands that need no pool: config, login, leave, doctor."""

from __future__ import annotations

import codecs
import io
import json
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import typer
from moregpu_kernels.device import probe

from moregpu.cli.doctor import without_secrets
from moregpu.cli.main import build
from moregpu.coordinator.state import open_state
from moregpu.platform.private import write_private
from moregpu.platform.secrets import TokenStore
from moregpu.platform.settings import write_section
from moregpu.worker.config import WorkerConfig
from moregpu.worker.home import Enrolment

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
        ("pool.port", "99999"),
        ("pool.nonsense", "1"),
        ("pool.keep_bytes", "much"),
    ],
)
def test_a_setting_that_a_program_would_refuse_is_refused_at_once(home: Path, arguments: tuple[str, str]) -> None:
    shown = moregpu("config", "set", *arguments, home=home)
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr
    assert not (home / "config" / "config.toml").exists()


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerConfig]:
    """How `moregpu join` and these options would set a worker up, in a home of its own."""
    monkeypatch.setenv("MOREGPU_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MOREGPU_YIELD", raising=False)
    started: list[WorkerConfig] = []

    def start(config: WorkerConfig, _invite: object) -> int:
        started.append(config)
        return 0

    monkeypatch.setattr("moregpu.cli.join.run_worker", start)

    def join(*options: str) -> WorkerConfig:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        command = typer.main.get_command(build(["join"]))
        command.main(["join", *options], standalone_mode=False)
        return started.pop()

    return join


def test_a_worker_takes_what_its_owner_set_before_and_first_what_is_typed(
    joined: Callable[..., WorkerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"ceiling": 0.4, "schedule": "22:00-07:00", "functions": ["alice"], "yields": False, "cache_bytes": 7}
    write_section("worker", {**kept, "paused": True, "name": "ada"})
    plain = joined()
    assert {name: getattr(plain, name) for name in kept} == {**kept, "functions": ("alice",)}
    assert not plain.paused, "nobody could tell it to go on"
    typed = joined("--ceiling", "0.85", "--allow", "functions=bob", "--allow", "network", "--yield", "--cores", "3")
    assert (typed.ceiling, typed.functions, typed.functions_network, typed.yields) == (0.85, ("bob",), True, True)
    assert (typed.cores, typed.name, typed.schedule) == (3, "ada", "22:00-07:00")
    assert joined("--allow", "network").functions == ("alice",)
    monkeypatch.setenv("MOREGPU_YIELD", "on")
    assert joined().yields, "the environment goes before the file"


def test_a_worker_without_settings_is_as_it_was(joined: Callable[..., WorkerConfig]) -> None:
    assert joined() == WorkerConfig(yields=True)


def test_what_was_set_wrongly_by_hand_is_named_with_its_place(home: Path) -> None:
    for part, command in (("worker", "join"), ("pool", "serve")):
        write_private(home / "config" / "config.toml", f"[{part}]\nnonsense = 1\n".encode())
        shown = moregpu(command, home=home)
        assert shown.returncode == 2
        assert str(home / "config" / "config.toml") in shown.stderr
        assert f"config unset {part}.KEY" in shown.stderr
        assert moregpu("config", "unset", f"{part}.nonsense", home=home).returncode == 0


def test_a_coordinator_takes_what_was_set_before_and_first_what_is_typed(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        kept, typed = (str(taken.getsockname()[1]) for taken in (first, second))
        assert moregpu("config", "set", "pool.port", kept, home=home).returncode == 0
        assert moregpu("config", "set", "pool.keep_bytes", "5GB", home=home).returncode == 0
        assert f"port {kept} " in moregpu("serve", home=home).stderr
        assert f"port {typed} " in moregpu("serve", "--port", typed, home=home).stderr


def test_commands_look_for_a_part_where_its_state_was_set_to_be(home: Path, tmp_path: Path) -> None:
    assert moregpu("config", "set", "pool.state", str(tmp_path / "there"), home=home).returncode == 0
    assert moregpu("config", "set", "worker.state", str(tmp_path / "here"), home=home).returncode == 0
    assert str(tmp_path / "there") in moregpu("token", "create", "--local", home=home).stderr
    assert str(tmp_path / "there") in moregpu("pool", "backup", "b", home=home, given="x" * 12).stderr
    assert str(tmp_path / "here") in moregpu("leave", "--yes", home=home).stderr
    places = json.loads(moregpu("config", "show", "--json", home=home).stdout)["places"]
    assert (places["coordinator"], places["worker"]) == (str(tmp_path / "there"), str(tmp_path / "here"))


@pytest.mark.parametrize("name", ["\udcff", "x" * 101])
def test_a_pool_is_not_named_what_is_no_name(home: Path, name: str) -> None:
    shown = moregpu("serve", "--port", "0", "--name", name, home=home)
    assert shown.returncode == 2
    assert "name" in shown.stderr
    assert not (home / "state" / "pool").exists()


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


def findings(home: Path) -> dict[str, dict[str, object]]:
    return {one["what"]: one for one in json.loads(moregpu("doctor", "--json", home=home).stdout)}


def test_doctor_names_a_pool_that_would_not_open_and_settings_that_would_not_hold(home: Path) -> None:
    state = home / "state" / "pool"
    open_state(state, TokenStore(state / "secrets")).close()
    write_private(home / "config" / "config.toml", b"[worker]\nceiling = 0.5\n")
    well = findings(home)
    assert well["state"]["ok"] and str(state) in str(well["state"]["found"])
    assert well["settings"]["ok"]
    (state / "keys").chmod(0o644)
    write_private(home / "config" / "config.toml", b"[worker]\nceiling = 7\n")
    ill = findings(home)
    assert not ill["state"]["ok"] and "chmod 600" in str(ill["state"]["hint"])
    assert not ill["settings"]["ok"] and "ceiling" in str(ill["settings"]["found"])


def test_doctor_says_that_nothing_can_be_kept_here(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "state").write_text("no folder")
    found = findings(tmp_path / "home")["state"]
    assert not found["ok"]
    assert str(tmp_path / "home" / "state") in str(found["found"])


def test_doctor_does_not_call_a_profile_well_that_was_asked_for_and_is_not_there(home: Path) -> None:
    write_private(  # as of a machine that works for a pool, and needs no profile of its own
        home / "state" / "worker" / "enrolment.json",
        msgspec.json.encode(Enrolment(addresses=("pool:1",), pool_id=bytes(16), cs_pub=bytes(32), ci_pub=bytes(32))),
    )
    assert findings(home)["pool"]["ok"]
    named = {one["what"]: one for one in json.loads(moregpu("doctor", "--json", "--profile", "no", home=home).stdout)}
    assert not named["profile"]["ok"] and not named["pool"]["ok"]
