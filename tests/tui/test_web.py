"""The console's server as a browser meets it, without one: real HTTP, real WebSockets, real pseudo-terminals."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

if sys.platform == "win32":
    pytest.skip("pseudo-terminals", allow_module_level=True)

from moregpu_tui.web import session, terminal
from moregpu_tui.web.door import Door
from moregpu_tui.web.look import look
from moregpu_tui.web.peers import TABLES, is_ours
from moregpu_tui.web.serve import Doorway
from moregpu_tui.web.session import NOT_UNDERSTOOD, NOT_YOURS, TOO_MANY, Consoles
from moregpu_tui.web.site import HEADERS, site

WAIT_S = 60.0


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s for {what}"
        time.sleep(0.02)


class Client:
    """What a browser does, or another program."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.cookie = ""
        self.key = ""

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        own = {"Cookie": self.cookie} if self.cookie else {}
        packed = None if body is None else json.dumps(body)
        line.request(method, path, packed, own | dict(headers or {}))
        return line.getresponse()

    def enter(self, token: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
        given = {"Origin": f"http://{self.host}"} | headers
        answer = self.ask("POST", "/enter", {"token": token, "key": self.key}, given)
        text = answer.read()
        if answer.status == 200:
            self.cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
            self.key = json.loads(text)["key"]
        return answer.status, json.loads(text) if text.startswith(b"{") else {}

    @contextmanager
    def console(
        self, columns: int = 160, rows: int = 45, *, key: str | None = None, origin: str = "", cookie: str | None = None
    ) -> Generator[ClientConnection]:
        shown = self.cookie if cookie is None else cookie
        with connect(
            f"ws://{self.host}/console",
            origin=origin or f"http://{self.host}",  # type: ignore[arg-type]
            additional_headers={"Cookie": shown} if shown else {},
            compression=None,
        ) as tab:
            tab.send(json.dumps({"key": self.key if key is None else key, "columns": columns, "rows": rows}))
            yield tab

    def closed(self, **shown: str) -> int:
        """How the server closes a tab at once."""
        with self.console(**shown) as tab:  # type: ignore[arg-type]
            return closed_with(tab)


def read_until(socket: ClientConnection, wanted: bytes) -> bytes:
    """What a console drew, up to what was wanted."""
    drawn = b""
    while wanted not in drawn:
        try:
            said = socket.recv(WAIT_S)
        except TimeoutError:
            raise AssertionError(f"waited for {wanted!r}; came: {drawn[-2000:]!r}") from None
        drawn += said if isinstance(said, bytes) else said.encode()
    return drawn


def closed_with(socket: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            socket.recv(WAIT_S)
    return closed.value.rcvd.code if closed.value.rcvd else 0


# ---- the site, around any program ------------------------------------------------------------------------------------


@contextmanager
def around(*command: str, at_most: int = 2) -> Generator[tuple[Client, Door]]:
    """The real server in a thread, with another program in place of the console."""
    door = Door()
    consoles = Consoles(command, door.fits, at_most)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Doorway(site(door, consoles, look, is_ours))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield Client(listener.getsockname()[1]), door
    finally:
        loop.call_soon_threadsafe(server.end, signal.SIGTERM)
        thread.join(WAIT_S)
        loop.close()


def test_a_link_opens_once_and_a_session_goes_on() -> None:
    with around("/bin/cat") as (browser, door):
        assert browser.enter("wrong") == (403, {"why": "unknown"})
        status, entered = browser.enter(door.token)
        assert status == 200
        assert entered["look"]["ground"] == "#0e1318"
        assert browser.enter()[0] == 200, "the page is loaded anew"
        another = Client(browser.port)
        assert another.enter(door.token) == (403, {"why": "used"})
        assert another.enter() == (403, {"why": "unknown"})


def test_another_sites_page_gets_nothing() -> None:
    with around("/bin/cat") as (browser, door):
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://{browser.host}"):
            assert browser.enter(door.token, Origin=origin)[0] == 403
        assert browser.ask("POST", "/enter", {"token": door.token}).status == 403, "no page sends it without Origin"
        assert not door.used
        browser.enter(door.token)
        with pytest.raises(InvalidStatus) as refused, browser.console(origin="http://evil.example"):
            pass
        assert refused.value.response.status_code == 403


def test_a_name_that_was_made_to_point_here_gets_nothing() -> None:
    with around("/bin/cat") as (browser, door):
        evil = {"Host": f"evil.example:{browser.port}"}
        assert browser.ask("GET", "/", headers=evil).status == 403
        assert browser.enter(door.token, Host=evil["Host"], Origin=f"http://{evil['Host']}")[0] == 403
        assert not door.used


def test_no_console_without_both_cookie_and_key() -> None:
    with around("/bin/cat") as (browser, door):
        browser.enter(door.token)
        for cookie in ("", "moregpu=1", browser.cookie + "x"):
            with pytest.raises(InvalidStatus) as refused, browser.console(cookie=cookie):
                pass
            assert refused.value.response.status_code == 403
        assert browser.closed(key="") == NOT_YOURS
        assert browser.closed(key=browser.key + "x") == NOT_YOURS


@pytest.mark.parametrize(
    "first",
    ["", "{", "[]", '{"key": 1}', '{"key": "", "columns": 1e9, "rows": 5}', '{"key": "", "columns": -1, "rows": 5}'],
)
def test_what_is_not_understood_closes_the_tab_and_nothing_else(first: str) -> None:
    with around("/bin/cat") as (browser, door):
        browser.enter(door.token)
        for message in (first, first.encode()):
            with connect(
                f"ws://{browser.host}/console",
                origin=f"http://{browser.host}",  # type: ignore[arg-type]
                additional_headers={"Cookie": browser.cookie},
            ) as line:
                line.send(message)
                assert closed_with(line) == NOT_UNDERSTOOD
        with browser.console() as fine:
            fine.send(first)
            assert closed_with(fine) == NOT_UNDERSTOOD
        assert browser.enter()[0] == 200


def test_bodies_are_bounded() -> None:
    with around("/bin/cat") as (browser, _door):
        origin = {"Origin": f"http://{browser.host}"}
        for body in ({"token": "x" * 100_000}, [], "text", {"other": 1}):
            assert browser.ask("POST", "/enter", body, origin).status == 400


def test_every_answer_keeps_other_pages_and_caches_out() -> None:
    with around("/bin/cat") as (browser, _door):
        for path, status in (("/", 200), ("/static/console.js", 200), ("/nothing", 404), ("/enter", 405)):
            answer = browser.ask("GET", path)
            assert answer.status == status, path
            assert {name: answer.getheader(name) for name in HEADERS} == HEADERS, path
            assert answer.getheader("Server") is None
        policy = HEADERS["Content-Security-Policy"]
        assert "script-src 'self';" in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert browser.ask("GET", "/static/../door.py").status == 404
        assert browser.ask("GET", "/static/xterm/xterm.mjs").getheader("Content-Type", "").startswith("text/javascript")


@pytest.mark.skipif(not TABLES[0].exists(), reason="no table of connections here")
def test_another_user_of_this_machine_gets_nothing() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with around("/bin/cat") as (browser, door):
        os.seteuid(65_534)
        try:
            theirs = socket.socket()  # a socket belongs to whoever made it
        finally:
            os.seteuid(0)
        with theirs:
            theirs.connect(("127.0.0.1", browser.port))
            body = json.dumps({"token": door.token}).encode()
            head = f"POST /enter HTTP/1.1\r\nHost: {browser.host}\r\nOrigin: http://{browser.host}\r\n"
            theirs.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = theirs.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 403")
        assert not door.used


def test_a_tab_is_a_terminal_of_its_own() -> None:
    with around("/bin/sh", "-c", "stty size; tty; read x; stty size; exit 3") as (browser, door):
        browser.enter(door.token)
        with browser.console(100, 30) as one, browser.console(50, 20) as other:
            assert b"30 100" in read_until(one, b"/dev/")
            assert b"20 50" in read_until(other, b"/dev/")
            one.send(json.dumps({"columns": 120, "rows": 40}))
            one.send(b"\n")
            assert b"40 120" in read_until(one, b'{"ended":3}')
            assert closed_with(one) == 1000


def test_a_size_is_told_to_the_program() -> None:
    script = "import signal, os; signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size(), flush=True));"
    with around(sys.executable, "-c", f"{script} print('ready', flush=True)\nwhile True: signal.pause()") as (
        browser,
        door,
    ):
        browser.enter(door.token)
        with browser.console(100, 30) as tab:
            read_until(tab, b"ready")
            tab.send(json.dumps({"columns": 120, "rows": 40}))
            assert b"columns=120, lines=40" in read_until(tab, b"lines=")


def test_no_more_consoles_than_there_may_be() -> None:
    with around("/bin/cat", at_most=1) as (browser, door):
        browser.enter(door.token)
        with browser.console() as first:
            first.send(b"one\n")
            read_until(first, b"one")
            assert browser.closed() == TOO_MANY

        def another() -> bool:
            with browser.console() as second:
                try:
                    second.send(b"two\n")
                    return b"two" in second.recv(WAIT_S)
                except ConnectionClosed:
                    return False

        until(another, "the first console's place to be free")


def test_a_large_paste_arrives_whole_and_in_order() -> None:
    text = b"".join(b"%07d\n" % number for number in range(60_000))
    count = f"stty raw -echo; echo ready; head -c {len(text)} | sha256sum"
    with around("/bin/sh", "-c", count) as (browser, door):
        browser.enter(door.token)
        with browser.console() as tab:
            read_until(tab, b"ready")
            for at in range(0, len(text), 65_536):
                tab.send(text[at : at + 65_536])
            assert hashlib.sha256(text).hexdigest().encode() in read_until(tab, b"-")


def test_what_nobody_reads_is_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "MAX_WAITING_BYTES", 100_000)
    with around("/bin/sh", "-c", "stty raw -echo; echo ready; exec sleep 600") as (browser, door):
        browser.enter(door.token)
        with browser.console() as tab:
            read_until(tab, b"ready")
            with suppress(ConnectionClosed):
                for _ in range(10):
                    tab.send(b"x" * 60_000)
            assert closed_with(tab) == NOT_UNDERSTOOD


def test_much_output_goes_to_a_page_that_is_slow_and_none_is_lost() -> None:
    with around("/bin/sh", "-c", "stty raw; seq 1 400000") as (browser, door):
        browser.enter(door.token)
        with browser.console() as tab:
            drawn = read_until(tab, b'{"ended":0}')
    assert drawn.removesuffix(b'{"ended":0}').split() == [b"%d" % number for number in range(1, 400_001)]


def test_a_program_that_will_not_end_is_killed_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal, "END_S", 0.2)
    stubborn = "trap '' HUP TERM; sleep 600 & echo $$-$!-; wait"
    with around("/bin/sh", "-c", stubborn) as (browser, door):
        browser.enter(door.token)
        with browser.console() as tab:
            found = re.search(rb"(\d+)-(\d+)-", read_until(tab, b"-\r"))
            assert found is not None
            pids = [int(part) for part in found.groups()]
            assert all(psutil.pid_exists(pid) for pid in pids)
        until(lambda: not any(alive(pid) for pid in pids), "both to end")


