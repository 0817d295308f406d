"""The port without TLS, and life behind a tunnel that ends TLS."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from moregpu.coordinator.reach import reach, tunnel_address
from moregpu.coordinator.server import ServeConfig
from moregpu.errors import InvalidRequest, PortInUse
from moregpu.wire.invite import parse_client_line, parse_invite

from .conftest import Pool, Running


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    config = ServeConfig(port=0, state=str(tmp_path_factory.mktemp("s") / "pool"), profile="", insecure_loopback=0)
    with Running(config) as running:
        yield running


def ask(pool: Pool, path: str, token: str = "", headers: dict[str, str] | None = None, body: Any = None) -> Any:
    """One request without TLS: status and decoded answer."""
    connection = http.client.HTTPConnection(pool.opening.plain_url.removeprefix("http://"), timeout=20)
    sent = ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {})
    try:
        connection.request("GET" if body is None else "POST", path, headers=sent, body=body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def compat_token(pool: Pool) -> str:
    made = pool.ask("POST", "/v1/tokens", pool.admin, {"role": "submitter", "scope": "compat"}).json()
    return parse_client_line(made["line"]).token


def test_it_takes_tokens_of_scope_compat_alone(plain: Pool) -> None:
    assert ask(plain, "/health")[0] == 200
    assert ask(plain, "/device")[0] == 401
    token = compat_token(plain)
    assert ask(plain, "/device", token)[0] == 200
    assert ask(plain, "/submit?async=1", token, body=b'{"kernel":"relu","size":4}')[0] == 202
    status, refused = ask(plain, "/device", plain.admin)
    assert status == 403 and "scope compat" in refused["error"]
    for path in ("/v1/jobs", "/v1/pool", "/v1/blobs/" + "0" * 64):
        assert ask(plain, path, token)[0] == ask(plain, path, plain.admin)[0] == 403


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "CF-Connecting-IP", "X-Forwarded-Proto"]
)
def test_it_takes_nothing_that_is_forwarded(plain: Pool, header: str) -> None:
    for path in ("/health", "/device"):
        assert ask(plain, path, compat_token(plain), {header: "192.0.2.1"})[0] == 403
    assert plain.ask("GET", "/v1/me", plain.admin, headers={header: "192.0.2.1"}).status == 200


def test_it_keeps_pages_and_other_names_out(plain: Pool) -> None:
    token = compat_token(plain)
    assert ask(plain, "/device", token, {"Host": "evil.example"})[0] == 403
    assert ask(plain, "/device", token, {"Origin": "http://evil.example"})[0] == 403
    host = plain.opening.plain_url.removeprefix("http://")
    assert ask(plain, "/device", token, {"Origin": f"https://{host}"})[0] == 403
    assert ask(plain, "/device", token, {"Origin": f"http://{host}"})[0] == 200


def test_it_opens_no_websocket(plain: Pool) -> None:
    url = plain.opening.plain_url.replace("http://", "ws://")
    for path in ("/v1/worker", "/v1/events", "/v1/link"):
        with pytest.raises(InvalidStatus) as refused:
            connect(url + path, additional_headers={"Authorization": f"Bearer {plain.admin}"})
        assert refused.value.response.status_code == 403


def test_it_listens_on_loopback_alone(plain: Pool) -> None:
    port = int(plain.opening.plain_url.rpartition(":")[2])
    for family, address in (
        (socket.AF_INET, "127.0.0.2"),
        (socket.AF_INET, socket.gethostbyname(socket.gethostname())),
    ):
        if address == "127.0.0.1":
            continue
        with socket.socket(family) as probe, pytest.raises(OSError):
            probe.settimeout(5)
            probe.connect((address, port))


def test_a_taken_port_is_said_before_anything_opens(plain: Pool, config: ServeConfig) -> None:
    port = int(plain.opening.plain_url.rpartition(":")[2])
    with pytest.raises(PortInUse), Running(msgspec.structs.replace(config, insecure_loopback=port)):
        pass


def test_without_the_option_there_is_no_such_port(config: ServeConfig) -> None:
    with Running(config) as running:
        assert running.opening.plain_url == ""


# ---- behind a tunnel -------------------------------------------------------------------------------------------------


def test_invites_and_lines_carry_the_tunnel(config: ServeConfig) -> None:
    wanted = msgspec.structs.replace(config, behind_tunnel="https://Pool.Example.com/")
    with Running(wanted) as running:
        invite = parse_invite(running.opening.invite_line)
        assert invite.addresses == ("pool.example.com:443",)
        line = parse_client_line(running.opening.admin_line)
        assert (line.addresses, line.pin) == (("pool.example.com:443",), b"")  # the system store verifies the tunnel's
        assert "tunnel" in running.opening.note
        # What comes through it names it as Host; the real address goes on working here.
        running.address = f"127.0.0.1:{running.services.pool.reach.port}"
        running.host, running.port = "127.0.0.1", running.services.pool.reach.port
        for host in ("pool.example.com", f"127.0.0.1:{running.port}"):
            headers = {"Host": host, "X-Forwarded-For": "192.0.2.7", "CF-Connecting-IP": "192.0.2.7"}
            assert running.ask("GET", "/v1/me", running.admin, headers=headers).status == 200
        assert running.ask("GET", "/v1/me", running.admin, headers={"Host": "other.example.com"}).status == 403
        made = running.ask("POST", "/v1/tokens", running.admin, {}).json()
        assert parse_client_line(made["line"]).addresses == ("pool.example.com:443",)


@pytest.mark.parametrize(
    "url",
    ["http://pool.example.com", "pool.example.com", "https://", "https://user@pool.example.com", "https://a/b", "",
     "https://a?token=1", "https://a:99999", "https://a b"],
)  # fmt: skip
def test_an_address_that_is_no_tunnel_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        tunnel_address(url)


def test_a_tunnel_comes_first_and_names_that_were_advertised_stay() -> None:
    place = reach("127.0.0.1", 8787, ["lab.local"], (), "https://pool.example.com:8443")
    assert place.addresses == ("pool.example.com:8443", "lab.local:8787")
    assert {"pool.example.com", "lab.local", "localhost"} <= place.hosts
    assert not place.loopback_only
