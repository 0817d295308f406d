"""Doors to sealed blobs: upload with resume, download with Range.

A client's token reads what it uploaded or what its jobs refer to; a worker's blob token (from `Welcome`) reads what its
live leases name and writes their outputs. Everything else is 404, existing or not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import msgspec

from moregpu.blobs.local import Reader, Upload
from moregpu.coordinator.api.ask import Answer, Ask, Stream
from moregpu.coordinator.api.problems import PROBLEM_JSON, NotSatisfiable, problem
from moregpu.coordinator.authority import bearer_of
from moregpu.coordinator.protocol import BlobRight
from moregpu.coordinator.quotas import refuse_bytes
from moregpu.coordinator.store.protocol import BlobRow
from moregpu.errors import Conflict, Forbidden, InvalidRequest, NotFound, TooLarge

T = TypeVar("T")

PIECE_BYTES = 1 << 20
"""Bytes that are written, or read, in one visit to a thread."""
SMALL_BYTES = 64 * 1024
"""Below, hashing and writing take less than the visit."""
MIN_SEALED_BYTES = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


async def create(ask: Ask) -> Answer:
    """Take a sealed blob whose name the sender does not know yet: 201 with its digest."""
    principal, right = await _right(ask, "")
    total = ask.require_length()
    await _check_size(ask, total, principal, right)
    upload = ask.services.blobs.begin(principal, None, total)
    try:
        await _take(ask, upload, total, principal)
        digest = await _run(ask, upload.finish)
    except BaseException:
        upload.abort()
        raise
    await _keep(ask, digest, principal)
    return ask.answer({"digest": digest, "sealed_bytes": total}, 201)


async def put(ask: Ask) -> Answer:
    """Take a named blob, or its next part (`?offset=`, `Upload-Length`); what came stays when the link drops.

    With `Upload-Here` no bytes come: they are in a file beside the blobs, which becomes the blob.

    201 when it is complete; 200 with the offset while parts are missing; 409 with the offset to go on from.
    """
    digest = _digest(ask)
    principal, right = await _right(ask, digest)
    length = ask.require_length()
    offset = int(ask.number("offset", 0, 0, 1 << 50))
    total = _total(ask, offset + length)
    await _check_size(ask, total, principal, right, digest)
    if offset + length > total:
        raise InvalidRequest(f"offset {offset} and {length} bytes are more than the {total} declared")
    if await _complete(ask, digest, principal, total):
        return ask.answer({"digest": digest, "sealed_bytes": total}, 201)
    if (left := ask.headers.get("upload-here")) is not None:
        # A file of this machine's and user's (`moregpu.blobs.nearby`): whoever names it could write into the folder.
        await _run(ask, lambda: ask.services.blobs.take_over(left, digest, total))
        await _keep(ask, digest, principal)
        return ask.answer({"digest": digest, "sealed_bytes": total}, 201)
    # Going on with an earlier upload hashes again what is there: up to the whole blob, so not on the loop.
    upload = await _run(ask, lambda: ask.services.blobs.begin(principal, digest, total))
    if upload.offset != offset:
        upload.pause()
        return _go_on_from(upload.offset, f"{upload.offset} bytes are here, not {offset}")
    try:
        await _take(ask, upload, length, principal)
        if upload.offset < total:
            at = upload.offset
            upload.pause()
            return ask.answer({"offset": at}, 200, ((b"upload-offset", str(at).encode()),))
        await _run(ask, upload.finish)
    except BaseException:
        upload.pause()
        raise
    await _keep(ask, digest, principal)
    return ask.answer({"digest": digest, "sealed_bytes": total}, 201)


async def head(ask: Ask) -> Answer:
    """Length of a blob; of the caller's own partial upload its offset, with 404."""
    digest = _digest(ask)
    principal, right = await _right(ask, digest)
    size = ask.services.blobs.size(digest) if right.read else None
    if size is not None:
        return Answer(
            media_type="application/octet-stream",
            headers=((b"content-length", str(size).encode()), (b"accept-ranges", b"bytes")),
        )
    at = ask.services.blobs.offset(principal, digest)
    headers = ((b"upload-offset", str(at).encode()),) if at is not None else ()
    return Answer(status=404, media_type="application/octet-stream", headers=headers)


