"""`moregpu submit script train.py`: a script, or a function of it, on the pool, once for each payload.

What it prints is shown at once.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections import deque
from datetime import date, time
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

import typer

from moregpu.cli.reach import reach
from moregpu.cli.show import print_json, say
from moregpu.client.functions.options import CallOptions
from moregpu.client.functions.script_file import read_payloads, read_script
from moregpu.client.functions.scripts import options_of, script_spec
from moregpu.encoding import Unknown
from moregpu.errors import JobFailed, MoreGPUError


def submit_script(
    path: str, payloads: str | None, given: dict[str, Any], *, wait: bool, as_json: bool, profile: str | None
) -> None:
    """Run it. Each result is printed as one line of JSON; a call that failed says so on stderr, and the exit is 5."""
    script, values = read_script(path), read_payloads(payloads)
    text, name = script.text, script.name
    options = options_of(text, cast("CallOptions", {name: value for name, value in given.items() if value is not None}))
    with reach(profile) as pool:
        if not wait:
            handle = pool.submit_job(script_spec(text, name, values, options))
            print_json({"id": handle.id}) if as_json else say("{}", handle.id)
            return
        futures = pool.run_script(text, values, name=name, options=options)
        results: list[Any] = []
        failures: list[str] = []
        for place, future in enumerate(futures):
            try:
                results.append(future.result())
            except MoreGPUError:
                raise
            except Exception as error:  # noqa: BLE001  (whatever the script raised)
                results.append(None)
                failures.append(f"payload {place}: {type(error).__name__}: {error}")
                if not as_json and len(failures) == 1 and error.__cause__ is not None:
                    for line in str(error.__cause__).strip().splitlines():  # of many that fail alike one is enough
                        say("{}", line, err=True)
            if not as_json:
                typer.echo(_shown(results[-1]))
        if as_json:
            print_json({"results": [json.loads(_shown(result)) for result in results], "failures": failures})
        for failure in failures:
            say("{}", failure, err=True)
        if failures:
            raise JobFailed(f"{len(failures)} of {len(futures)} calls failed", "their lines say how")


def _shown(result: Any) -> str:
    """JSON in plain ASCII: nothing in it is obeyed by a terminal. What JSON has no word for is told as it prints."""
    try:
        text = json.dumps(result, default=_plain)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(repr(result))
    return text.replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    """What stands in JSON for a value of another kind."""
    match value:
        case Unknown():
            return value.fields
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        case set() | frozenset() | deque():
            return list(value)
        case enum.Enum():
            return value.value
        case date() | time():
            return value.isoformat()
        case _ if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a frame, by columns
            return value.to_dict("list")
        case _ if hasattr(value, "tolist"):  # arrays, NumPy's numbers, tensors, columns of frames
            return value.tolist()
        case PurePath() | Decimal() | Fraction() | UUID():
            return str(value)
        case _:
            return repr(value)
