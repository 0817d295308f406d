"""The lines that people hand over: a worker's invite (`MGPU1-…`), a client's line (`MGPUC1-…`), and client tokens.

A line is its prefix and Crockford base32 of a body: u16 length of the body, fields, then 5 bytes of checksum, BLAKE3
over prefix and body. Spaces, line breaks, dashes, quotes around it and lower case do no harm, nor do I, L, O for 1, 1,
0. To the byte in `docs/protocol.md`. A line is a secret: never in an argument list, a URL, a log.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Annotated

import msgspec
from blake3 import blake3
from msgspec import Meta

from moregpu import ids
from moregpu.errors import InviteRefused, Unauthorized, VersionMismatch
from moregpu.wire.text import NAME_LIMIT, UNSAFE, clean

INVITE_PREFIX = "MGPU1-"
CLIENT_PREFIX = "MGPUC1-"
MAX_ADDRESSES = 4
MAX_LINE_CHARACTERS = 4_000
CHECKSUM_BYTES = 5
AROUND = "\"'`´“”„‚‘’«»‹›<>()[]{}*.,;:"
_TOKEN = re.compile(r"mgt_([0-9A-Za-z]{8})_[0-9A-Za-z_-]{43}")

Addresses = Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_ADDRESSES)]
Pin = bytes
"""SHA-256 of a TLS leaf (DER), 32 bytes; b"" where the system's certificate store verifies it."""