async def get(ask: Ask) -> Stream:
    """The sealed bytes, or a Range of them."""
    digest = _digest(ask)
    principal, right = await _right(ask, digest)
    if not right.read or ask.services.blobs.size(digest) is None:
        raise _not_here(digest)
    reader = ask.services.blobs.open_reader(digest)
    size = reader.size_bytes
    try:
        span = parse_range(ask.headers.get("range", ""), size)
    except NotSatisfiable:
        reader.close()
        raise
    start, stop = span if span is not None else (0, size)
    worker = principal if _is_worker(principal) else ""
    headers: tuple[tuple[bytes, bytes], ...] = ((b"accept-ranges", b"bytes"), (b"etag", f'"{digest}"'.encode()))
    if span is not None:
        headers += ((b"content-range", f"bytes {start}-{stop - 1}/{size}".encode()),)
    return Stream(
        parts=_read(ask, reader, start, stop, worker),
        length=stop - start,
        status=200 if span is None else 206,
        headers=headers,
    )


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Half-open bytes of a Range header; None for what RFC 9110 says to ignore (several ranges, other units).

    Raises `NotSatisfiable`.
    """
    match = _RANGE.fullmatch(text.strip().replace(" ", ""))
    if match is None or match.group(1) == match.group(2) == "":
        return None
    first, last = match.groups()
    if first == "":
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < start:
            return None
    if not start < stop:
        raise NotSatisfiable(f"the blob has {size} bytes", f"bytes 0-{size - 1}")
    return start, stop


# ---- rights ----------------------------------------------------------------------------------------------------------


async def _right(ask: Ask, digest: str) -> tuple[str, BlobRight]:
    """(principal, right) of the bearer; raises `Unauthorized` and `Forbidden` (viewers have none)."""
    services = ask.services
    bearer = bearer_of(ask.headers.get("authorization", ""))
    worker = await services.desk.blob_right(bearer, digest) if bearer else None
    if worker is not None:
        return worker
    who = await services.authority.principal(ask.headers.get("authorization", ""), ask.peer)
    if who.scope == "compat":
        raise Forbidden("this token is for the calls of MoreGPU 1.x alone", "a token of scope all does that")
    if who.role == "viewer":
        raise Forbidden("viewers see no inputs and outputs", "a token of role submitter does")
    readable = bool(digest) and (who.role == "admin" or await services.desk.store.blob_readable(digest, who.id))
    return who.id, BlobRight(
        read=readable, write_bytes=services.settings.limits.max_blob_bytes, left_bytes=services.desk.bytes_left(who)
    )


async def _check_size(ask: Ask, total: int, principal: str, right: BlobRight, digest: str = "") -> None:
    if right.write_bytes <= 0:
        raise NotFound("no such blob is expected from you", "upload only what a live lease is to produce")
    if total > right.write_bytes:
        raise TooLarge(f"{total:,} bytes; at most {right.write_bytes:,} are expected here")
    left = right.left_bytes
    if left is not None:  # what was begun and never ended lies on the disk as well
        left -= await _run(ask, lambda: ask.services.blobs.unfinished_bytes(principal, digest))
    if left is not None and _is_worker(principal):
        await ask.services.desk.admit_upload(principal, total, left, digest)
    else:
        refuse_bytes(total, left)
    if total < MIN_SEALED_BYTES:
        raise InvalidRequest(f"a sealed blob has at least {MIN_SEALED_BYTES} bytes, not {total}")


def _is_worker(principal: str) -> bool:
    return principal.startswith("w-")


def _digest(ask: Ask) -> str:
    digest = ask.params["digest"]
    if _DIGEST.fullmatch(digest) is None:
        raise _not_here(digest[:64])
    return digest


def _go_on_from(offset: int, detail: str) -> Answer:
    """A problem document that also names the offset to go on from."""
    document = msgspec.to_builtins(problem(Conflict(detail, "go on from the offset")))
    return Answer(
        status=409,
        body=msgspec.json.encode({**document, "offset": offset}),
        media_type=PROBLEM_JSON,
        headers=((b"upload-offset", str(offset).encode()),),
    )


def _not_here(digest: str) -> NotFound:
    return NotFound(f"there is no blob {digest[:12]!r}… here, or it is not yours", "upload it, or check its name")


def _total(ask: Ask, least: int) -> int:
    text = ask.headers.get("upload-length")
    if text is None:
        return least
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidRequest("Upload-Length is not a number")
    return int(text)


# ---- moving bytes ----------------------------------------------------------------------------------------------------


async def _complete(ask: Ask, digest: str, principal: str, total: int) -> bool:
    """Whether this principal's blob is here already, whole: a repeated PUT whose answer was lost."""
    if not await ask.services.desk.store.blob_readable(digest, principal):
        return False
    size = ask.services.blobs.size(digest)
    if size is not None and size != total:
        raise Conflict(f"the blob {digest[:12]}… has {size} bytes, not {total}")
    return size is not None


