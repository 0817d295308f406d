"""Files that hold what is to run: a script, or one function of it, and the JSON of its arguments.

Nothing of a file runs here, not even its imports: its text travels, and a line that calls the function goes with it.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec

from moregpu.client.functions.options import Chosen
from moregpu.client.functions.scripts import options_of, script_spec
from moregpu.errors import InvalidRequest
from moregpu.workloads.function.spec import FunctionSpec

MAX_SCRIPT_BYTES = 1 << 20
MAX_PAYLOADS_BYTES = 16 << 20

HOW = "train.py, or train.py:function for one function of it"
HOW_PAYLOADS = "a .json file or JSON itself: each item of a list is one call"

_CALL = """

if isinstance(payload, dict):
    result = {call}(**payload){end}
elif isinstance(payload, list):
    result = {call}(*payload){end}
else:
    result = {call}(*(() if payload is None else (payload,))){end}
"""
"""A mapping is passed by name, a list in order, nothing where there is nothing, anything else alone."""


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on the pool."""

    text: str
    name: str


def read_script(place: str) -> Script:
    """The script at `FILE.py`, or one that calls a function of it: `FILE.py:function`, `module:function`.

    Raises `InvalidRequest` for a file that cannot be read or has no such function.
    """
    path, function = _path_and_function(place.strip())
    try:
        content = path.read_bytes()
        if len(content) > MAX_SCRIPT_BYTES:
            raise InvalidRequest(f"{path} holds {len(content)} bytes; a script may have {MAX_SCRIPT_BYTES}")
        text = content.decode(tokenize.detect_encoding(io.BytesIO(content).readline)[0])  # as Python itself reads it
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}", HOW) from error
    except (UnicodeDecodeError, SyntaxError) as error:
        raise InvalidRequest(f"{path} is no text", HOW) from error
    if not function:
        return Script(text=text, name=path.name)
    return Script(text=_called(text, function, path), name=f"{path.name}:{function}")


def read_payloads(given: str | None) -> list[Any]:
    """Payloads of a `.json` file, or of JSON that stands there itself: each item of a list is one.

    Without any there is one, nothing. Raises `InvalidRequest`.
    """
    text = (given or "").strip()
    if not text:
        return [None]
    try:
        read = json.loads(text if not text.endswith(".json") else _file_of(text))
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the arguments are no JSON: {error}", HOW_PAYLOADS) from error
    payloads: list[Any] = read if isinstance(read, list) else [read]
    if not payloads:
        raise InvalidRequest("the list of arguments is empty: there is nothing to call", HOW_PAYLOADS)
    return payloads


def completed(draft: FunctionSpec, place: str, payloads: str, given: AbstractSet[str]) -> FunctionSpec:
    """A job that lacks its program and its calls, with them. What is in `given` stands; of the rest the file's word."""
    script, values = read_script(place), read_payloads(payloads)
    said = options_of(script.text, {})
    made = script_spec(script.text, script.name, values, Chosen())
    return msgspec.structs.replace(
        draft,
        calls=made.calls,
        inputs=made.inputs,
        form=made.form,
        function=script.name,
        name=draft.name or script.name,
        requires=draft.requires if "requires" in given else said.requires,
        python=draft.python if "python" in given else said.python,
    )


def _path_and_function(place: str) -> tuple[Path, str]:
    before, colon, function = place.rpartition(":")
    if not (colon and len(before) > 1 and function.isidentifier()):  # one letter before it is a drive
        return Path(place), ""
    if before.endswith(".py") or Path(before).exists():
        return Path(before), function
    return Path(*before.split(".")).with_suffix(".py"), function


def _called(text: str, function: str, path: Path) -> str:
    """The text, and the lines that call one function of it. It is read as Python, and not run."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} is no Python: {error}", HOW) from error
    return _without_main(text, body) + _calling(body, function, path)


def _without_main(text: str, body: list[ast.stmt]) -> str:
    """The text, line for line, but what it does when it is started itself (`if __name__ == "__main__":`)."""
    lines = text.encode().splitlines(keepends=True)  # places in the tree count bytes
    for node in body:
        if isinstance(node, ast.If) and _asks_for_main(node.test):
            test, line = node.test, node.test.lineno - 1
            if test.end_lineno == test.lineno and test.end_col_offset is not None:
                lines[line] = lines[line][: test.col_offset] + b"False" + lines[line][test.end_col_offset :]
    return b"".join(lines).decode()


def _asks_for_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return {ast.unparse(left), ast.unparse(right)} == {"__name__", "'__main__'"}
        case _:
            return False


def _calling(body: list[ast.stmt], function: str, path: Path) -> str:
    defined = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    if function not in defined:
        names = ", ".join([*defined][:8])
        raise InvalidRequest(
            f"{path} defines no function {function!r}", f"it has: {names}" if names else "it defines none"
        )
    if "payload" in {*defined, *_assigned(body)}:
        raise InvalidRequest(f"{path} has a `payload` of its own", "that name holds the arguments: choose another")
    waited = isinstance(defined[function], ast.AsyncFunctionDef)
    return _CALL.format(call=f"__import__('asyncio').run({function}" if waited else function, end=")" * waited)


def _assigned(body: list[ast.stmt]) -> set[str]:
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign | ast.AugAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _file_of(path: str) -> str:
    try:
        if Path(path).stat().st_size > MAX_PAYLOADS_BYTES:
            raise InvalidRequest(f"{path} holds more than {MAX_PAYLOADS_BYTES >> 20} MiB of arguments", HOW_PAYLOADS)
        # Not as this system writes by itself; and PowerShell begins with a mark of the order of bytes.
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequest(f"{path} cannot be read: {reason}", HOW_PAYLOADS) from error
