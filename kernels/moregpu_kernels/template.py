"""WGSL files with front matter, and the small template engine that renders them.

A kernel's file starts with lines `//!` of TOML: its name, what it binds, its uniforms and its options with their
defaults. The rest is WGSL with directives, each on a line of its own: `#if CONDITION` … `#elif` … `#else` … `#endif`,
`#for NAME in FIRST..LAST` (half-open) … `#endfor`, `#include NAME`, `#entry SIZE` (the head of `main`, up to the number
of the workgroup, `group`, and of the invocation in it, `lane`; `#entry SIZE with peer` adds the invocation's number in
its subgroup), and `{{expression}}` inside lines.
Expressions know integers, strings, names of options, `+ - * // %`, comparisons, `and or not` and `ceil_div(a, b)`.
Every rendered line remembers where it came from, so that a compiler's message can name the line that a person wrote.
"""

from __future__ import annotations

import ast
import hashlib
import operator
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from moregpu_kernels.errors import BadKernel

Value = int | float | str | bool
"""What an option may hold."""

FOLDER: Final = Path(__file__).parent / "wgsl"
ACCESSES: Final = ("read", "write", "read_write")
UNIFORM_TYPES: Final = {"u32": "I", "i32": "i", "f32": "f"}
STANDARD_UNIFORMS: Final = (
    ("first_group", "u32"),
    ("groups", "u32"),
    ("infinity", "f32"),
    ("nan", "f32"),
    ("zero", "u32"),
)
"""Every kernel's uniforms begin with these: the range of groups that this dispatch computes, two values that WGSL
cannot write as constants, and a 0 that compilers cannot see through."""

_FOR_LIMIT: Final = 4096
_LINES_LIMIT: Final = 50_000


@dataclass(frozen=True, slots=True)
class Binding:
    """One storage buffer. `element` is a WGSL type, or `tensor`: loaded and stored as float32 whatever its dtype."""

    name: str
    access: str
    element: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A parsed kernel file, not yet rendered."""

    name: str
    summary: str
    file: str
    bindings: tuple[Binding, ...]
    uniforms: tuple[tuple[str, str], ...]
    options: Mapping[str, Value]
    operation: Mapping[str, Any]
    lines: tuple[tuple[int, str], ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """WGSL ready to compile. `origins[i]` is (file, line) of rendered line i + 1."""

    source: str
    origins: tuple[tuple[str, int], ...]
    bindings: tuple[Binding, ...]
    uniforms: tuple[tuple[str, str], ...]


@lru_cache(maxsize=64)
def load_kernel(name: str) -> Kernel:
    """Read one of the library's own kernels.

    Raises
    ------
    BadKernel
        There is no such kernel.

    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadKernel(f"{name!r} is not a kernel's name", hint="Names are lower case letters, digits and _")
    path = FOLDER / f"{name}.wgsl"
    if not path.is_file():
        raise BadKernel(f"There is no kernel named {name!r}", hint=f"There are: {', '.join(kernel_names())}")
    return parse_kernel(path.read_text(encoding="utf-8"), path.name)


def kernel_names() -> tuple[str, ...]:
    """Names of the library's own kernels (files with front matter)."""
    return tuple(
        sorted(path.stem for path in FOLDER.glob("*.wgsl") if path.read_text(encoding="utf-8").startswith("//!"))
    )


