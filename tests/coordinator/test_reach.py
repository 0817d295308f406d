"""What is listened on, advertised and allowed as Host."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.reach import MAX_ADDRESSES, host_of, listening_sockets, plain_loopback_sockets, reach
from moregpu.errors import InvalidRequest, PortInUse
from moregpu.wire.invite import split_address


def test_a_loopback_pool_says_how_to_let_others_in() -> None:
    place = reach("127.0.0.1", 8787)
    assert place.addresses == ("127.0.0.1:8787",)
    assert place.hosts == {"127.0.0.1", "localhost", "::1"}
    assert place.loopback_only
    assert "moregpu serve --host 0.0.0.0" in place.note


def test_a_wide_pool_advertises_names_that_an_invite_can_carry() -> None:
    place = reach("0.0.0.0", 8787)  # noqa: S104
    assert 1 <= len(place.addresses) <= MAX_ADDRESSES
    assert not place.loopback_only
    for address in place.addresses:
        assert split_address(address)[1] == 8787
        assert host_of(address) in place.hosts


def test_what_is_advertised_replaces_what_is_found_and_is_allowed_as_host() -> None:
    place = reach("0.0.0.0", 8787, ["pool.example", "tunnel.example:443", "fd00::1"], ["Other.Example"])  # noqa: S104
    assert place.addresses == ("pool.example:8787", "tunnel.example:443", "[fd00::1]:8787")
    assert {"pool.example", "tunnel.example", "fd00::1", "other.example", "localhost"} <= place.hosts


@pytest.mark.parametrize("name", ["", "a b", "http://a", "a/b", "a:b:c", "a:0", "a:99999", "a@b", "user@h:1"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        reach("127.0.0.1", 8787, [name])


def test_more_than_an_invite_carries_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 4"):
        reach("127.0.0.1", 8787, ["a", "b", "c", "d", "e"])


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("127.0.0.1:8787", "127.0.0.1"), ("LocalHost", "localhost"), ("[::1]:8787", "::1"), ("::1", "::1"),
        ("pool.example:1", "pool.example"), ("", ""), ("[::1", "::1"),
    ],
)  # fmt: skip
def test_the_host_of_a_host_header(header: str, host: str) -> None:
    assert host_of(header) == host


@given(text=st.text(max_size=40))
def test_no_host_header_breaks_it(text: str) -> None:
    host_of(text)


def test_a_taken_port_is_said_with_another_to_try() -> None:
    (first,) = listening_sockets("127.0.0.1", 0)
    port = first.getsockname()[1]
    try:
        with pytest.raises(PortInUse, match=rf"port {port}.*--port {port + 1}"):
            listening_sockets("127.0.0.1", port)
        with pytest.raises(PortInUse, match=rf"port {port}.*--insecure-loopback {port + 1}"):
            plain_loopback_sockets(port)
    finally:
        first.close()
    (again,) = listening_sockets("127.0.0.1", port)
    again.close()


def test_an_address_that_is_not_of_this_machine_is_said() -> None:
    with pytest.raises(InvalidRequest, match="address of this machine"):
        listening_sockets("192.0.2.1", 0)
    with pytest.raises(InvalidRequest):
        listening_sockets("no such host", 0)


def test_localhost_is_one_address() -> None:
    (listener,) = listening_sockets("localhost", 0)
    assert listener.family is socket.AF_INET
    listener.close()
