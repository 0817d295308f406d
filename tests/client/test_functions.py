"""Calls before they leave: functions packed again only when they may have changed, bars, shared values."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import pickle
import random
import re
import subprocess
import sys
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Self

import numpy.random
import pytest
from numpy.random import rand

from moregpu.client.functions.executor import Calls
from moregpu.client.functions.joblib_backend import register_joblib
from moregpu.client.functions.modules import is_own
from moregpu.client.functions.options import Chosen
from moregpu.client.functions.pickled import as_pickled
from moregpu.client.functions.program import Packer, Program, name_of
from moregpu.client.functions.progress import show_progress
from moregpu.client.functions.shared import Scattered, Shared
from moregpu.encoding import decode, joined
from moregpu.errors import InvalidJob
from moregpu.jobs import Tensor

FACTOR = 2
TABLE = {0: 1}


def scale(x: int) -> int:
    return FACTOR * x


def look(x: int) -> int:
    return TABLE[0] * x


def unpacked(program: Program) -> Any:
    return pickle.loads(program.content)[0]  # noqa: S301


def test_a_function_is_packed_again_only_when_what_it_refers_to_may_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packer = Packer()
    first = packer.pack(scale, {})
    assert packer.pack(scale, {}).content is first.content
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    again = packer.pack(scale, {})
    assert unpacked(again)(2) == 6


def with_factor(own: dict[str, Any]) -> FunctionType:
    return FunctionType(scale.__code__, own | {"__name__": "__main__"}, "scale")


def test_a_value_that_lies_where_the_last_one_lay_is_not_taken_for_it() -> None:
    packer, function = Packer(), with_factor({})
    for at in range(100):
        function.__globals__["FACTOR"] = at + 0.25
        packer.pack(function, {})
        del function.__globals__["FACTOR"]  # the number goes, and its place is free for the next one
        function.__globals__["FACTOR"] = at + 0.5
        assert unpacked(packer.pack(function, {}))(1) == at + 0.5


def test_a_name_that_hides_a_builtin_is_looked_at_as_any_other() -> None:
    packer, function = Packer(), FunctionType((lambda: id).__code__, {"id": 1, "__name__": "__main__"}, "hidden")
    assert unpacked(packer.pack(function, {}))() == 1
    function.__globals__["id"] = 2
    assert unpacked(packer.pack(function, {}))() == 2


def test_a_module_of_ones_own_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = ModuleType("my_own_module")
    own.__file__, own.RATE = str(tmp_path / "my_own_module.py"), 1
    monkeypatch.setitem(sys.modules, "my_own_module", own)
    packer = Packer()
    function = FunctionType((lambda: own_module.RATE).__code__, {"own_module": own, "__name__": "__main__"}, "rate")  # noqa: F821
    first = packer.pack(function, {})
    own.RATE = 2
    assert packer.pack(function, {}).content is not first.content


def test_a_function_that_nobody_has_any_more_is_not_kept() -> None:
    packer, function = Packer(), with_factor({"FACTOR": 2})
    packer.pack(function, {})
    gone = weakref.ref(function)
    del function
    gc.collect()
    assert gone() is None


def test_what_may_change_in_place_is_packed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    packer = Packer()
    assert unpacked(packer.pack(look, {}))(2) == 2
    monkeypatch.setitem(TABLE, 0, 5)
    assert unpacked(packer.pack(look, {}))(2) == 10


def test_a_builtin_method_of_what_changes_in_place_is_packed_each_time() -> None:
    packer, table = Packer(), {0: 1}
    look_up = table.get
    function = FunctionType((lambda x: look(x)).__code__, {"look": look_up, "__name__": "__main__"}, "looks")
    assert unpacked(packer.pack(function, {}))(0) == 1
    table[0] = 2
    assert unpacked(packer.pack(function, {}))(0) == 2


@pytest.mark.parametrize(
    ("functions", "seed"),
    [((random.random, lambda: random.randint(0, 9)), random.seed), ((rand, lambda: rand(2)), numpy.random.seed)],
    ids=["random", "numpy"],
)
def test_functions_that_draw_by_a_name_of_their_own_draw_from_what_the_worker_seeds(
    functions: tuple[Any, ...], seed: Any
) -> None:
    for drawn in (*functions, FunctionType((lambda: draw()).__code__, {"draw": functions[0], "__name__": "__main__"})):  # type: ignore[name-defined] # noqa: F821
        seed(1)
        first = drawn()
        there = unpacked(Packer().pack(drawn, {}))
        seed(1)
        assert numpy.array_equal(there(), first)


def test_a_generator_of_ones_own_goes_as_it_stands() -> None:
    mine = random.Random(3)
    there = unpacked(Packer().pack(mine.random, {}))
    assert [there(), there()] == [mine.random(), mine.random()]


def test_a_cell_that_changed_is_seen() -> None:
    packer, count = Packer(), 1

    def counted() -> int:
        return count

    assert unpacked(packer.pack(counted, {}))() == 1
    count = 2
    assert unpacked(packer.pack(counted, {}))() == 2


def test_names_of_functions() -> None:
    assert name_of(functools.partial(scale, 1)) == "scale"
    assert name_of(scale) == "scale"


def test_ones_own_modules_are_told_from_installed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ModuleType("my_own_module")
    own.__file__ = str(tmp_path / "my_own_module.py")
    monkeypatch.setitem(sys.modules, "my_own_module", own)
    assert is_own("my_own_module")
    assert is_own("__main__")
    assert not is_own("numpy")
    assert not is_own("json")
    assert not is_own("moregpu.client.pool")


@pytest.mark.parametrize(
    "place",
    ["home/.local/lib/python3.12/site-packages/theirs.py", "usr/lib/python3/dist-packages/theirs.py", "linked"],
)
def test_what_an_installer_put_anywhere_is_not_ones_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / place
    if place == "linked":
        store, file = tmp_path / "store" / "theirs.py", tmp_path / "lib" / "site-packages" / "theirs.py"
        store.parent.mkdir()
        file.parent.mkdir(parents=True)
        store.touch()
        file.symlink_to(store)
    name = f"theirs_{len(place)}"
    theirs = ModuleType(name)
    theirs.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, theirs)
    assert not is_own(name)


@pytest.mark.parametrize("where", ["environment", "environment-project"])
def test_a_file_in_or_beside_the_folder_of_the_environment_is_ones_own(where: str, tmp_path: Path) -> None:
    code = f"""