def parse_kernel(text: str, file: str = "kernel") -> Kernel:
    """Split a kernel's text into front matter and template.

    Raises
    ------
    BadKernel
        The front matter is missing, is no TOML, or says something unknown; with the line.

    """
    lines = text.splitlines()
    head = 0
    while head < len(lines) and lines[head].startswith("//!"):
        head += 1
    try:
        matter = tomllib.loads("\n".join(line[3:].removeprefix(" ") for line in lines[:head]))
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        number = int(found.group(1)) if found else 1
        raise BadKernel(
            f"The front matter is not TOML: {error}", file=file, line=number, source_line=lines[number - 1]
        ) from None
    unknown = set(matter) - {"name", "summary", "bindings", "uniforms", "options", "operation", "source"}
    if unknown or not isinstance(matter.get("name"), str):
        what = f"unknown entries {sorted(unknown)}" if unknown else "no name"
        raise BadKernel(f"The front matter has {what}", file=file, line=1, source_line=lines[0] if lines else "")
    return Kernel(
        name=matter["name"],
        summary=str(matter.get("summary", "")),
        file=file,
        bindings=tuple(_binding(entry, file) for entry in matter.get("bindings", ())),
        uniforms=tuple(_uniform(entry, file) for entry in matter.get("uniforms", ())),
        options=dict(matter.get("options", {})),
        operation=dict(matter.get("operation", {})),
        lines=tuple((number, line) for number, line in enumerate(lines[head:], head + 1)),
        digest=hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
    )


def render(kernel: Kernel, options: Mapping[str, Value]) -> Rendered:
    """Fill a kernel's template with `options` over its defaults.

    Raises
    ------
    BadKernel
        An option or name is unknown, a directive is not closed, an expression is wrong; with the line.

    """
    unknown = set(options) - set(kernel.options) - {"dtype"}
    if unknown:
        raise BadKernel(f"{kernel.name} has no option {sorted(unknown)}", file=kernel.file)
    scope: dict[str, Value] = {"dtype": "float32", **kernel.options, **options}
    bindings = tuple(b for b in kernel.bindings if not b.condition or _evaluate(b.condition, scope, kernel.file, 0))
    uniforms = (*STANDARD_UNIFORMS, *kernel.uniforms)
    scope.setdefault("vector", 4)
    scope.update(_types(int(scope["vector"])))
    output: list[tuple[str, str, int]] = [(line, kernel.file, 0) for line in _declarations(bindings, uniforms, scope)]
    output += _expand(list(kernel.lines), scope, kernel.file, 0)
    if len(output) > _LINES_LIMIT:
        raise BadKernel(f"The rendered kernel has more than {_LINES_LIMIT} lines", file=kernel.file)
    return Rendered(
        source="\n".join(line for line, _, _ in output) + "\n",
        origins=tuple((file, number) for _, file, number in output),
        bindings=bindings,
        uniforms=uniforms,
    )


def evaluate(expression: str, scope: Mapping[str, Value]) -> Value:
    """Evaluate a template expression (used for a kernel's dispatch rule too)."""
    return _evaluate(expression, scope, "expression", 0)


# ---- front matter --------------------------------------------------------------------------------------------------


def _binding(entry: Any, file: str) -> Binding:
    found = re.fullmatch(r"([a-z_]\w*): (\w+) (.+?)(?: if (.+))?", str(entry))
    if not found or found.group(2) not in ACCESSES:
        raise BadKernel(
            f"Binding {entry!r} is not understood",
            file=file,
            hint='Write "name: read|write|read_write TYPE [if OPTION]"',
        )
    return Binding(found.group(1), found.group(2), found.group(3), found.group(4) or "")


def _uniform(entry: Any, file: str) -> tuple[str, str]:
    found = re.fullmatch(r"([a-z_]\w*): (\w+)", str(entry))
    if not found or found.group(2) not in UNIFORM_TYPES:
        raise BadKernel(
            f"Uniform {entry!r} is not understood", file=file, hint='Write "name: u32", "name: i32" or "name: f32"'
        )
    return found.group(1), found.group(2)


# ---- declarations that every kernel gets ---------------------------------------------------------------------------


def _types(vector: int) -> dict[str, Value]:
    """Names of the types that one lane's worth of data has: T floats, U unsigned, B booleans."""
    if vector == 1:
        return {"T": "f32", "U": "u32", "B": "bool"}
    return {"T": "vec4<f32>", "U": "vec4<u32>", "B": "vec4<bool>"}


