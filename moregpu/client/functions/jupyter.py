"""`%load_ext moregpu`, then `%%pool`: a cell that runs on the pool."""

from __future__ import annotations

import ast
import shlex
from typing import Any

from moregpu.client.functions.accelerate import default_pool
from moregpu.errors import InvalidRequest

_NUMBERS = ("timeout", "cores", "retries")
_TEXTS = ("memory", "vram", "python", "group")


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython for `%load_ext moregpu`."""

    def pool(line: str, cell: str) -> None:
        """Run the cell on the pool: `%%pool timeout=60 requires=numpy,pandas gpu`.

        Names that it uses are sent with it; names that it binds come back, as far as they travel as data.
        """
        used, bound = names_of(cell)
        known = {name: shell.user_ns[name] for name in used if name in shell.user_ns and not name.startswith("_")}
        calls = default_pool().calls(allow_pickle=True, **options_of(line))  # type: ignore[arg-type]
        shell.user_ns.update(calls.submit(run_cell, cell, known, sorted(bound)).result())

    shell.register_magic_function(pool, magic_kind="cell", magic_name="pool")


def names_of(cell: str) -> tuple[set[str], set[str]]:
    """Names that a cell uses, and names that it binds at its top level."""
    tree = ast.parse(cell)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue  # they are code: run the cell that makes them here, too
        bound |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return used, bound


def options_of(line: str) -> dict[str, Any]:
    """Read the magic's line; raises `InvalidRequest`."""
    options: dict[str, Any] = {}
    for word in shlex.split(line):
        name, given, value = word.partition("=")
        if name == "gpu":
            options["gpu"] = value if given else True
        elif name == "requires" and value:
            options["requires"] = value.split(",")
        elif name in _NUMBERS and value:
            options[name] = float(value) if name == "timeout" else int(value)
        elif name in _TEXTS and value:
            options[name] = value
        else:
            raise InvalidRequest(f"%%pool does not know {word!r}", "timeout=60 requires=numpy,pandas gpu memory=4GB")
    return options


def run_cell(cell: str, known: dict[str, Any], bound: list[str]) -> dict[str, Any]:
    """Run a cell; on the worker, in the sandbox."""
    from moregpu.encoding import Unencodable, encode

    names = {"__name__": "__main__", **known}
    exec(compile(cell, "<cell>", "exec"), names)  # noqa: S102
    given: dict[str, Any] = {}
    for name in bound:
        if name in names:
            try:
                encode(names[name])
            except Unencodable:
                continue
            given[name] = names[name]
    return given
