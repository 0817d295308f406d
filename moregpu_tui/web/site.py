"""What the server answers: the page and its files to anybody of this user, a console to whoever came in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from moregpu_tui.web.door import Door, check
from moregpu_tui.web.look import Look
from moregpu_tui.web.session import Consoles

STATIC = Path(__file__).parent / "static"
MAX_BODY_BYTES = 1024

Ours = Callable[[tuple[str, int], tuple[str, int]], bool]

# xterm.js writes the sizes and colours of its cells as styles, so styles may be inline; nothing that a style could name
# comes from anywhere but here.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


class Enter(msgspec.Struct, forbid_unknown_fields=True):
    """What a page brings: the token of its link, the key of the session that it was in."""

    token: str = ""
    key: str = ""


class Entered(msgspec.Struct):
    """What it gets: the session's key, and how it should look before the console has drawn anything."""

    key: str
    look: Look


class Refused(msgspec.Struct):
    """Why it gets nothing: `used` or `unknown`."""

    why: str


def site(door: Door, consoles: Consoles, look: Callable[[], Look], ours: Ours) -> ASGIApp:
    """The application behind the port."""

    async def page(_request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def enter(request: Request) -> Response:
        try:
            shown = msgspec.json.decode(await _body(request), type=Enter)
        except (msgspec.DecodeError, ClientDisconnect):
            return PlainTextResponse("that is not understood\n", 400)
        answer = door.enter(shown.token, shown.key, request.headers.get("cookie", ""))
        if answer != "welcome":
            return _json(Refused(why=answer), 403)
        response = _json(Entered(key=door.key, look=look()))
        response.headers["Set-Cookie"] = door.set_cookie()
        return response

    async def console(socket: WebSocket) -> None:
        if door.knows(socket.headers.get("cookie", "")):
            await consoles.serve(socket)
        else:
            await socket.close()  # before it was accepted: 403

    routes = [
        Route("/", page, methods=["GET"]),
        Route("/enter", enter, methods=["POST"]),
        WebSocketRoute("/console", console),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return _Guard(Starlette(routes=routes), ours)


class _Guard:
    """Looks at who asks before anything else does, and puts the same headers on every answer."""

    def __init__(self, inner: ASGIApp, ours: Ours) -> None:
        self._inner = inner
        self._ours = ours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self._refusal(scope)
        if why and scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close()
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = PlainTextResponse(f"refused: {why}\n", 403) if why else self._inner
        await answer(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> str:
        client, server = scope.get("client"), scope.get("server")
        if client is None or server is None or not self._ours(tuple(client), tuple(server)):
            return "this console belongs to another user of this machine"
        acts = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        forged = check(Headers(scope=scope), acts=acts)
        return forged.why if forged else ""


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise msgspec.DecodeError("too long")
    return body


def _json(content: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