import sys, types
sys.prefix = sys.exec_prefix = {str(tmp_path / "environment")!r}
mine = sys.modules["mine"] = types.ModuleType("mine")
mine.__file__ = {str(tmp_path / where / "mine.py")!r}
from moregpu.client.functions.executor import Calls
from moregpu.client.functions.joblib_backend import register_joblib
from moregpu.client.functions.modules import is_own
from moregpu.client.functions.options import Chosen
from moregpu.client.functions.pickled import as_pickled
print(is_own("mine"), is_own("json"), is_own("numpy"), is_own("_ctypes"))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "False", "False", "False"]


def test_a_package_without_an_init_file_travels_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open_package").mkdir()
    (tmp_path / "open_package" / "inner.py").write_text("def twice(x):\n    return 2 * x\n")
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path)
        package: Any = importlib.import_module("open_package.inner") and sys.modules["open_package"]
        function = FunctionType(
            (lambda x: open_package.inner.twice(x)).__code__,  # noqa: F821
            {"open_package": package, "__name__": "__main__"},
            "twice",
        )
        program = Packer().pack(function, {})
    for name in ("open_package.inner", "open_package"):
        monkeypatch.delitem(sys.modules, name)
    assert unpacked(program)(4) == 8, "where nobody has that package"


def loaded(name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of one's own that nothing has been sent of yet."""
    module = ModuleType(name)
    module.__file__ = str(folder / f"{name}.py")
    exec(text, vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_arguments_by_pickle_take_ones_own_classes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = loaded("mine_by_pickle", "class Box:\n    held = 3\n", tmp_path, monkeypatch)
    opening, arguments = as_pickled(lambda box: box.held, (mine.Box(),), {})
    (given, _) = decode(joined(arguments))
    monkeypatch.delitem(sys.modules, "mine_by_pickle")
    assert opening(*given) == 3, "where nobody has that module"


class OfJoblib:
    """What joblib's backend asks of a pool, but for how a call is sent."""

    def devices(self) -> list[Any]:
        return []

    def calls(self) -> Self:
        return self


def test_joblibs_calls_take_ones_own_modules_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joblib = pytest.importorskip("joblib")
    mine = loaded("mine_by_joblib", "def twice(x):\n    return 2 * x\n", tmp_path, monkeypatch)

    class Elsewhere(OfJoblib):
        """A pool whose worker has none of the modules that are loaded here."""

        def submit(self, function: Any, content: bytes) -> Future[Any]:
            future: Future[Any] = Future()
            with monkeypatch.context() as there:
                there.delitem(sys.modules, "mine_by_joblib")
                future.set_result(function(content))
            return future

    register_joblib(Elsewhere())  # type: ignore[arg-type]
    with joblib.parallel_config("moregpu"):
        assert joblib.Parallel()(joblib.delayed(mine.twice)(x) for x in range(3)) == [0, 2, 4]


def test_joblib_ends_what_is_under_way_when_one_of_its_calls_fails() -> None:
    joblib = pytest.importorskip("joblib")
    futures: list[Future[Any]] = []

    class Busy(OfJoblib):
        """A pool that fails the first call once others wait behind it, and never comes to those."""

        def submit(self, function: Any, content: bytes) -> Future[Any]:
            futures.append(Future())
            if len(futures) == 4:
                futures[0].set_exception(ZeroDivisionError())
            return futures[-1]

    register_joblib(Busy())  # type: ignore[arg-type]
    with joblib.parallel_config("moregpu"), pytest.raises(ZeroDivisionError):
        joblib.Parallel(n_jobs=4)(joblib.delayed(abs)(x) for x in range(10))
    assert len(futures) > 1
    assert all(future.done() for future in futures)


CACHED = """
import functools

@functools.lru_cache(maxsize=7, typed=True)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

class Box:
    @functools.cache
    def twice(self, x):
        return 2 * x

def use(n):
    return fibonacci(n), fibonacci.cache_info().misses, Box().twice(n)
"""


def test_functions_that_remember_their_results_travel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = loaded("mine_that_remembers", CACHED, tmp_path, monkeypatch)
    mine.fibonacci(3)
    programs = [Packer().pack(function, {}) for function in (mine.use, mine.fibonacci, functools.lru_cache)]
    monkeypatch.delitem(sys.modules, "mine_that_remembers")
    use, fibonacci, of_python = map(unpacked, programs)
    assert use(30) == (832040, 31, 60), "with a memory of its own"
    assert (fibonacci(10), fibonacci.cache_parameters()) == (55, {"maxsize": 7, "typed": True})
    assert of_python is functools.lru_cache


HELD_BY_LOCKS = """
import functools
import weakref

@functools.singledispatch
def named(value):
    return "something"

@named.register
def _(value: int):
    return "a number"

class Box:
    seen = weakref.WeakValueDictionary()

    def __init__(self, held):
        self.held = held

    @functools.cached_property
    def twice(self):
        "Two of it."
        return 2 * self.held

    @functools.singledispatchmethod
    def plus(self, other):
        return None

    @plus.register
    def _(self, other: int):
        return self.held + other

def use(value):
    box = Box(value)
    box.seen["a"] = box
    first = box.twice
    box.held = 0
    return named(value), named("x"), first, box.twice, Box.twice.__doc__, box.plus(3), list(Box.seen)
"""


def test_what_pythons_own_decorators_keep_beside_a_function_travels_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = loaded("mine_that_keeps", HELD_BY_LOCKS, tmp_path, monkeypatch)
    there = mine.use(7)
    packer = Packer()
    programs = packer.pack(mine.use, {}), packer.pack(mine.named, {})
    monkeypatch.delitem(sys.modules, "mine_that_keeps")
    use, named = map(unpacked, programs)
    assert use(7) == there == ("a number", "something", 14, 14, "Two of it.", 3, ["a"])
    assert named(True) == "a number"


def test_functions_of_names_that_say_no_module_travel() -> None:
    names: dict[str, Any] = {}
    exec("class Box:\n    held = 3\n\ndef use(x):\n    return x * Box.held", names)  # noqa: S102
    assert names["use"].__module__ is None
    assert unpacked(Packer().pack(names["use"], {}))(2) == 6
    assert unpacked(Packer().pack(eval("lambda x: x * k", {"k": 5}), {}))(2) == 10  # noqa: S307


def test_a_function_keeps_the_name_of_its_file_for_tracebacks() -> None:
    assert unpacked(Packer().pack(lambda: 1 / 0, {})).__code__.co_filename == __file__


def test_code_that_another_python_could_not_run_is_refused_before_it_is_sent() -> None:
    packer = Packer()
    assert unpacked(packer.pack(scale, {}))(1) == FACTOR, "it is known from here on"
    for refused in (lambda: packer.pack(scale, {}, "3.99"), lambda: as_pickled(len, (look,), {}, "3.99")):
        with pytest.raises(InvalidJob, match="cannot run"):
            refused()
    assert unpacked(packer.pack(len, {}, "3.99")) is len


LOCKED = """
import functools
import threading

lock = threading.Lock()
table = {"a": [1, {"b": lock}]}

class Held:
    def __init__(self):
        self.inside = lock

    def use(self):
        pass

held = Held()

def direct(x):
    with lock:
        return x

def by_another(x):
    return direct(x)

def by_table(x):
    return table["a"]

def by_default(x, y=1, z=held):
    return z

def by_closure():
    inner = lock
    return lambda: inner
"""


@pytest.mark.parametrize(
    ("make", "place"),
    [
        ("direct", "direct cannot travel with its lock (_thread.lock)"),
        ("by_another", "by_another cannot travel with its direct → lock (_thread.lock)"),
        ("by_table", "by_table cannot travel with its table → ['a'] → [1] → ['b'] (_thread.lock)"),
        ("by_default", "by_default cannot travel with its z → inside (_thread.lock)"),
        ("by_closure()", "by_closure.<locals>.<lambda> cannot travel with its inner (_thread.lock)"),
        ("held.use", "Held.use cannot travel with its self → inside (_thread.lock)"),
        ("functools.partial(len, held)", "len cannot travel with its args[0] → inside (_thread.lock)"),
    ],
)
def test_what_keeps_a_function_from_travelling_is_named(
    make: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = loaded("mine_that_is_locked", LOCKED, tmp_path, monkeypatch)
    function = eval(make, vars(mine))  # noqa: S307
    with pytest.raises(TypeError, match=f"^{re.escape(place)}: cannot pickle '_thread.lock'"):
        Packer().pack(function, {})


def test_what_keeps_a_module_of_ones_own_from_travelling_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = loaded("mine_that_is_locked", LOCKED, tmp_path, monkeypatch)
    with pytest.raises(TypeError, match=r"<lambda> cannot travel with its mine → lock \(_thread.lock\)"):
        Packer().pack(lambda: mine.direct, {})


def test_a_function_that_would_call_its_pool_is_told_so() -> None:
    pool = Calls(lambda: None, Packer(), Chosen())  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"its pool \(moregpu.*calls nothing on the pool"):
        Packer().pack(lambda: pool.submit(abs, 1), {})


def test_an_argument_by_pickle_that_does_not_travel_is_named() -> None:
    with pytest.raises(TypeError, match=r"what goes by pickle .* → \['a'\] \(_thread.lock\)"):
        as_pickled(len, ({"a": threading.Lock()},), {})


ENUMS = """
import enum

class Planet(enum.Enum):
    EARTH = (6.0, 2.0)
    MARS = (3.0, 1.0)
    TERRA = (6.0, 2.0)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius
        self.nearest = None

    def gravity(self):
        return self.mass / self.radius

Planet.EARTH.nearest = Planet.MARS

class Grade(str, enum.Enum):
    GOOD = ("g", 1)
    BAD = ("b", 0)

    def __new__(cls, letter, points):
        made = str.__new__(cls, letter)
        made._value_, made.points = letter, points
        return made

class Right(enum.Flag):
    READ = 1
    RUN = 2
    BOTH = 3

def use():
    return (
        Planet.EARTH.gravity(), Planet.EARTH.nearest is Planet.MARS, Planet.TERRA is Planet.EARTH,
        [*Planet.__members__],
        Grade("g").points, Grade.BAD == "b", Right(3).name, Right.BOTH is Right.READ | Right.RUN, [*Right.__members__],
    )
"""


def test_enums_go_with_all_their_names_and_with_what_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = loaded("mine_with_enums", ENUMS, tmp_path, monkeypatch)
    here = mine.use()
    program = Packer().pack(mine.use, {})
    monkeypatch.delitem(sys.modules, "mine_with_enums")
    # Where its classes were never loaded, as a worker is; here cloudpickle would find the very ones again.
    command = [sys.executable, "-c", "import pickle, sys; print(pickle.load(sys.stdin.buffer)[0]())"]
    done = subprocess.run(command, input=program.content, capture_output=True, check=False)
    assert done.stdout.decode().strip() == str(here), done.stderr.decode()


class Thing: ...


@dataclasses.dataclass
class Child:
    parent: Any = None


def test_shared_values_are_found_wherever_arguments_name_them() -> None:
    scattered, tensor = Scattered(), Tensor(dtype="uint8", shape=(1,), data=b"x")
    shared = scattered.put("ab" * 16, tensor)
    for value in ((shared,), {"a": [shared]}, [1, (2, {"b": shared})], deque([shared])):
        assert scattered.named_in(value) == ({f"shared/{'ab' * 16}": tensor}, {})
    assert scattered.named_in((1, "x")) == ({}, {})
    scattered.holds(shared.digest, {"mine:Thing": Thing})
    assert scattered.named_in([shared])[1] == {"mine:Thing": Thing}, "no worker has one's own classes"
    with pytest.raises(KeyError, match="another pool"):
        scattered.named_in([Shared("cd" * 16)])
    child = Child()
    child.parent = child
    assert scattered.named_in(child) == ({}, {}), "what goes by pickle may lead back to itself"


def test_a_map_that_takes_long_shows_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    futures: list[Future[Any]] = [Future() for _ in range(4)]
    show_progress(futures, "train", True)
    for future in futures:
        now[0] += 0.7
        future.set_result(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["2/4", "3/4", "4/4"]
    show_progress([Future()], "train", None)  # nobody looks: no bar


def test_a_map_that_is_over_at_once_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    futures: list[Future[Any]] = [Future() for _ in range(4)]
    show_progress(futures, "train", True)
    for future in futures:
        future.set_result(1)
    assert capsys.readouterr().err == ""