class Invite(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs to join: where the pool is, which it is, and a secret that lets it in."""

    addresses: Addresses  # "host:port"
    pool_id: bytes  # 16
    cs_pub: bytes  # 32
    invite_id: str  # "i-…"
    secret: bytes  # 16
    pin: Pin = b""
    pool_name: str = ""

    def line(self) -> str:
        """Write it. Raises `ValueError` for fields that no invite can have."""
        body = b"".join(
            (
                _fixed(self.pool_id, 16),
                _fixed(self.cs_pub, 32),
                _id_bytes(self.invite_id),
                _fixed(self.secret, 16),
                _places(self.addresses, self.pin),
                _text(self.pool_name),
            )
        )
        return _armour(INVITE_PREFIX, body)


class ClientLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs to log in: where the pool is, which certificate it shows, and a token."""

    addresses: Addresses
    pin: Pin = b""
    token: str

    def line(self) -> str:
        """Write it. Raises `ValueError` for fields that no line can have."""
        return _armour(CLIENT_PREFIX, _places(self.addresses, self.pin) + _text(self.token))


def parse_invite(text: str) -> Invite:
    """Read an invite that a person pasted or typed.

    Raises:
        InviteRefused: it is none; the detail says whether it is cut off, mistyped or another kind of line.
        VersionMismatch: a newer version made it.
    """
    reader = _Reader(_disarm(text, INVITE_PREFIX, _INVITE_HINT))
    try:
        pool_id, cs_pub, invite, secret = reader.take(16), reader.take(32), reader.take(16), reader.take(16)
        addresses, pin = reader.places()
        pool_name = reader.text()
        reader.end()
    except ValueError as error:
        raise InviteRefused(f"The invite is damaged: {error}", _INVITE_HINT) from error
    return Invite(
        addresses=addresses,
        pool_id=pool_id,
        cs_pub=cs_pub,
        invite_id=ids.named("i", invite),
        secret=secret,
        pin=pin,
        pool_name=clean(pool_name, NAME_LIMIT),
    )


def parse_client_line(text: str) -> ClientLine:
    """Read a client line; raises like `parse_invite`."""
    reader = _Reader(_disarm(text, CLIENT_PREFIX, _CLIENT_HINT))
    try:
        addresses, pin = reader.places()
        token = reader.text()
        reader.end()
    except ValueError as error:
        raise InviteRefused(f"The line is damaged: {error}", _CLIENT_HINT) from error
    try:
        token_id(token)
    except Unauthorized as error:
        raise InviteRefused("The line holds no token", _CLIENT_HINT) from error
    return ClientLine(addresses=addresses, pin=pin, token=token)


def pasted(text: str) -> str:
    """A line without what copying adds: white space, what cannot be seen, and quotes around it.

    Mail and chats put them there, and so do files of variables, whose readers differ in whether they take them off.
    """
    return UNSAFE.sub("", "".join(text.split())).strip(AROUND)


def lacks_its_end(text: str) -> bool:
    """Whether it begins as an invite or a client's line does, and more of it must follow."""
    line = pasted(text).upper()
    for prefix in (INVITE_PREFIX, CLIENT_PREFIX):
        if line.startswith(prefix):
            try:
                _disarm(text, prefix, "")
            except InviteRefused as error:
                return error.detail == _CUT_OFF
    return False


def secret_hash(secret: bytes) -> bytes:
    """BLAKE2b-256 of an invite's secret: all that the coordinator keeps of it."""
    return hashlib.blake2b(secret, digest_size=32).digest()


# ---- client tokens ---------------------------------------------------------------------------------------------------


def new_token(entropy: Callable[[int], bytes]) -> tuple[str, str]:
    """Make (id, token): `mgt_`, 8 characters that name it, `_`, 43 that are secret (256 bits, base64url)."""
    id = ids.encode(int.from_bytes(entropy(5), "big"), 8).lower()
    return id, f"mgt_{id}_{base64.urlsafe_b64encode(entropy(32)).rstrip(b'=').decode()}"


def token_id(token: str) -> str:
    """The public part of a token; raises `Unauthorized` when it is not shaped like one."""
    shaped = _TOKEN.fullmatch(token)
    if shaped is None:
        raise Unauthorized(
            "That is not a token of MoreGPU", "A token begins with mgt_; `moregpu token create` makes one"
        )
    return shaped[1]


def token_hash(token: str) -> bytes:
    """BLAKE2b-256 of the whole token: all that the coordinator keeps of it."""
    return hashlib.blake2b(token.encode(), digest_size=32).digest()


# ---- armour ----------------------------------------------------------------------------------------------------------

_CUT_OFF = "The line is cut off: its end is missing"
_INVITE_HINT = "Copy the whole line that `moregpu invite` printed, or ask for a new one"
_CLIENT_HINT = "Copy the whole line that `moregpu token create` printed, or make a new one"


def _armour(prefix: str, fields: bytes) -> str:
    body = len(fields).to_bytes(2, "big") + fields
    body += _checksum(prefix, body)
    characters = -(-len(body) * 8 // 5)
    return prefix + ids.encode(int.from_bytes(body, "big") << 5 * characters - 8 * len(body), characters)


def _disarm(text: str, prefix: str, hint: str) -> bytes:
    if len(text) > MAX_LINE_CHARACTERS:
        raise InviteRefused("That is far longer than any such line", hint)
    line = pasted(text).upper()
    _check_kind(line, prefix, hint)
    characters = line[len(prefix) :].replace("-", "")
    try:
        number = ids.decode(characters)
    except ValueError as error:
        raise InviteRefused(f"The line holds a character that none can hold: {error}", hint) from error
    spare = 5 * len(characters) % 8
    body = (number >> spare).to_bytes(5 * len(characters) // 8, "big")
    expected = 2 + int.from_bytes(body[:2], "big") + CHECKSUM_BYTES
    if len(body) < 2 or len(body) < expected:
        raise InviteRefused(_CUT_OFF, hint)
    content, checksum = body[:-CHECKSUM_BYTES], body[-CHECKSUM_BYTES:]
    spare_set = spare >= 5 or number & (1 << spare) - 1  # a whole character too many, or bits that stand for nothing
    if len(body) > expected or spare_set or checksum != _checksum(prefix, content):
        raise InviteRefused("The line's checksum is wrong: a character was changed, added or left out", hint)
    return content[2:]


def _check_kind(line: str, prefix: str, hint: str) -> None:
    if line.startswith(prefix):
        return
    if line.startswith(INVITE_PREFIX):
        raise InviteRefused("That is a worker's invite, not a client's line", "`moregpu join` takes it")
    if line.startswith(CLIENT_PREFIX):
        raise InviteRefused("That is a client's line, not a worker's invite", "`moregpu login` takes it")
    if line.startswith("MGT_"):
        raise InviteRefused("That is a bare token, not such a line", hint)
    family = prefix[: prefix.index("1-")]
    version, dash, _ = line.removeprefix(family).partition("-")
    if line.startswith(family) and dash and version.isdecimal():
        raise VersionMismatch(f"The line is of version {version[:9]}; this program reads version 1", "Update MoreGPU")
    raise InviteRefused(f"Such a line begins with {prefix}", hint)


def _checksum(prefix: str, body: bytes) -> bytes:
    return blake3(prefix.encode() + body).digest(CHECKSUM_BYTES)


# ---- fields ----------------------------------------------------------------------------------------------------------


def _fixed(value: bytes, length: int) -> bytes:
    if len(value) != length:
        raise ValueError(f"a field takes {length} bytes, not {len(value)}")
    return value


def _id_bytes(id: str) -> bytes:
    if not id.startswith("i-") or len(id) != 2 + ids.LENGTH:
        raise ValueError("an invite's id is i- and 26 characters")
    return ids.decode(id[2:]).to_bytes(16, "big")


def _text(value: str) -> bytes:
    data = value.encode()
    if len(data) > 255:
        raise ValueError("a text of a line takes at most 255 bytes")
    return bytes((len(data),)) + data


def _places(addresses: tuple[str, ...], pin: bytes) -> bytes:
    if not 1 <= len(addresses) <= MAX_ADDRESSES:
        raise ValueError(f"a line holds 1 to {MAX_ADDRESSES} addresses, not {len(addresses)}")
    for address in addresses:
        split_address(address)
    if len(pin) not in (0, 32):
        raise ValueError("a pin has 32 bytes")
    return bytes((len(addresses),)) + b"".join(map(_text, addresses)) + bytes((len(pin),)) + pin


def split_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port" or "[v6]:port"; raises `ValueError`."""
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError("an address is host:port")
    if not host or not host.isascii() or not all(character.isalnum() or character in ".-_:%" for character in host):
        raise ValueError("an address holds a host that none can have")
    return host, int(port)


class _Reader:
    """Takes fields off a body; `ValueError` where they do not fit."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, length: int) -> bytes:
        part = self._body[self._at : self._at + length]
        if len(part) != length:
            raise ValueError("a field is missing")
        self._at += length
        return part

    def text(self) -> str:
        return self.take(self.take(1)[0]).decode()

    def places(self) -> tuple[tuple[str, ...], bytes]:
        count = self.take(1)[0]
        if not 1 <= count <= MAX_ADDRESSES:
            raise ValueError("it names no address, or too many")
        addresses = tuple(self.text() for _ in range(count))
        for address in addresses:
            split_address(address)
        pin = self.take(self.take(1)[0])
        if len(pin) not in (0, 32):
            raise ValueError("its pin has the wrong length")
        return addresses, pin

    def end(self) -> None:
        if self._at != len(self._body):
            raise ValueError("something follows its last field")
