"""Which pool, how to reach it, and as whom: arguments, then the environment, then a profile."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import msgspec

from moregpu.errors import InvalidRequest, NotConfigured, Unauthorized
from moregpu.platform.paths import LOCAL_PROFILE, load_profile, profile_names
from moregpu.platform.secrets import TokenStore
from moregpu.wire.invite import AROUND, parse_client_line, pasted, split_address

DEFAULT_PORT = 8787
URL_VARIABLES = ("MOREGPU_URL", "MOREGPU_BASE", "MOREGPU_SERVER")
TOKEN_VARIABLE = "MOREGPU_ADMIN_TOKEN"  # noqa: S105 — the name of a variable
CLIENT_LINE = "MGPUC1-"
NO_PROFILE = (
    "start a pool here: moregpu serve; or reach somebody's: moregpu login, with the line that its admin made by"
    " `moregpu token create`"
)


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one pool as one principal. Its `repr` hides the token."""

    addresses: tuple[str, ...]  # "host:port", tried in order
    token: str
    pin: bytes = b""  # SHA-256 of the certificate; empty: the system store verifies

    def __repr__(self) -> str:
        return f"Access({', '.join(self.addresses)}, {'pinned' if self.pin else 'system store'})"


def find_access(
    url: str | None = None, token: str | None = None, *, profile: str | None = None, pin: str | None = None
) -> Access:
    """Find the pool. `token` is a token or an `MGPUC1-` line, which names addresses and pin itself.

    Order: arguments, `MOREGPU_URL` (or `MOREGPU_BASE`, `MOREGPU_SERVER`) with `MOREGPU_ADMIN_TOKEN`, the profile that
    is asked for, the profile `local` that `moregpu serve` saves. Raises `NotConfigured` when none of them is there,
    `InvalidRequest` for a URL or line that is not one.
    """
    if profile is not None and url is None and token is None:
        return _from_profile(profile)
    url = url or next((os.environ[name] for name in URL_VARIABLES if os.environ.get(name)), None)
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and pasted(token).upper().startswith(CLIENT_LINE):
        line = parse_client_line(token)
        return Access(addresses=(address_of(url),) if url else line.addresses, token=line.token, pin=line.pin)
    if url is not None and token is not None:
        return Access(addresses=(address_of(url),), token=_token(token), pin=_pin(pin))
    if url is not None:
        known = _profile_for(address_of(url))
        if known is not None:
            return known
        raise NotConfigured(
            f"there is no token for {url}",
            f"set {TOKEN_VARIABLE}, or let `moregpu login` save a line; in Python: token=",
        )
    if token is not None:
        raise NotConfigured("a bare token does not say where the pool is", f"set {URL_VARIABLES[0]} as well")
    return _from_profile(LOCAL_PROFILE)


def address_of(url: str) -> str:
    """`host:port` of a URL or a bare host. Every scheme means TLS here: a token never travels in the clear."""
    text = url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"moregpu://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(
            f"{_without_secrets(url)!r} is no address: {error}", "expected https://host:port"
        ) from error
    if not host or parts.username or parts.password:
        raise InvalidRequest(f"{_without_secrets(url)!r} is no address", "expected https://host:port, without a user")
    if parts.scheme not in ("moregpu", "https", "http", "wss", "ws"):
        raise InvalidRequest(f"{parts.scheme}:// is not spoken here", "expected https://host:port")
    if port is None:
        port = DEFAULT_PORT if parts.scheme == "moregpu" else 443
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        split_address(address)
    except ValueError as error:
        raise InvalidRequest(
            f"{_without_secrets(url)!r} is no address: {error}", "expected https://host:port"
        ) from error
    return address


def _from_profile(name: str) -> Access:
    """The access that a profile describes."""
    profile = load_profile(name)
    if profile is None:
        known = profile_names()
        hint = f"profiles here: {', '.join(known)}" if known else NO_PROFILE
        raise NotConfigured(f"no pool is set up here (there is no profile {name!r})", hint)
    token = profile.token or (TokenStore().get(profile.token_ref) if profile.token_ref else None)
    if not token:
        raise NotConfigured(
            f"the profile {name!r} has no token any more",
            "on the coordinator's machine: moregpu token create --local",
        )
    if token.upper().startswith(CLIENT_LINE):
        token = parse_client_line(token).token
    return Access(addresses=(address_of(profile.url),), token=token, pin=_pin(profile.pin))


def _profile_for(address: str) -> Access | None:
    """The first profile that leads to this address."""
    for name in profile_names():
        profile = load_profile(name)
        if profile is not None and address_of(profile.url) == address:
            return _from_profile(name)
    return None


def _token(text: str) -> str:
    """A token as a header holds it, without the line breaks and quotes of a copied one. Says nothing of what it is."""
    token = "".join(text.split()).strip("\ufeff" + AROUND)  # what stands inside it is refused, and not made a token
    if not (token.isascii() and token.isprintable()):
        raise Unauthorized("the token holds characters that none has", "copy it whole, and nothing beside it")
    return token


def _pin(text: str | None) -> bytes:
    """A pin in hex, with or without colons."""
    if not text:
        return b""
    try:
        pin = bytes.fromhex(text.replace(":", ""))
    except ValueError as error:
        raise InvalidRequest("the pin is not hexadecimal", "expected the SHA-256 of the certificate") from error
    if len(pin) != 32:
        raise InvalidRequest(f"the pin has {len(pin)} bytes, not 32", "expected the SHA-256 of the certificate")
    return pin


def _without_secrets(url: str) -> str:
    """A URL as it may be shown: whatever stood before an @ is gone."""
    head, _, tail = url[:200].rpartition("@")
    return f"…@{tail}" if head else tail
