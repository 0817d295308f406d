"""Who may come in to the console in a browser: tokens, sessions, Host and Origin, other users; and what is started."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.errors import InvalidRequest
from moregpu_tui.cli import parse
from moregpu_tui.options import Options

if sys.platform == "win32":
    pytest.skip("pseudo-terminals", allow_module_level=True)

from moregpu_tui.web.door import Door, check
from moregpu_tui.web.peers import is_ours
from moregpu_tui.web.serve import command
from moregpu_tui.web.terminal import environment

STATIC = Path(__file__).parents[2] / "moregpu_tui" / "web" / "static"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
OURS, THEIRS = ("127.0.0.1", 8080), ("127.0.0.1", 40000)


def cookie_of(door: Door) -> str:
    return door.set_cookie().partition(";")[0]


def test_a_token_lets_in_once() -> None:
    door = Door()
    assert door.enter("", "", "") == "unknown"
    assert door.enter("something else", "", "") == "unknown"
    assert not door.used
    assert door.enter(door.token, "", "") == "welcome"
    assert door.enter(door.token, "", "") == "used"


def test_a_session_is_its_cookie_and_its_key_together() -> None:
    door = Door()
    cookie = cookie_of(door)
    assert door.enter("", door.key, cookie) == "welcome"
    assert door.enter("", door.key, "") == "unknown"
    assert door.enter("", "another", cookie) == "unknown"
    assert door.enter("", door.key, cookie + "x") == "unknown"
    assert door.enter(door.token, door.key, cookie) == "welcome"
    assert not door.used, "a browser that is in uses nothing up"


def test_secrets_are_long_and_each_servers_own() -> None:
    one, other = Door(), Door()
    mine = [one.token, one.key, cookie_of(one).partition("=")[2]]
    assert len({*mine, other.token, other.key, cookie_of(other).partition("=")[2]}) == 6
    assert all(len(secret) >= 43 for secret in mine), "256 bits"


def test_the_cookie_is_for_no_script_and_no_other_site() -> None:
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(Door().set_cookie().split("; "))


@pytest.mark.parametrize("cookies", ["", "a=b", "\0", "=;=", "moregpu-1234", "é=ü", ";" * 500])
def test_any_cookie_header_is_only_looked_at(cookies: str) -> None:
    assert not Door().knows(cookies)


@pytest.mark.parametrize(
    ("headers", "acts", "allowed"),
    [
        ({"host": "127.0.0.1:8080"}, False, True),
        ({"host": "localhost:8080"}, False, True),
        ({"host": "127.0.0.1"}, False, True),
        ({"host": "127.0.0.1:9000", "origin": "http://127.0.0.1:9000"}, True, True),
        ({"host": "127.0.0.1:8080"}, True, False),
        ({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:9000"}, True, False),
        ({"host": "127.0.0.1:8080", "origin": "http://localhost:8080"}, True, False),
        ({"host": "127.0.0.1:8080", "origin": "https://127.0.0.1:8080"}, True, False),
        ({"host": "127.0.0.1:8080", "origin": "https://evil.example"}, False, False),
        ({"host": "127.0.0.1:8080", "origin": "null"}, True, False),
        ({"host": "evil.example:8080", "origin": "http://evil.example:8080"}, True, False),
        ({"host": "127.0.0.1.evil.example:8080"}, False, False),
        ({"host": "127.0.0.1:8080.evil.example"}, False, False),
        ({"host": ""}, False, False),
        ({}, False, False),
    ],
)
def test_host_names_this_machine_and_origin_is_this_page(headers: dict[str, str], acts: bool, allowed: bool) -> None:
    assert (check(headers, acts=acts) is None) == allowed


def row(local: str, remote: str, state: str = "01", uid: int = 0) -> str:
    return (
        f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid}        0 1 1 0000 20 4 30 10 -1\n"
    )


LOCAL, REMOTE = "0100007F:1F90", "0100007F:9C40"
MAPPED = "0000000000000000FFFF00000100007F"


@pytest.mark.skipif(sys.byteorder != "little", reason="the words of the table are the machine's")
@pytest.mark.parametrize(
    ("rows", "ours"),
    [
        ([row(REMOTE, LOCAL)], True),  # root, and so whoever runs this as root
        ([row(LOCAL, REMOTE), row(REMOTE, LOCAL, uid=4_000_000)], False),
        ([row(LOCAL, REMOTE), row(f"{MAPPED}:9C40", f"{MAPPED}:1F90", uid=4_000_000)], False),
        ([row(LOCAL, REMOTE), row(f"{MAPPED}:9C40", f"{MAPPED}:1F90")], True),
        ([row(LOCAL, REMOTE), row(f"{'F' * 24}0100007F:9C40", f"{'F' * 24}0100007F:1F90")], False),  # IPv6 proper
        ([row(LOCAL, REMOTE), row(REMOTE, LOCAL, state="05")], False),  # closed: it has no owner any more
        ([row(LOCAL, REMOTE)], False),
        ([row("0100007F:0016", "0100007F:9C40", uid=4_000_000)], True),  # nothing is known of this connection
        ([], True),
    ],
)
def test_connections_of_other_users_are_told_apart(tmp_path: Path, rows: list[str], ours: bool) -> None:
    table = tmp_path / "tcp"
    table.write_text(HEAD + "".join(rows))
    assert is_ours(THEIRS, OURS, (tmp_path / "absent", table)) == ours


@pytest.mark.parametrize(
    "arguments",
    [
        ["--demo", "--demo-workers", "30", "--demo-churn", "0.5"],
        ["--connect", "https://pool:8787", "--readonly", "--no-mouse"],
        ["--profile", "office", "--ascii"],
        ["--replay", "kept.jsonl"],
        [],
    ],
)
def test_the_console_of_a_tab_has_all_flags_but_those_of_the_web(arguments: list[str]) -> None:
    given = parse(["--web", "--port", "8080", "--no-open", *arguments])
    started = command(given)
    assert started[:3] == [sys.executable, "-m", "moregpu_tui"]
    assert parse(started[3:]) == parse(arguments)
    known = {"demo", "demo_workers", "demo_churn", "connect", "profile", "readonly", "ascii", "mouse", "replay"}
    assert set(Options.__struct_fields__) - known == {"web", "port", "open", "plain", "record"}, "pass on, or refuse"


def test_the_page_is_another_terminal_than_the_servers() -> None:
    made = environment(
        {"TERM": "linux", "COLUMNS": "80", "LINES": "24", "TMUX": "x", "HOME": "/home/a", "NO_COLOR": "1"}
    )
    assert made == {
        "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUTF8": "1", "HOME": "/home/a", "NO_COLOR": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--web", "--plain"], "leave out --web or --plain"),
        (["--web", "--record", "x.jsonl"], "leave out --web or --record"),
        (["--web", "--port", "70000"], "no port 70000"),
        (["--port", "8080"], "belong to --web"),
        (["--no-open", "--demo"], "belong to --web"),
        (["--web", "--demo", "--connect", "https://somewhere:1"], "a pool of its own"),
    ],
)
def test_what_does_not_go_with_a_browser_is_one_line_and_an_exit_status(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moregpu_tui", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == InvalidRequest.exit_code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_others_made_is_named_and_unchanged() -> None:
    """Each file of others is in the table, with its licence beside it and the bytes that the table says."""
    rows = re.findall(r"^\| `([^`]+)` \|.*\| (\S+) \| `(\w{64})` \|$", (STATIC / "THIRD-PARTY.md").read_text(), re.M)
    assert {name for name, _, _ in rows} == {
        path.relative_to(STATIC).as_posix()
        for folder in ("xterm", "fonts")
        for path in (STATIC / folder).iterdir()
        if not path.name.startswith("LICENSE")
    }
    for name, licence, digest in rows:
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
        assert (STATIC / licence).is_file(), licence


def test_the_page_names_no_other_host() -> None:
    for name in ("index.html", "console.js", "console.css"):
        text = (STATIC / name).read_text()
        assert not re.findall(r"(?:https?:)?//(?![\s`])[\w.-]+\.\w+", re.sub(r"(?m)//\s.*$", "", text)), name
        assert "<style" not in text and " style=" not in text and "onclick=" not in text
    assert not re.findall(r"<script(?![^>]* src=)", (STATIC / "index.html").read_text())
