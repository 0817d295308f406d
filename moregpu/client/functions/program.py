"""A function as it travels: one cloudpickle of it and of the classes that its arguments may hold."""

from __future__ import annotations

import enum
import functools
import io
import operator
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, cast

import msgspec
from blake3 import blake3

from moregpu.client.functions.culprit import place_of
from moregpu.client.functions.modules import is_own, send_own_modules
from moregpu.client.functions.on_workers import enum_made
from moregpu.client.functions.options import THIS_PYTHON
from moregpu.client.functions.shared import Shared, misplaced
from moregpu.encoding import Unencodable
from moregpu.errors import InvalidJob, MissingExtra
from moregpu.workloads.function.spec import Form

PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None)})
"""What a function may refer to and still be known to be the same function the next time: nothing in it can change."""


_Cached: Any = type(functools.lru_cache(print))
_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_DRAWN_FROM = {"random": "_inst", "numpy.random.mtrand": "_rand"}
_NOTHING = object()
_NO_FILE = "<dynamic-code>"
"""What newer versions of cloudpickle put in the place of a file's name."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A function, packed."""

    content: bytes
    digest: str
    name: str
    function: Callable[..., Any]
    form: Form = "pickle"


class Packer:
    """Packs functions; one that cannot have changed since is not packed again."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, ...], bytes, str]] = weakref.WeakKeyDictionary()
        """Function → what it was made of when it was packed, and as what. Nothing here keeps the function alive."""

    def pack(self, function: Callable[..., Any], types: dict[str, type], python: str = THIS_PYTHON) -> Program:
        """The program for a function, whose arguments hold values of `types`. Raises what `dumps` raises."""
        # Of what another Python can run only the names travel, which cost nothing to pack again.
        state = None if types or python != THIS_PYTHON else _state(function)
        if state is not None:
            known = self._known.get(function)
            if known is not None and _is_same(known[0], state):
                return Program(content=known[1], digest=known[2], name=name_of(function), function=function)
        content = dumps((function, types), python)
        digest = blake3(content).hexdigest()
        if state is not None:
            self._known[function] = (state, content, digest)
        return Program(content=content, digest=digest, name=name_of(function), function=function)


def name_of(function: Callable[..., Any]) -> str:
    """What people call it."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))[:200]


def dumps(value: Any, python: str = THIS_PYTHON) -> bytes:
    """A pickle for workers: one's own modules go with it, by value.

    Raises `MissingExtra`, `InvalidJob` for code that a worker's `python` could not run, and `TypeError` for what does
    not travel.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise MissingExtra("functions need cloudpickle", 'pip install "moregpu[functions]"') from error
    send_own_modules(cloudpickle.register_pickle_by_value)
    try:
        return _pickled(value, python)
    except Unencodable:
        raise
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise TypeError(_why(value, python, error)) from error


def _pickled(value: Any, python: str) -> bytes:
    file = io.BytesIO()
    _pickler()(file, python).dump(value)
    return file.getvalue()


def _why(value: Any, python: str, error: Exception) -> str:
    """What pickle said, and of what."""
    function = value[0] if isinstance(value, tuple) and callable(value[0]) else None

    def travels(inside: Any) -> bool:
        try:
            _pickled(inside, python)
        except Exception:  # noqa: BLE001  (whatever somebody's `__reduce__` raises)
            return False
        return True

    try:
        place = place_of(value if function is None else function, travels, _names)
    except Exception:  # noqa: BLE001  (whatever somebody's `__repr__` or `__getattr__` raises)
        place = ""
    if not place:
        return str(error)
    if function is None:
        return f"what goes by pickle cannot travel with its {place}: {error}"
    return (
        f"{name_of(function)} cannot travel with its {place}: {error}; make that where it is used, inside the function"
    )


@functools.cache
def _pickler() -> Any:
    import cloudpickle

    base: Any = cloudpickle.Pickler

    class Pickler(base):
        def __init__(self, file: io.BytesIO, python: str):
            super().__init__(file, protocol=5)
            self._python = python

        def reducer_override(self, obj: Any) -> Any:
            """What cloudpickle has no way for, and what may not travel."""
            kind = type(obj)
            if kind is CodeType:
                return self._code(obj)
            # What remembers its results (`functools.cache`) goes by value, as the function in it does: pickle would
            # send its name alone, and no worker has a `__main__` or module of that name.
            if kind is _Cached and is_own(obj.__module__):
                return operator.call, (functools.lru_cache(**obj.cache_parameters()), obj.__wrapped__)
            if kind is functools.cached_property:  # before Python 3.12 it holds a lock
                state = {name: value for name, value in vars(obj).items() if name not in ("func", "lock")}
                return functools.cached_property, (obj.func,), state
            if (module := _drawn_from(obj)) is not None:
                return operator.attrgetter(_DRAWN_FROM[module]), (sys.modules[module],)
            if kind in _WEAK:  # `functools.singledispatch` has one
                return kind, (dict(obj),)
            if kind is Shared:
                raise misplaced()
            if isinstance(obj, Executor) and kind.__module__.startswith("moregpu."):
                raise TypeError("a function runs to its end and calls nothing on the pool")
            reduced = super().reducer_override(obj)
            if isinstance(obj, enum.EnumType) and isinstance(reduced, tuple) and len(reduced) == 6:
                return _enum(cast("type[enum.Enum]", obj), reduced)
            return reduced

        def _code(self, code: CodeType) -> Any:
            """A function's code: with the name of its file, which cloudpickle leaves out of tracebacks."""
            if self._python != THIS_PYTHON:
                raise InvalidJob(
                    f"{code.co_name} is code of Python {THIS_PYTHON}, which Python {self._python} cannot run",
                    f"start this program by Python {self._python}, or send text: moregpu submit script FILE.py",
                )
            make, parts, *rest = self.dispatch_table[CodeType](code)
            named = tuple(code.co_filename if part == _NO_FILE else part for part in parts)
            return make, named, *rest

    return Pickler


