"""Who may come in: one browser of this user, that brought the link which the server printed.

What stands against whom:

- *Other sites in the same browser.* `Host` must name this machine (a name that was made to point here does not), and
  whatever changes something or opens a console must come from a page of ours: its `Origin` is compared, and a request
  without one is refused.
- *Other users of this machine.* They reach the port. The token is 256 random bits, good once; where Linux tells whose a
  connection is, one of another user is refused whatever it brings (`moregpu_tui.web.peers`).
- *Other servers on this machine.* Cookies are not kept apart by port: another server on 127.0.0.1 that the browser is
  lured to gets ours. So a cookie alone opens nothing: a console wants the key too, which the page keeps in its
  origin's own storage, and origins do have ports.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Literal

import msgspec

NAMES = ("127.0.0.1", "localhost")
"""What may stand in `Host`; the port is not compared, so that `ssh -L` may choose another."""

Answer = Literal["welcome", "used", "unknown"]


class Door:
    """One server's token, and the session that it is exchanged for."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self.key = secrets.token_urlsafe(32)
        self.cookie = f"moregpu-{secrets.token_hex(4)}"  # servers on other ports must not overwrite each other's
        self._session = secrets.token_urlsafe(32)
        self._used = False

    @property
    def used(self) -> bool:
        """Whether a browser has come in."""
        return self._used

    def enter(self, token: str, key: str, cookies: str) -> Answer:
        """What becomes of whoever shows this token, or the key and cookies of a session."""
        if self.knows(cookies) and self.fits(key):
            return "welcome"
        if not _same(token, self.token):
            return "unknown"
        if self._used:
            return "used"
        self._used = True
        return "welcome"

    def knows(self, cookies: str) -> bool:
        """Whether a `Cookie` header holds the session."""
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and _same(found.value, self._session)

    def fits(self, key: str) -> bool:
        """Whether it is the session's key."""
        return _same(key, self.key)

    def set_cookie(self) -> str:
        """The header that begins the session. It ends with the browser, or with this server."""
        return f"{self.cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"


class Forged(msgspec.Struct, frozen=True):
    """Why a request is none of ours."""

    why: str


def check(headers: Mapping[str, str], *, acts: bool) -> Forged | None:
    """Look at `Host`, and at `Origin` where a request `acts`: changes something, or opens a console."""
    host = headers.get("host", "")
    name, _, port = host.partition(":")
    if name not in NAMES or (port and not port.isdecimal()):
        return Forged("this server is asked for by another name than 127.0.0.1")
    origin = headers.get("origin")
    if origin is None:
        return Forged("a request that says not which page it comes from") if acts else None
    return None if origin == f"http://{host}" else Forged("a request of another site's page")


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), wanted.encode())
