"""`moregpu submit script train.py`: a script on the pool, once for each payload; what it prints is shown at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import typer

from moregpu.cli.reach import reach
from moregpu.cli.show import print_json, say
from moregpu.client.functions.options import CallOptions
from moregpu.client.functions.scripts import options_of, script_spec
from moregpu.errors import InvalidRequest, JobFailed, MoreGPUError

MAX_SCRIPT_BYTES = 1 << 20


def submit_script(
    path: str, payloads: str | None, given: dict[str, Any], *, wait: bool, as_json: bool, profile: str | None
) -> None:
    """Run it. Each result is printed as one line of JSON; a call that failed says so on stderr, and the exit is 5."""
    text, values = read_script(path), read_payloads(payloads)
    options = options_of(text, cast("CallOptions", {name: value for name, value in given.items() if value is not None}))
    name = Path(path).name
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
            if not as_json:
                typer.echo(_shown(results[-1]))
        if as_json:
            print_json({"results": [json.loads(_shown(result)) for result in results], "failures": failures})
        for failure in failures:
            say("{}", failure, err=True)
        if failures:
            raise JobFailed(f"{len(failures)} of {len(futures)} calls failed", "their lines say how")


def read_script(path: str) -> str:
    """A script's text; raises `InvalidRequest`."""
    try:
        content = Path(path).read_bytes()
        if len(content) > MAX_SCRIPT_BYTES:
            raise InvalidRequest(f"{path} holds {len(content)} bytes; a script may have {MAX_SCRIPT_BYTES}")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the script cannot be read: {error}", "moregpu submit script train.py") from error


def read_payloads(path: str | None) -> list[Any]:
    """Payloads of a JSON file: each item of a list is one; without a file there is one, nothing."""
    if path is None:
        return [None]
    try:
        read = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the payloads cannot be read: {error}", "a JSON file with a list") from error
    return read if isinstance(read, list) else [read]


def _shown(result: Any) -> str:
    """JSON in plain ASCII: nothing in it is obeyed by a terminal."""
    try:
        text = json.dumps(result)
    except (TypeError, ValueError):
        text = json.dumps(repr(result))
    return text.replace("\x7f", "\\u007f")