def _declarations(
    bindings: tuple[Binding, ...], uniforms: tuple[tuple[str, str], ...], scope: Mapping[str, Value]
) -> Iterator[str]:
    yield "struct Uniforms { " + " ".join(f"{name}: {kind}," for name, kind in uniforms) + " }"
    yield "@group(0) @binding(0) var<uniform> u: Uniforms;"
    half = scope["dtype"] == "float16"
    for slot, binding in enumerate(bindings, 1):
        element = binding.element
        tensor = element.split("/")  # tensor, tensor/option naming its vector width, tensor/width/float32
        if tensor[0] == "tensor":
            width = int(scope[tensor[1]]) if len(tensor) > 1 and tensor[1] else int(scope["vector"])
            wide = not half or len(tensor) > 2
            element = {(True, 4): "vec4<f32>", (True, 1): "f32", (False, 4): "vec2<u32>", (False, 1): "u32"}[
                wide, width
            ]
        access = "read" if binding.access == "read" else "read_write"
        yield f"@group(0) @binding({slot}) var<storage, {access}> {binding.name}: array<{element}>;"
        if tensor[0] == "tensor":
            yield from _accessors(binding, element)
    if half and any(binding.access != "read" for binding in bindings):
        yield from _HALF


def _accessors(binding: Binding, element: str) -> Iterator[str]:
    """Functions to read and write a tensor.

    `load_` and `store_` take one vector; `quad_` and `put_quad_` four neighbours from any element on, if `left` exist.
    """
    name = binding.name
    loads = {
        "vec4<f32>": f"fn load_{name}(i: u32) -> vec4<f32> {{ return {name}[i]; }}",
        "f32": f"fn load_{name}(i: u32) -> f32 {{ return {name}[i]; }}",
        "vec2<u32>": f"fn load_{name}(i: u32) -> vec4<f32> {{ let h = {name}[i]; "
        "return vec4<f32>(unpack2x16float(h.x), unpack2x16float(h.y)); }",
        "u32": f"fn load_{name}(i: u32) -> f32 {{ return unpack2x16float({name}[i >> 1u])[i & 1u]; }}",
    }
    stores = {
        "vec4<f32>": f"fn store_{name}(i: u32, v: vec4<f32>) {{ {name}[i] = v; }}",
        "f32": f"fn store_{name}(i: u32, v: f32) {{ {name}[i] = v; }}",
        "vec2<u32>": f"fn store_{name}(i: u32, v: vec4<f32>) {{ let h = half_bits(v); "
        f"{name}[i] = vec2<u32>(h.x | (h.y << 16u), h.z | (h.w << 16u)); }}",
    }
    vectors = element.startswith("vec")
    if binding.access != "write":
        yield loads[element]
        yield f"fn quad_{name}(at: u32, left: u32) -> vec4<f32> {{"
        if vectors:
            yield f"  return load_{name}(at >> 2u);"
        else:
            yield f"  var v = vec4<f32>(load_{name}(at), 0.0, 0.0, 0.0);"
            for lane in (1, 2, 3):
                yield f"  if left > {lane}u {{ v[{lane}] = load_{name}(at + {lane}u); }}"
            yield "  return v;"
        yield "}"
    if binding.access != "read" and element in stores:
        yield stores[element]
        yield f"fn put_quad_{name}(at: u32, left: u32, v: vec4<f32>) {{"
        if vectors:
            yield f"  store_{name}(at >> 2u, v);"
        else:
            for lane in (0, 1, 2, 3):
                yield f"  if left > {lane}u {{ store_{name}(at + {lane}u, v[{lane}]); }}"
        yield "}"


