"""Lines that people paste: read whatever the clipboard did to them, refused with a reason otherwise."""

from __future__ import annotations

import os
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moregpu import ids
from moregpu.errors import InviteRefused, MoreGPUError, Unauthorized, VersionMismatch
from moregpu.wire import invite as module
from moregpu.wire.invite import (
    ClientLine,
    Invite,
    new_token,
    parse_client_line,
    parse_invite,
    secret_hash,
    split_address,
    token_hash,
    token_id,
)

INVITE = Invite(
    addresses=("den.local:8787", "192.168.1.5:8787", "[fd00::1]:8787"),
    pool_id=bytes(range(16)),
    cs_pub=bytes(range(32)),
    invite_id=ids.named("i", bytes(range(100, 116))),
    secret=bytes(range(200, 216)),
    pin=bytes(range(32, 64)),
    pool_name="Küche",
)
TOKEN = new_token(lambda length: bytes(range(length)))[1]
CLIENT = ClientLine(addresses=("den.local:8787",), pin=bytes(32), token=TOKEN)

hosts = st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z0-9]{1,10}){0,3}", fullmatch=True)
addresses = st.tuples(hosts, st.integers(1, 65535)).map(lambda pair: f"{pair[0]}:{pair[1]}")
invites = st.builds(
    Invite,
    addresses=st.lists(addresses, min_size=1, max_size=4).map(tuple),
    pool_id=st.binary(min_size=16, max_size=16),
    cs_pub=st.binary(min_size=32, max_size=32),
    invite_id=st.binary(min_size=16, max_size=16).map(lambda bits: ids.named("i", bits)),
    secret=st.binary(min_size=16, max_size=16),
    pin=st.sampled_from([b"", bytes(range(32))]),
    pool_name=st.text(string.ascii_letters + " äß漢", max_size=30),
)


@given(invites)
def test_an_invite_reads_back(invite: Invite) -> None:
    assert parse_invite(invite.line()) == invite


@given(st.lists(addresses, min_size=1, max_size=4).map(tuple), st.sampled_from([b"", bytes(32)]))
def test_a_client_line_reads_back(places: tuple[str, ...], pin: bytes) -> None:
    line = ClientLine(addresses=places, pin=pin, token=TOKEN)
    assert parse_client_line(line.line()) == line


@given(invites, st.randoms(use_true_random=False))
def test_spaces_lines_dashes_and_small_letters_do_no_harm(invite: Invite, chance: object) -> None:
    line = invite.line()
    broken = "".join(
        character.lower() + chance.choice(["", "", "", " ", "\n", "\r\n", "\t", "\u00a0"])  # type: ignore[attr-defined]
        for character in line
    )
    assert parse_invite(f"  {broken}\n") == invite
    head, body = line[:6], line[6:]
    assert parse_invite(head + "-".join(re.findall(".{1,5}", body))) == invite


@pytest.mark.parametrize(
    "around", ['"{}"', "'{}'", "`{}`", "“{}”", "<{}>", "({}).", "**{}**", "\ufeff{}\r\n", "\u200b{}\u2060", ' "{}" ']
)
def test_what_copying_puts_around_a_line_does_no_harm(around: str) -> None:
    assert parse_invite(around.format(INVITE.line())) == INVITE
    assert parse_client_line(around.format(CLIENT.line())) == CLIENT
    broken = INVITE.line()[:40] + "\u200b" + INVITE.line()[40:]
    assert parse_invite(around.format(broken)) == INVITE


def test_letters_that_look_like_digits_are_read_as_them() -> None:
    line = INVITE.line()
    body = line[6:].replace("1", "I").replace("0", "O")
    assert parse_invite(line[:6] + body) == INVITE


@given(st.integers(0, 10_000), st.sampled_from(ids.ALPHABET))
def test_one_mistyped_character_is_found(place: int, character: str) -> None:
    line = INVITE.line()
    place = 6 + place % (len(line) - 6)
    changed = line[:place] + character + line[place + 1 :]
    if changed == line:
        return
    with pytest.raises(InviteRefused):
        parse_invite(changed)


