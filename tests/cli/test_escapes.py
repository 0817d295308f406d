"""Whatever a stranger named, no command writes to a terminal what the terminal would obey, or what cannot be seen."""

from __future__ import annotations

import ast
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.cli import main, show
from moregpu.coordinator.server import ServeConfig
from moregpu.wire.text import UNSAFE
from tests.coordinator.api.conftest import Pool, Running

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[31mred\u202egnp.exe\x9b2J\r\nmoregpu: all is well\u200b[/bold]"

COMMANDS = [
    ["jobs"], ["job", "JOB"], ["workers"], ["pool", "info"], ["token", "list"], ["group", "list"], ["kernel", "list"],
    ["network"], ["top", "--once"], ["audit"], ["doctor"], ["cancel", "JOB"], ["retry", "JOB"],
    ["group", "add", EVIL], ["group", "remove", EVIL], ["worker", "pause", EVIL], ["token", "revoke", EVIL],
    ["job", EVIL], ["submit", EVIL], ["kernel", "remove", EVIL], ["pool", "rename", EVIL],
    ["worker", "set", "WORKER", "--name", EVIL], ["worker", "remove", "WORKER", "--yes"],
    ["login", "evil"],
]  # fmt: skip


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pool, str]]:
    """A pool in which all that can be named has an evil name, and one of its jobs."""
    config = ServeConfig(port=0, state=str(tmp_path_factory.mktemp("state") / "pool"), profile="", name="evil" + EVIL)
    with Running(config) as pool:
        pool.ask("PATCH", "/v1/pool", pool.admin, {"name": EVIL[:90], "description": EVIL})
        pool.ask("PATCH", f"/v1/workers/{pool.worker.worker_id}", pool.admin, {"name": EVIL[:90], "groups": [EVIL]})
        pool.ask("POST", "/v1/groups", pool.admin, {"name": "lab", "description": EVIL})
        pool.ask("POST", "/v1/tokens", pool.admin, {"label": EVIL[:90], "groups": [EVIL[:90]]})
        pool.ask("POST", "/v1/invites", pool.admin, {"owner": EVIL[:90]})
        spec = {"kind": "kernel", "operation": "relu", "size": 4, "name": EVIL, "group": EVIL[:90], "device": EVIL}
        answer = pool.ask("POST", "/v1/jobs", pool.admin, spec)
        assert answer.status == 201
        yield pool, answer.json()["id"]


@pytest.fixture
def reached(named: tuple[Pool, str], home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pool, str]:
    pool, job = named
    made = pool.ask("POST", "/v1/tokens", pool.admin, {"role": "admin", "label": EVIL[:90]}).json()
    monkeypatch.setenv("MOREGPU_ADMIN_TOKEN", made["line"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(made["line"]))
    return pool, job


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    monkeypatch.setattr(sys, "argv", ["moregpu", *arguments])
    with pytest.raises(SystemExit):
        main.main()
    shown = capsys.readouterr()
    return shown.out, shown.err


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as JSON"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words)[:16].replace("\x1b", "ESC"))
def test_no_command_prints_an_evil_name_raw(
    reached: tuple[Pool, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    as_json: bool,
) -> None:
    pool, job = reached
    words = [job if word == "JOB" else pool.worker.worker_id if word == "WORKER" else word for word in command]
    out, err = run([*words, *(["--json"] if as_json else [])], monkeypatch, capsys)
    assert out or err
    for line in (out + err).replace("\t", " ").split("\n"):
        assert not UNSAFE.search(line), repr(line)
        assert not line.startswith("moregpu: all is well")
    if as_json and out:
        json.loads(out)


def test_what_json_hides_from_terminals_it_gives_back_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": EVIL + "\U000e0041\x7f\u00ad plain ü 漢"}
    show.print_json(value)
    shown = capsys.readouterr().out
    assert not UNSAFE.search(shown.rstrip("\n"))
    assert json.loads(shown) == value
    assert "ü 漢" in shown


def test_every_command_says_what_others_named_by_what_cleans_it() -> None:
    """A value inside a text that is printed as it stands has been cleaned, or is nobody's name."""
    own = {"show.py", "main.py", "demo.py", "reference.py", "completion.py"}  # clean themselves, or print own texts
    for path in sorted(Path(show.__file__).parent.glob("*.py")):
        if path.name in own:
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("typer.echo", "print", "sys.stdout.write"):
                first = call.args[0] if call.args else ast.Constant("")
                ours = isinstance(first, ast.Constant) or ast.unparse(first) in OURS
                assert ours, f"{path.name}:{call.lineno} prints {ast.unparse(first)[:80]}: use `show.say`"


OURS = {"CLEAR", "_shown(results[-1])", "told(find_nearby())", "introduction(invite, config.functions)"}
"""Texts whose makers clean what they put in; tests of theirs show it."""
