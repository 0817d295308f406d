"""Scripts on the pool: a file's text, run once for each payload.

The script finds its payload as the global `payload`, and gives back what it leaves in `result`. What it needs it says
as PEP 723 has it:

    # /// script
    # requires-python = ">=3.11"
    # dependencies = ["numpy"]
    # ///
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, cast

from blake3 import blake3

from moregpu.client.functions.call import Call
from moregpu.client.functions.options import CallOptions, Chosen, chosen
from moregpu.client.functions.program import Program
from moregpu.encoding import encode, joined
from moregpu.errors import InvalidJob
from moregpu.jobs import Tensor
from moregpu.workloads.function.spec import ARGUMENTS, PROGRAM, FunctionSpec

_BLOCK = re.compile(r"(?m)^# /// script\s*$\s((?:^#(?:| .*)$\s)+?)^# ///\s*$")
_CLAUSE = re.compile(r"(===|[=~!<>]=|[<>])\s*3(?:\.(\d+))?(?:\.(\d+|\*))?(?![.\d])")
_MINORS = range(11, 31)
"""Of Python 3, on which functions may run."""


def header_of(text: str) -> dict[str, Any]:
    """What a script's PEP 723 header says; empty without one. Raises `InvalidJob` for one that cannot be read."""
    found = _BLOCK.search(text)
    if found is None:
        return {}
    lines = [line[2:] if line.startswith("# ") else line[1:] for line in found[1].splitlines()]
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise InvalidJob(f"the script's header cannot be read: {error}", "see PEP 723") from error


def options_of(text: str, options: CallOptions) -> Chosen:
    """Options for a script: its header's, unless others are given."""
    header = header_of(text)
    said: dict[str, Any] = {}
    if isinstance(header.get("dependencies"), list):
        said["requires"] = [str(each) for each in header["dependencies"]]
    if isinstance(header.get("requires-python"), str):
        said["python"] = python_for(header["requires-python"])
    return chosen(cast("CallOptions", said | options))


def python_for(asked: str) -> str:
    """The minor version that a `requires-python` means: this one where it fits, else the oldest that does.

    Raises `InvalidJob` where none does.
    """
    found = [each.groups() for each in _CLAUSE.finditer(asked)]
    # Without a minor version (`==3.*`) it is any.
    clauses = [(how, int(named or 0), patch) for how, named, patch in found if named or how not in ("==", "===", "~=")]
    for minor in (sys.version_info.minor, *_MINORS):
        if all(_fits(minor, *clause) for clause in clauses):
            return f"3.{minor}"
    raise InvalidJob(
        f"the script asks for Python {asked}, and functions run on Python 3.{_MINORS[0]} or newer",
        "change requires-python in its header",
    )


def _fits(minor: int, how: str, named: int, patch: str | None) -> bool:
    """Whether some Python 3.`minor` fits one clause, such as `>=3.11`. Which patch a worker has nobody knows here."""
    patch = "" if patch in (None, "*") else patch
    is_part = bool(patch)
    match how:
        case "==" | "===":
            return minor == named
        case "!=":
            return is_part or minor != named
        case "~=":
            return minor == named if is_part else minor >= named
        case ">=":
            return minor >= named
        case ">":
            return minor >= named if is_part else minor > named
        case "<":  # below 3.12.0 there is no 3.12, below 3.12.1 there is one
            return minor <= named if is_part and patch.strip("0") else minor < named
        case _:
            return minor <= named


def script_calls(text: str, name: str, payloads: Sequence[Any], options: Chosen) -> list[Call]:
    """One call of the script for each payload. Raises `Unencodable`."""
    content = text.encode()
    program = Program(
        content=content, digest=blake3(content).hexdigest(), name=name, function=_only_there, form="script"
    )
    return [
        Call(program, options, encode(payload, name=f"payload {place}"), {}, {})
        for place, payload in enumerate(payloads)
    ]


def script_spec(text: str, name: str, payloads: Sequence[Any], options: Chosen) -> FunctionSpec:
    """The job that goes on alone. Its data travels inside it, so it must be small."""
    calls = script_calls(text, name, payloads, options)
    content, arguments = text.encode(), joined([buffer for call in calls for buffer in call.arguments])
    return options.spec(
        function=name,
        form="script",
        calls=tuple(call.size for call in calls),
        inputs={
            PROGRAM: Tensor(dtype="uint8", shape=(len(content),), data=content),
            ARGUMENTS: Tensor(dtype="uint8", shape=(len(arguments),), data=arguments),
        },
    )


def _only_there(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a script runs on the pool alone")
