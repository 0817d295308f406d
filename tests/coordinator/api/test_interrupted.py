"""A call that was left in the middle, by Ctrl-C or by leaving a loop, is in nobody's way."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from moregpu.client.access import Access
from moregpu.client.pool import Pool as Client
from moregpu.wire.api import Me, TokenRequest

from .conftest import Pool


@pytest.fixture
def client(pool: Pool) -> Iterator[Client]:
    with Client(Access(addresses=(pool.address,), token=pool.admin, pin=pool.pin)) as connected:
        yield connected


@pytest.mark.parametrize("answered", [False, True])
def test_what_may_not_be_repeated_is_asked_after_ctrl_c(
    client: Client, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    client.me()
    usual = http.client.HTTPSConnection.getresponse

    def interrupted(connection: http.client.HTTPSConnection) -> http.client.HTTPResponse:
        if answered:
            usual(connection)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(http.client.HTTPSConnection, "getresponse", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.doors.call("GET", "/v1/me", Me)
    assert client.create_token(TokenRequest(label="after", role="viewer")).line


def test_and_after_a_stream_that_was_not_read_to_its_end(client: Client) -> None:
    for _ in client.doors.read("/v1/events", accept="text/event-stream"):
        break
    assert client.create_token(TokenRequest(label="after", role="viewer")).line
