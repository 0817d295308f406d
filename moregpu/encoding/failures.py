"""What a call raised, as data; and the exception again where it is caught.

An exception comes back as itself where its class is built in, or loaded already on the other side: the class is looked
up, and no constructor but a built-in one is called. Otherwise it is a `RemoteError` with the class's name and the text.
"""

from __future__ import annotations

import builtins
import linecache
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from moregpu.encoding.layout import Malformed, Unencodable
from moregpu.encoding.reading import decode, loaded_class
from moregpu.encoding.writing import Buffers, encode

Cause = Literal["raised", "exited", "crashed", "timeout", "memory", "unencodable", "refused"]
"""raised: the function raised. exited: it ended the process. crashed: a signal ended it. timeout, memory: it outgrew
its limit. unencodable: its result cannot travel. refused: it could not be called (not importable, another Python)."""

MAX_TEXT = 100_000
MAX_MEMBERS_TEXT = 2_000
"""Of the traceback of one in a group, which that of the group holds already."""

MAX_MEMBERS = 100
MAX_GROUPS = 8
"""Of a group, and inside one another; of a larger one class and text are told."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call has no result."""

    cause: Cause
    type: str = ""  # "module:qualified name" of the exception
    text: str = ""  # its str()
    traceback: str = ""
    notes: tuple[str, ...] = ()
    value: bytes = b""  # encoded {"args": (…), "vars": {…}, "kept": {…}}; "lacks": True where that is not all
    members: tuple[Failure, ...] = ()  # of a group: what is in it


class RemoteError(Exception):
    """A call failed and no exception class here says how: `cause` does, and `type` names the remote class."""

    def __init__(self, text: str, *, cause: str = "raised", type: str = ""):
        super().__init__(text)
        self.cause = cause
        self.type = type


class RemoteTraceback(Exception):
    """The `__cause__` of what a call raised: the traceback, as it was printed there, with lines of files of here."""

    def __str__(self) -> str:
        return f"\n\n{shown(_with_lines(self.args[0]))}"


def shown(text: str) -> str:
    """Text of a stranger's as people may see it, its lines kept: what could steer a terminal is spelt out."""
    return _STEERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _with_lines(text: str) -> str:
    """A traceback with the lines that it names: no worker has the files that functions came from."""
    # Who wrote it is a stranger: no file is opened that this program has not loaded as code.
    # Nor is a module asked for what it lacks: some import themselves then.
    held = [getattr(module, "__dict__", {}) for module in [*sys.modules.values()]]
    files = {names.get("__file__") for names in held} | linecache.cache.keys()
    lines = text.splitlines(keepends=True)
    for place in range(len(lines) - 1, -1, -1):
        found = _PLACE.match(lines[place])
        if found is None or found["file"] not in files:
            continue
        is_there = place + 1 < len(lines) and lines[place + 1].startswith(f"{found['indent']}  ")
        code = "" if is_there else linecache.getline(found["file"], int(found["line"])).strip()
        if code:
            lines.insert(place + 1, f"{found['indent']}  {code}\n")
    return "".join(lines)


def describe(error: BaseException, *, cause: Cause = "raised", skip: int = 0, depth: int = 0) -> Failure:
    """Describe a caught exception; `skip` leaves out that many outer frames of the traceback.

    `depth` says in how many groups it is.
    """
    kind = type(error)
    frames = error.__traceback__
    for _ in range(skip):
        frames = frames.tb_next if frames is not None else None
    text = "".join(traceback.format_exception(kind, error, frames))
    value = _encoded(_arguments(error), _variables(error), _kept(error))
    return Failure(
        cause=cause,
        type=f"{kind.__module__}:{kind.__qualname__}",
        text=_text(error)[:MAX_TEXT],
        traceback=text[-(MAX_TEXT if not depth else MAX_MEMBERS_TEXT) :],
        notes=tuple(str(note)[:1000] for note in getattr(error, "__notes__", ())[:20]),
        value=value if len(value) <= 16 << 20 else b"",
        members=_members(error, depth),
    )


def _encoded(arguments: tuple[Any, ...], variables: dict[str, Any], kept: dict[str, Any]) -> bytes:
    """What makes the exception again. Of what cannot travel its text does: who catches the class shall find it."""
    try:
        return b"".join(encode({"args": arguments, "vars": variables, "kept": kept}))
    except (Unencodable, ValueError, RecursionError):
        pass
    try:
        there = {name: value for name, value in variables.items() if _travels(value)}
        told = tuple(value if _travels(value) else repr(value)[:MAX_MEMBERS_TEXT] for value in arguments)
        return b"".join(encode({"args": told, "vars": there, "kept": kept, "lacks": True}))
    except Exception:  # noqa: BLE001  (a `__repr__` of somebody's own may raise anything)
        return b""