@given(st.integers(7, len(INVITE.line()) - 1))
def test_a_line_that_is_cut_off_says_so(length: int) -> None:
    with pytest.raises(InviteRefused, match="cut off"):
        parse_invite(INVITE.line()[:length])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with MGPU1-"),
        ("hello", "begins with MGPU1-"),
        ("MGPU1-", "cut off"),
        (INVITE.line() + "0", "checksum"),
        (INVITE.line() + "00000000", "checksum"),
        (INVITE.line()[:-1] + "U", "character that none can hold"),
        (INVITE.line()[:20] + "!" + INVITE.line()[20:], "character that none can hold"),
        (CLIENT.line(), "client's line"),
        (TOKEN, "bare token"),
        ("MGPU1-" + "0" * 5_000, "far longer"),
        ("MGPU1-" + CLIENT.line().removeprefix("MGPUC1-"), "checksum"),
    ],
)
def test_what_is_no_invite_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InviteRefused, match=reason) as refused:
        parse_invite(text)
    assert refused.value.hint


def test_a_client_line_is_refused_with_its_reason_too() -> None:
    with pytest.raises(InviteRefused, match="worker's invite"):
        parse_client_line(INVITE.line())
    with pytest.raises(InviteRefused, match="bare token"):
        parse_client_line(TOKEN)
    with pytest.raises(InviteRefused, match="holds no token"):
        parse_client_line(ClientLine(addresses=("a:1",), token="mgt_x").line())


def test_a_line_of_a_newer_version_says_update() -> None:
    with pytest.raises(VersionMismatch, match="version 2"):
        parse_invite("MGPU2-0123")
    with pytest.raises(VersionMismatch):
        parse_client_line("mgpuc7-0123")


@given(st.text(max_size=300) | st.text(ids.ALPHABET, max_size=400).map(lambda body: "MGPU1-" + body))
def test_no_text_raises_anything_but_a_typed_error(text: str) -> None:
    for parse in (parse_invite, parse_client_line):
        with pytest.raises(MoreGPUError):
            parse(text)


def test_a_line_with_a_good_checksum_but_bad_fields_is_refused() -> None:
    for fields in (b"", bytes(80), bytes(80) + b"\x01\x03a:1\x05abc", bytes(80) + b"\x05", INVITE.secret * 20):
        line = module._armour(module.INVITE_PREFIX, fields)
        with pytest.raises(InviteRefused, match="damaged"):
            parse_invite(line)
    hostile = bytes(80) + b"\x01\x07a\x1b[2J:1" + b"\x00\x00"
    with pytest.raises(InviteRefused, match="damaged"):
        parse_invite(module._armour(module.INVITE_PREFIX, hostile))


def test_a_hostile_pool_name_is_cleaned() -> None:
    assert parse_invite(replace(INVITE, pool_name="\x1b[31mred\u202e").line()).pool_name == "[31mred"


def test_fields_that_no_invite_can_have_are_the_makers_error() -> None:
    for changes in (
        {"addresses": ()},
        {"addresses": ("a:1",) * 5},
        {"addresses": ("no port",)},
        {"addresses": ("a:0",)},
        {"addresses": ("a:65536",)},
        {"addresses": (":1",)},
        {"pin": bytes(31)},
        {"secret": bytes(15)},
        {"invite_id": "j-1"},
        {"pool_name": "ä" * 200},
    ):
        with pytest.raises(ValueError, match=r"a |an "):
            replace(INVITE, **changes).line()


def test_addresses_split() -> None:
    assert split_address("den.local:8787") == ("den.local", 8787)
    assert split_address("[fd00::1]:1") == ("fd00::1", 1)
    for text in ("den", "den:", "den:x", "den:-1", ":1", "d en:1", "den:1\r\nHost: x", "dén:1"):
        with pytest.raises(ValueError, match="address"):
            split_address(text)


def test_tokens_have_a_public_name_and_a_hash() -> None:
    id, token = new_token(os.urandom)
    assert re.fullmatch(r"mgt_[0-9a-z]{8}_[A-Za-z0-9_-]{43}", token)
    assert token_id(token) == id
    assert len(token_hash(token)) == 32
    assert token_hash(token) != token_hash(token[:-1] + "x")
    assert new_token(os.urandom)[1] != token
    assert len(secret_hash(bytes(16))) == 32


@given(st.text(max_size=80))
def test_what_is_no_token_is_unauthorized(text: str) -> None:
    with pytest.raises(Unauthorized):
        token_id(text)