async def _keep(ask: Ask, digest: str, principal: str) -> None:
    """Blob durable → row → acknowledged."""
    size = ask.services.blobs.size(digest) or 0
    await ask.services.desk.store.add_blob(
        BlobRow(digest=digest, sealed_bytes=size, principal=principal, created_at=ask.services.clock.wall())
    )


async def _take(ask: Ask, upload: Upload, length: int, principal: str) -> None:
    """Write the body as it comes: one piece is written on a thread while the next one arrives."""
    pieces: list[bytes] = []
    gathered = taken = 0
    began = ask.services.clock.monotonic()
    writing: asyncio.Future[None] | None = None
    try:
        async for part in ask.body_parts():
            taken += len(part)
            if taken > length:  # the server holds senders to their Content-Length; chunked ones have none
                raise InvalidRequest(f"more than the {length} bytes that were declared")
            pieces.append(part)
            gathered += len(part)
            if gathered >= PIECE_BYTES:
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(_run(ask, _writing(upload, pieces)))
                pieces, gathered = [], 0
    finally:
        # What arrived is kept also when the link drops: the next try goes on from there.
        if writing is not None:
            await writing
        if pieces and taken <= length:
            work = _writing(upload, pieces)
            await _run(ask, work) if gathered > SMALL_BYTES else work()
    if taken != length:
        raise InvalidRequest(f"{taken} bytes came of {length}")
    if _is_worker(principal):
        ask.services.traffic.moved(principal, taken, ask.services.clock.monotonic() - began, to_worker=False)


def _writing(upload: Upload, pieces: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for piece in pieces:
            upload.write(memoryview(piece))

    return work


async def _read(ask: Ask, reader: Reader, start: int, stop: int, worker: str) -> AsyncGenerator[bytes]:
    began = ask.services.clock.monotonic()
    try:
        for at in range(start, stop, PIECE_BYTES):
            end = min(at + PIECE_BYTES, stop)
            if end - at <= SMALL_BYTES:
                yield bytes(reader.read_at(at, end))
            else:
                yield await _run(ask, _reading(reader, at, end))
        if worker:
            seconds = ask.services.clock.monotonic() - began
            ask.services.traffic.moved(worker, stop - start, seconds, to_worker=True)
    finally:
        reader.close()


def _reading(reader: Reader, start: int, stop: int) -> Callable[[], bytes]:
    return lambda: bytes(reader.read_at(start, stop))


async def _run(ask: Ask, work: Callable[[], T]) -> T:
    running: Awaitable[T] = ask.services.offload(work)
    return await running
