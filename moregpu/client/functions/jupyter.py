"""`%load_ext moregpu`, then `%%pool`: a cell that runs on the pool."""

from __future__ import annotations

import ast
import io
import shlex
import tokenize
from typing import Any

from moregpu.client.functions.accelerate import default_pool
from moregpu.client.functions.executor import awaited
from moregpu.client.functions.on_workers import run_cell
from moregpu.encoding.failures import shown
from moregpu.errors import InvalidRequest

_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_NUMBERS = ("timeout", "cores", "retries")
_TEXTS = ("memory", "vram", "python", "group")


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython for `%load_ext moregpu`."""

    def pool(line: str, cell: str) -> Any:
        """Run the cell on the pool: `%%pool timeout=60 requires=numpy,pandas gpu`.

        Names that it uses are sent with it; names that it binds, or assigns a part of, come back, as far as they travel
        as data. The value of its last expression is shown, unless a semicolon ends it; of what does not travel, its
        text.
        """
        used, bound = names_of(cell)
        known = {name: shell.user_ns[name] for name in used if name in shell.user_ns and not name.startswith("__")}
        calls = default_pool().calls(allow_pickle=True, **options_of(line))  # type: ignore[arg-type]
        given, value, text = awaited(calls.submit(run_cell, cell, known, sorted(bound)))
        shell.user_ns.update(given)
        if ends_quietly(cell):
            return None
        return value if text is None else AsText(text)

    shell.register_magic_function(pool, magic_kind="cell", magic_name="pool")


def names_of(cell: str) -> tuple[set[str], set[str]]:
    """Names that a cell uses, and names that it binds at its top level."""
    tree = ast.parse(cell)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {name.id for name in names if not isinstance(name.ctx, ast.Store)}
    # What `x += 1` binds it has read before.
    used |= {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    bound: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue  # they are code: run the cell that makes them here, too
        bound |= set(filter(None, map(_bound_by, ast.walk(statement))))
    return used, bound


def _bound_by(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
        case ast.Subscript(value=held, ctx=ast.Store() | ast.Del()) | ast.Attribute(value=held, ctx=ast.Store()):
            return _name_of(held)  # `table["new"] = …` changes what it names
        case _:
            return None


def _name_of(held: ast.expr) -> str | None:
    """The name at the left of `a.b[c].d`."""
    while isinstance(held, ast.Subscript | ast.Attribute):
        held = held.value
    return held.id if isinstance(held, ast.Name) else None


def ends_quietly(cell: str) -> bool:
    """Whether a semicolon ends it: as anywhere in IPython, nothing is shown then."""
    last = ""
    for token in tokenize.generate_tokens(io.StringIO(cell).readline):
        if token.type not in _NO_CODE:
            last = token.string
    return last == ";"


class AsText:
    """A value that stayed on the worker: what its `repr` said there."""

    def __init__(self, text: str):
        self._text = shown(text)

    def __repr__(self) -> str:
        return self._text


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
