"""Keeps browsers' pages out: Host and Origin are checked on every verb, WebSockets included.

A page that a person visits can make the browser call a coordinator on their network, under the page's own name when
its DNS answer is swapped for the coordinator's address (Ray: CVE-2025-62593, CVE-2026-27482). Such a request names the
page's host, or its origin; our own clients send no Origin at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from moregpu.coordinator.reach import host_of
from moregpu.errors import Forbidden

FORWARDING = (
    "forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-server", "x-real-ip",
    "cf-connecting-ip", "true-client-ip", "tailscale-user-login",
)  # fmt: skip
"""Headers that tunnels and proxies add."""


def check_plain(headers: Mapping[str, str]) -> None:
    """Raise `Forbidden` for what a proxy or tunnel forwards to the port without TLS: it is for this machine alone."""
    forwarded = [name for name in FORWARDING if name in headers]
    if forwarded:
        raise Forbidden(
            f"the port without TLS takes nothing that is forwarded ({forwarded[0]})", "forward to the port with TLS"
        )


def check_origin(headers: Mapping[str, str], hosts: frozenset[str], scheme: str = "https") -> None:
    """Raise `Forbidden` unless Host names this coordinator, and Origin, where there is one, is this coordinator."""
    host = headers.get("host", "")
    if host_of(host) not in hosts:
        raise Forbidden(
            f"this coordinator is not called {host[:80]!r}",
            "use an advertised name; `moregpu serve --advertise NAME` adds one",
        )
    origin = headers.get("origin")
    if origin is not None and not _same(origin, host, scheme):
        raise Forbidden(
            f"pages of {origin[:80]!r} may not call this coordinator", "browsers' pages have no business here"
        )
    site = headers.get("sec-fetch-site", "none").lower()
    if site not in ("none", "same-origin"):
        raise Forbidden("a page of another site may not call this coordinator", "open the address yourself")


def _same(origin: str, host: str, scheme: str) -> bool:
    """Whether an origin is the coordinator that Host names: same name and port, spoken to the same way."""
    try:
        parts = urlsplit(origin)
        return parts.scheme == scheme and parts.netloc.lower() == host.strip().lower()
    except ValueError:
        return False