def _travels(value: Any) -> bool:
    try:
        encode(value)
    except (Unencodable, ValueError, RecursionError):
        return False
    return True


def packed(failure: Failure) -> Buffers:
    """A failure as a record's content."""
    return [_ENCODE(failure)]


def unpacked(content: bytes | memoryview) -> Failure:
    """The failure in a record's content; raises `Malformed`."""
    try:
        return _DECODE(content)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(f"not a failure: {error}") from error


def rebuilt(failure: Failure, *, where: str = "", types: Mapping[str, type] | None = None) -> BaseException:
    """The exception to raise: itself where that can be; the remote traceback is its cause, `where` becomes a note."""
    error = _itself(failure, types) if failure.cause == "raised" else None
    if error is None:
        name = failure.type.partition(":")[2]
        text = f"{name}: {failure.text}" if name and failure.cause == "raised" else failure.text
        error = RemoteError(shown(text), cause=failure.cause, type=shown(failure.type))
    for note in (*failure.notes, where):
        if note:
            error.add_note(shown(note))
    if failure.traceback:
        error.__cause__ = RemoteTraceback(failure.traceback)
    return error


def _itself(failure: Failure, types: Mapping[str, type] | None) -> Exception | None:
    kind: Any = _class_of(failure.type, types)
    if kind is None or not failure.value:
        return None
    try:
        held = decode(failure.value, types=types)
        # Python prints an uncaught exception's own words as they are, and who wrote them is a stranger.
        arguments: tuple[Any, ...] = tuple(shown(each) if isinstance(each, str) else each for each in held["args"])
        variables = held["vars"]
        # A class of somebody's own may do anything in its constructor; what it would have set is in `vars`.
        own = kind.__module__ != builtins.__name__
        if issubclass(kind, ExceptionGroup):
            arguments = (*arguments, [rebuilt(member, types=types) for member in failure.members])
        error = kind.__new__(kind, *arguments) if own else kind(*arguments)
        if own:
            error.args = arguments
        for name, value in variables.items():
            if not hasattr(BaseException, name) and not name.startswith("__"):  # as `_variables` gives them
                error.__dict__[name] = value
        if isinstance(error, ImportError):
            for name, value in held.get("kept", {}).items():
                if name in _KEPT_OF_IMPORTS and (value is None or isinstance(value, str)):
                    vars(ImportError)[name].__set__(error, value and shown(value))
        if held.get("lacks"):
            str(error)  # it may need what did not travel: then its text is told as it was there
        return error
    except Exception:  # noqa: BLE001  (whatever a stranger made up: its text is told all the same)
        return None


def _class_of(name: str, types: Mapping[str, type] | None) -> type[Exception] | None:
    kind = loaded_class(name, types or {})
    if kind is None or not issubclass(kind, Exception) or name in _OF_THE_CALLER:
        return None
    # `__new__` of a stranger's choice is code too: only where nobody wrote one.
    plain = kind.__module__ == builtins.__name__ or kind.__new__ in _BUILT_IN_NEW
    return kind if plain else None


_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and newline (ESC and C1 begin a terminal's commands), and what turns text around."""

_PLACE = re.compile(r'(?P<indent>[ |]+)File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9})(, in .*)?$')
"""Where a traceback says where it was; of a group it stands behind bars."""

_OF_THE_CALLER = ("builtins:StopIteration", "builtins:StopAsyncIteration", "concurrent.futures._base:CancelledError")
"""What generators, loops and futures say themselves: from elsewhere it would end the caller's own, or never arrive."""

_BUILT_IN_NEW = {
    kind.__new__ for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)
}
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Failure).decode


_KEPT_OF_IMPORTS = ("name", "path")


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """What makes it again: an OSError keeps its files' names apart, and what is in a group is told beside it."""
    if isinstance(error, BaseExceptionGroup):
        return (error.message,)
    if isinstance(error, OSError) and error.filename is not None:
        second = () if error.filename2 is None else (None, error.filename2)
        return (*error.args[:2], error.filename, *second)
    return error.args


def _kept(error: BaseException) -> dict[str, Any]:
    """What a built-in class keeps neither among its arguments nor in `vars`."""
    return {name: getattr(error, name) for name in _KEPT_OF_IMPORTS} if isinstance(error, ImportError) else {}


def _members(error: BaseException, depth: int) -> tuple[Failure, ...]:
    if not isinstance(error, BaseExceptionGroup) or depth >= MAX_GROUPS or len(error.exceptions) > MAX_MEMBERS:
        return ()
    return tuple(describe(member, depth=depth + 1) for member in error.exceptions)


def _variables(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if not name.startswith("__")}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001  (a user's `__str__` may raise anything)
        return f"<{type(error).__name__}, whose text raised {type(second).__name__}>"