def test_a_program_that_cannot_be_started_closes_the_tab_and_says_so() -> None:
    with around("/nowhere/at/all") as (browser, door):
        browser.enter(door.token)
        assert browser.closed() == session.CANNOT_START


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---- the real server with real consoles ------------------------------------------------------------------------------


@contextmanager
def served(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Generator[tuple[psutil.Popen, Client, str]]:
    """`moregpu-tui --web`, a client of it, and its token."""
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    own = {"MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file", **(environment or {})}
    server = psutil.Popen(
        [sys.executable, "-m", "moregpu_tui", "--web", *arguments],
        stdout=subprocess.PIPE, stderr=(folder / "stderr").open("wb"), text=True, env=os.environ | own,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # tests may run under nohup
    )  # fmt: skip
    try:
        line = server.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/#([\w-]+)", line)
        assert found is not None, line
        yield server, Client(int(found[1])), found[2]
    finally:
        for process in (*children(server), server):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        server.wait(WAIT_S)
        server.stdout.close()


def children(server: psutil.Popen) -> list[psutil.Process]:
    try:
        return server.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.slow
def test_it_listens_on_this_machine_alone_and_tells_nobody_its_secrets(tmp_path: Path) -> None:
    with served(tmp_path, "--demo", "--no-open") as (server, browser, token):
        browser.enter(token)
        with browser.console() as tab:
            read_until(tab, b"needs you")
            listening = [line for line in server.net_connections("tcp") if line.status == psutil.CONN_LISTEN]
            assert [line.laddr.ip for line in listening] == ["127.0.0.1"]
            (console,) = children(server)
            secrets = [token, browser.key, browser.cookie.partition("=")[2]]
            shown = [*server.cmdline(), *console.cmdline(), *console.environ().values()]
            assert not [secret for secret in secrets for text in shown if secret in text]
        server.send_signal(signal.SIGTERM)
        assert server.wait(WAIT_S) == 128 + signal.SIGTERM
        assert server.stdout.read() == "", "one line, and no more"
    assert (tmp_path / "stderr").read_bytes() == b""


@pytest.mark.slow
def test_the_console_of_a_tab_answers_keys_sizes_and_the_mouse_and_ends_with_its_tab(tmp_path: Path) -> None:
    with served(tmp_path, "--demo", "--no-open") as (server, browser, token):
        browser.enter(token)
        with browser.console() as tab:
            read_until(tab, b"needs you")
            tab.send(b"2")
            read_until(tab, b"DUTY")
            tab.send(json.dumps({"columns": 40, "rows": 10}))
            read_until(tab, b"60")  # it says how large it wants to be
            tab.send(json.dumps({"columns": 130, "rows": 40}))
            read_until(tab, b"DUTY")
            tab.send(b"\x1b[<0;25;2M\x1b[<0;25;2m")  # on the name of the third screen
            read_until(tab, b"SUBMITTED")
            assert len(children(server)) == 1
        until(lambda: not children(server), "the console to end with its tab")


@pytest.mark.slow
def test_a_console_that_is_left_says_so_and_another_can_be_opened(tmp_path: Path) -> None:
    with served(tmp_path, "--demo", "--no-open") as (_server, browser, token):
        browser.enter(token)
        with browser.console() as tab:
            read_until(tab, b"needs you")
            tab.send(b"\x11")
            read_until(tab, b'{"ended":0}')
        assert browser.enter()[0] == 200
        with browser.console() as tab:
            read_until(tab, b"needs you")


@pytest.mark.slow
def test_a_console_that_cannot_start_says_why(tmp_path: Path) -> None:
    with served(tmp_path, "--profile", "nowhere", "--no-open") as (_server, browser, token):
        browser.enter(token)
        with browser.console() as tab:
            assert b"nowhere" in read_until(tab, b'{"ended":2}')


@pytest.mark.slow
def test_readonly_is_the_consoles_too(tmp_path: Path) -> None:
    with served(tmp_path, "--demo", "--readonly", "--no-open") as (_server, browser, token):
        browser.enter(token)
        with browser.console() as tab:
            assert b"invite" not in read_until(tab, b"needs you"), "no key that changes something is offered"


@pytest.mark.slow
@pytest.mark.parametrize("told", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_no_console_outlives_its_server(tmp_path: Path, told: str) -> None:
    with served(tmp_path, "--demo", "--no-open") as (server, browser, token):
        browser.enter(token)
        with browser.console() as tab:
            read_until(tab, b"needs you")
            (console,) = children(server)
            number = getattr(signal, told)
            server.send_signal(number)
            status = server.wait(WAIT_S)
            until(lambda: not alive(console.pid), "the console to end")
            assert status == {"SIGINT": 0, "SIGKILL": -number}.get(told, 128 + number)


@pytest.mark.slow
def test_the_browser_is_given_a_private_file_that_leads_to_the_link(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    said = tmp_path / "said"
    program.write_text(
        f'#!/bin/sh\nfile="${{1#file://}}"\n{{ stat -c %a "$file"; echo "$@"; cat "$file"; }} > {said}.part\n'
        f"mv {said}.part {said}\n"
    )
    program.chmod(0o755)
    with served(tmp_path, "--demo", environment={"BROWSER": str(program)}) as (server, browser, token):
        until(said.exists, "the browser")
        mode, arguments, page = said.read_text().split("\n", 2)
        assert mode == "600"
        assert f"http://127.0.0.1:{browser.port}/#{token}" in page
        assert token not in arguments
        file = Path(arguments.split("file://")[-1])
        assert file.exists()
        server.send_signal(signal.SIGINT)
        server.wait(WAIT_S)
        assert not file.exists()


@pytest.mark.slow
def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "moregpu_tui", "--web", "--demo", "--no-open", "--port", str(port)],
            capture_output=True, text=True, check=False, timeout=WAIT_S,
        )  # fmt: skip
    assert done.returncode == 9
    assert f"port {port}" in done.stderr
    assert "Traceback" not in done.stderr