_HALF: Final = (
    "// Float32 to float16 bits, to nearest even, with subnormals, overflow to infinity and NaN kept: pack2x16float",
    "// may round either way and leaves overflow open.",
    "fn half_bits(v: vec4<f32>) -> vec4<u32> {",
    "  let bits = bitcast<vec4<u32>>(v);",
    "  let sign = (bits >> vec4<u32>(16u)) & vec4<u32>(0x8000u);",
    "  let size = bits & vec4<u32>(0x7fffffffu);",
    "  let rebased = size - vec4<u32>(0x38000000u);",
    "  let normal = (rebased + vec4<u32>(0xfffu) + ((rebased >> vec4<u32>(13u)) & vec4<u32>(1u))) >> vec4<u32>(13u);",
    "  let exponent = size >> vec4<u32>(23u);",
    "  let shift = min(vec4<u32>(126u) - min(exponent, vec4<u32>(126u)), vec4<u32>(31u));",
    "  let mantissa = (size & vec4<u32>(0x7fffffu)) | vec4<u32>(0x800000u);",
    "  let cut = mantissa >> shift;",
    "  let rest = mantissa & ((vec4<u32>(1u) << shift) - vec4<u32>(1u));",
    "  let middle = (vec4<u32>(1u) << shift) >> vec4<u32>(1u);",
    "  let up = (rest > middle) | ((rest == middle) & ((cut & vec4<u32>(1u)) == vec4<u32>(1u)));",
    "  let small = select(cut, cut + vec4<u32>(1u), up);",
    "  var half = select(normal, small, size < vec4<u32>(0x38800000u));",
    "  half = select(half, vec4<u32>(0u), size < vec4<u32>(0x33000000u));",
    "  half = select(half, vec4<u32>(0x7c00u), size >= vec4<u32>(0x477ff000u));",
    "  half = select(half, vec4<u32>(0x7e00u), size > vec4<u32>(0x7f800000u));",
    "  return half | sign;",
    "}",
)


_ENTRY: Final = (
    "@compute @workgroup_size(SIZE)",
    "fn main(@builtin(workgroup_id) place: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,",
    "        @builtin(local_invocation_index) lane: u32PEER) {",
    "  let offset = place.x + place.y * grid.x;",
    "  if offset >= u.groups { return; }",
    "  let group = u.first_group + offset;",
)
_PEER: Final = ", @builtin(subgroup_invocation_id) peer: u32"


# ---- directives ----------------------------------------------------------------------------------------------------


def _expand(lines: list[tuple[int, str]], scope: dict[str, Value], file: str, depth: int) -> list[tuple[str, str, int]]:
    if depth > 12:
        raise BadKernel("Directives nest more than 12 deep", file=file)
    output: list[tuple[str, str, int]] = []
    index = 0
    while index < len(lines):
        number, line = lines[index]
        word, _, rest = line.strip().partition(" ")
        if word == "#if":
            branches, index = _branches(lines, index, file)
            for condition, body in branches:
                if condition is None or _evaluate(condition[1], scope, file, condition[0]):
                    output += _expand(body, scope, file, depth + 1)
                    break
        elif word == "#for":
            body, index = _block(lines, index, "#for", "#endfor", file)
            for value in _range(rest, scope, file, number, line):
                output += _expand(body, {**scope, rest.split()[0]: value}, file, depth + 1)
                if len(output) > _LINES_LIMIT:
                    raise BadKernel("The loop makes too many lines", file=file, line=number, source_line=line)
        elif word == "#include":
            output += _include(rest.strip(), scope, file, number, depth)
            index += 1
        elif word == "#entry":
            size, _, peer = rest.partition(" with ")
            if peer.strip() not in ("", "peer"):
                raise BadKernel("#entry gives peer and nothing else", file=file, line=number, source_line=line)
            size, peer = _text(_evaluate(size, scope, file, number)), _PEER if peer else ""
            output += [(text.replace("SIZE", size).replace("PEER", peer), file, number) for text in _ENTRY]
            index += 1
        elif word in ("#elif", "#else", "#endif", "#endfor"):
            raise BadKernel(f"{word} closes nothing", file=file, line=number, source_line=line)
        else:
            output.append((_substitute(line, scope, file, number), file, number))
            index += 1
    return output