def _enum(kind: type[enum.Enum], reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """An enum by value, with all names of its members, and with what its constructor set on them.

    cloudpickle makes the members of their values alone, and forgets second names: of flags, those of several together.
    """
    make, arguments, (state, slots), *rest, put = reduced
    alone = {member.name: member.value for member in kind}
    members = {name: member.value for name, member in kind.__members__.items()}
    known = tuple(members if type(each) is dict and each == alone else each for each in arguments)
    state = {name: value for name, value in state.items() if name not in members}
    set_on = {
        member.name: {name: value for name, value in vars(member).items() if not (name[0] == name[-1] == "_")}
        for member in kind
    }
    return make, known, (put, (state, slots), set_on), *rest, enum_made


def _drawn_from(value: Any) -> str | None:
    """The module whose functions draw from this very generator.

    `random.randint` and `numpy.random.rand` are methods of one: with its state in each function that imports them by
    name, workers would draw the same numbers, whatever they are seeded with.
    """
    for module, name in _DRAWN_FROM.items():
        if value is getattr(sys.modules.get(module), name, _NOTHING):
            return module
    return None


def _is_same(known: tuple[Any, ...], state: tuple[Any, ...]) -> bool:
    """Whether both are made of the very same objects: `==` would take 1, 1.0 and True for one value."""
    return len(known) == len(state) and all(map(operator.is_, known, state))


def _state(function: Callable[..., Any]) -> tuple[Any, ...] | None:
    """What a function is made of, to tell whether it is still the one that was packed; None where that cannot be told.

    A function of a module that workers import as well is packed as its name alone; of another one everything it refers
    to is part of it, and what could change in place (a list, an object, a module of one's own) may have. The objects
    themselves are kept, not their ids: where one is gone, another may lie in its place.
    """
    if not isinstance(function, FunctionType):
        return None
    module = sys.modules.get(function.__module__)
    if not is_own(function.__module__) and getattr(module, function.__name__, None) is function:
        return (function.__code__,)
    referred = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *vars(function).values()]
    try:
        referred += [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell that is empty yet
        return None
    own = function.__globals__
    referred += [own[name] for name in _names(function.__code__) if name in own]
    if not all(map(_is_plain, referred)):
        return None
    return (function.__code__, *referred)


def _is_plain(value: Any) -> bool:
    if type(value) is BuiltinFunctionType:
        value = value.__self__  # a method of a list or a dict is of one that may change
    return type(value) in PLAIN or (type(value) is ModuleType and not is_own(value.__name__))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
