"""The ASGI application: every request passes the guard, then its row of the table of doors."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Mapping

import msgspec
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from moregpu.coordinator.api.ask import Answer, Ask, ClientGone, Stream
from moregpu.coordinator.api.compat.doors import error_body
from moregpu.coordinator.api.guard import check_origin, check_plain
from moregpu.coordinator.api.problems import (
    PROBLEM_JSON,
    MethodNotAllowed,
    encoded,
    failed,
    problem,
    problem_headers,
)
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.api.socket import SocketAsk
from moregpu.coordinator.api.table import DOORS, SOCKETS, Door, SocketDoor, admit, admit_to_job
from moregpu.coordinator.reach import LOOPBACK_HOSTS
from moregpu.errors import Forbidden, MoreGPUError, NotFound, Unavailable
from moregpu.platform.logs import facts

log = logging.getLogger(__name__)

_NAMELESS = ("public", "bearer")
"""Doors at which no client's token was asked for."""


def build_app(services: Services, *, plain: bool = False) -> ASGIApp:
    """All doors of one coordinator. `plain`: for the port without TLS, where only tokens of scope `compat` count."""
    by_path: dict[str, dict[str, Door]] = {}
    for door in DOORS:
        by_path.setdefault(door.path, {})[door.verb] = door
    paths = {path: _Path(doors) for path, doors in by_path.items()}
    routes = [
        *(Route(path, endpoint=endpoint) for path, endpoint in paths.items()),
        *(WebSocketRoute(door.path, endpoint=_Socket(door)) for door in SOCKETS),
    ]
    router = Router(routes, redirect_slashes=False, default=_nowhere)
    straight = {path: endpoint for path, endpoint in paths.items() if "{" not in path}
    return _Guard(router, straight, services, plain=plain)


class _Guard:
    """Host and Origin first; whatever goes wrong behind becomes a problem document, and no traceback leaves."""

    def __init__(self, inner: ASGIApp, straight: Mapping[str, ASGIApp], services: Services, *, plain: bool):
        """`straight`: the doors whose path has no parts, which needs no router to be found."""
        self._inner = inner
        self._straight = straight
        self._services = services
        self._plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        ask = Ask(scope, receive, send, self._services)
        ask.plain = self._plain
        scope["moregpu.ask"] = ask
        began = time.perf_counter()
        try:
            await self._answered(ask, scope, receive, send)
        finally:
            if ask.status:
                seconds = time.perf_counter() - began
                self._services.measures.answered(ask.route, scope["method"][:7], ask.status, seconds)

    async def _answered(self, ask: Ask, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(ask.headers)
            await self._straight.get(scope["path"], self._inner)(scope, receive, send)
        except ClientGone:
            return
        except (MoreGPUError, TimeoutError) as error:
            if ask.started:  # returning in the middle makes the server close the connection, so that the cut shows
                log.warning("an answer was cut off", extra=facts(path=scope["path"][:200], why=str(error)))
            else:
                await _answer_problem(ask, error if isinstance(error, MoreGPUError) else Unavailable())
        except Exception as error:  # noqa: BLE001 — logged with its traceback; the caller gets a mark to ask about
            mark = _noted(scope)
            if not ask.started:
                await _answer_problem(ask, failed(error, mark))

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        ask = SocketAsk(scope, receive, send, self._services)
        scope["moregpu.socket"] = ask
        try:
            self._check(ask.headers)
            if self._plain:
                raise Forbidden("the port without TLS opens no WebSocket", "use the port with TLS")
            await self._inner(scope, receive, send)
        except ConnectionError:
            return
        except MoreGPUError as error:
            if not ask.answered:
                await ask.refuse(error)
            else:
                await ask.close(1008, error.title)
        except Exception:  # noqa: BLE001 — logged with its traceback
            _noted(scope)
            if not ask.answered:
                await ask.refuse(MoreGPUError("the coordinator failed at this"))
            else:
                await ask.close(1011, "the coordinator failed at this")

    def _check(self, headers: Mapping[str, str]) -> None:
        if self._plain:
            check_plain(headers)
            check_origin(headers, LOOPBACK_HOSTS, "http")
        else:
            check_origin(headers, self._services.pool.reach.hosts)


class _Path:
    """The verbs of one path."""

    def __init__(self, doors: Mapping[str, Door]):
        self._doors = doors
        self._compat = all(door.compat for door in doors.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ask: Ask = scope["moregpu.ask"]
        ask.params = scope.get("path_params", {})
        ask.compat = self._compat
        door = self._doors.get(scope["method"])
        if door is None and scope["method"] == "HEAD":
            door = self._doors.get("GET")
        if door is None:
            raise MethodNotAllowed(f"{scope['method'][:20]} is not for {scope['path'][:80]}", _verbs(self._doors))
        ask.route = door.path
        await admit(ask, door)
        if door.access in _NAMELESS:
            await _answered_by(door, ask)
            return
        who, inflight = ask.who.id, ask.services.inflight
        inflight.enter(who)
        try:
            await _answered_by(door, ask)
        finally:
            inflight.leave(who)


class _Socket:
    """One WebSocket path."""

    def __init__(self, door: SocketDoor):
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ask: SocketAsk = scope["moregpu.socket"]
        ask.params = scope.get("path_params", {})
        await admit(ask, self._door)
        if self._door.access in _NAMELESS:
            await self._door.handler(ask)
            return
        who, inflight = ask.who.id, ask.services.inflight
        inflight.enter(who)
        try:
            await self._door.handler(ask)
        finally:
            inflight.leave(who)


async def _nothing() -> AsyncGenerator[bytes]:
    """The body of an answer to HEAD."""
    for part in ():
        yield part


async def _answered_by(door: Door, ask: Ask) -> None:
    await admit_to_job(ask, door.owner)
    answer = await door.handler(ask)
    if isinstance(answer, Stream) and ask.scope["method"] == "HEAD":
        await answer.parts.aclose()
        answer = msgspec.structs.replace(answer, parts=_nothing())
    if isinstance(answer, Stream):
        await ask.stream(answer)
    else:
        await ask.reply(answer)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Paths that do not exist."""
    raise NotFound(f"there is nothing at {scope['path'][:80]!r}", "the API is under /v1")


async def _answer_problem(ask: Ask, error: MoreGPUError) -> None:
    if ask.compat:
        headers = tuple(problem_headers(error))
        await ask.reply(Answer(status=error.status, body=error_body(error), headers=headers))
        return
    await ask.reply(
        Answer(
            status=error.status,
            body=encoded(problem(error)),
            media_type=PROBLEM_JSON,
            headers=tuple(problem_headers(error)),
        )
    )


def _verbs(doors: Mapping[str, Door]) -> str:
    return "use " + ", ".join(sorted(doors))


def _noted(scope: Scope) -> str:
    """Log the exception that is being handled under a mark that the caller is told."""
    mark = secrets.token_hex(4)
    log.exception(
        "a request failed", extra=facts(mark=mark, verb=scope.get("method", "WebSocket"), path=scope["path"][:200])
    )
    return mark
