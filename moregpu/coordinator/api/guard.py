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


def check_origin(headers: Mapping[str, str], hosts: frozenset[str]) -> None:
    """Raise `Forbidden` unless Host names this coordinator, and Origin, where there is one, is this coordinator."""
    host = headers.get("host", "")
    if host_of(host) not in hosts:
        raise Forbidden(
            f"this coordinator is not called {host[:80]!r}",
            "use an advertised name; `moregpu serve --advertise NAME` adds one",
        )
    origin = headers.get("origin")
    if origin is not None and not _same(origin, host):
        raise Forbidden(
            f"pages of {origin[:80]!r} may not call this coordinator", "browsers' pages have no business here"
        )
    site = headers.get("sec-fetch-site", "none").lower()
    if site not in ("none", "same-origin"):
        raise Forbidden("a page of another site may not call this coordinator", "open the address yourself")


def _same(origin: str, host: str) -> bool:
    """Whether an origin is the coordinator that Host names: same name and port, by TLS."""
    try:
        parts = urlsplit(origin)
        return parts.scheme == "https" and parts.netloc.lower() == host.strip().lower()
    except ValueError:
        return False