def _include(name: str, scope: dict[str, Value], file: str, number: int, depth: int) -> list[tuple[str, str, int]]:
    path = FOLDER / f"{name}.wgsl"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or not path.is_file():
        raise BadKernel(f"There is nothing to include under {name!r}", file=file, line=number)
    text = path.read_text(encoding="utf-8").splitlines()
    return _expand(list(enumerate(text, 1)), scope, path.name, depth + 1)


def _block(
    lines: list[tuple[int, str]], index: int, opening: str, closing: str, file: str
) -> tuple[list[tuple[int, str]], int]:
    """Return the lines between the directive at `index` and the one that closes it, and the index after that."""
    start, depth = index, 0
    while index < len(lines):
        word = lines[index][1].strip().partition(" ")[0]
        depth += (word == opening) - (word == closing)
        if depth == 0:
            return lines[start + 1 : index], index + 1
        index += 1
    raise BadKernel(
        f"{opening} is not closed by {closing}", file=file, line=lines[start][0], source_line=lines[start][1]
    )


_Branch = tuple[tuple[int, str] | None, list[tuple[int, str]]]


def _branches(lines: list[tuple[int, str]], index: int, file: str) -> tuple[list[_Branch], int]:
    number, line = lines[index]
    body, after = _block(lines, index, "#if", "#endif", file)
    branches: list[_Branch] = [((number, line.strip()[3:].strip()), [])]
    depth = 0
    for entry_number, entry in body:
        word, _, rest = entry.strip().partition(" ")
        depth += (word == "#if") - (word == "#endif")
        if depth == 0 and word == "#elif":
            branches.append(((entry_number, rest), []))
        elif depth == 0 and word == "#else":
            branches.append((None, []))
        else:
            branches[-1][1].append((entry_number, entry))
    return branches, after


def _range(text: str, scope: Mapping[str, Value], file: str, number: int, line: str) -> range:
    found = re.fullmatch(r"[a-z]\w* in (.+)\.\.(.+)", text.strip())
    if not found:
        raise BadKernel('Write "#for NAME in FIRST..LAST"', file=file, line=number, source_line=line)
    span = range(*(int(_evaluate(found.group(i), scope, file, number)) for i in (1, 2)))
    if len(span) > _FOR_LIMIT:
        raise BadKernel(f"A loop may run {_FOR_LIMIT} times", file=file, line=number, source_line=line)
    return span


def _substitute(line: str, scope: Mapping[str, Value], file: str, number: int) -> str:
    if "{{" not in line:
        return line
    return re.sub(r"\{\{(.+?)\}\}", lambda found: _text(_evaluate(found.group(1), scope, file, number)), line)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- expressions ---------------------------------------------------------------------------------------------------

_OPERATORS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _evaluate(expression: str, scope: Mapping[str, Value], file: str, number: int) -> Value:
    try:
        return _node(ast.parse(expression.strip(), mode="eval").body, scope)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise BadKernel(f"The expression {expression.strip()!r} is wrong: {error}", file=file, line=number) from None
    except KeyError as error:
        raise BadKernel(
            f"The expression {expression.strip()!r} uses an unknown name {error}", file=file, line=number
        ) from None


def _node(node: ast.expr, scope: Mapping[str, Value]) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() | bool() as value):
            return value
        case ast.Name(id=name):
            return scope[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_node(left, scope), _node(right, scope))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_node(left, scope), _node(right, scope))
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)(bool(_node(value, scope)) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _node(operand, scope)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_node(operand, scope)
        case ast.Call(func=ast.Name(id="ceil_div"), args=[left, right]):
            return -(-int(_node(left, scope)) // int(_node(right, scope)))
        case _:
            raise ValueError(f"{type(node).__name__} is not allowed here")
