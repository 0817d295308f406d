"""What goes in comes out: types, arrays, places of what cannot travel; and hostile bytes give `Malformed`."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import uuid
import zoneinfo
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes

from moregpu.encoding import Malformed, Unencodable, Unknown, decode, encode, joined
from moregpu.encoding.layout import HEAD, Code
from moregpu.encoding.reading import _MAKERS  # pyright: ignore[reportPrivateUsage]


def there_and_back(value: Any, **options: Any) -> Any:
    return decode(bytearray(joined(encode(value))), **options)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters()),
    st.binary(max_size=3000),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.datetimes(timezones=st.none() | st.just(datetime.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
)
KEYS = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.tuples(st.integers(), st.text()))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(KEYS, inner, max_size=5),
        st.sets(st.integers() | st.text(), max_size=5),
        st.frozensets(st.integers(), max_size=5),
        st.dictionaries(KEYS, inner, max_size=5).map(collections.OrderedDict),
        st.dictionaries(KEYS, st.integers(), max_size=5).map(collections.Counter),
        st.dictionaries(KEYS, inner, max_size=5).map(lambda items: collections.defaultdict(list, items)),
        st.lists(inner, max_size=5).map(lambda items: collections.deque(items, 7)),
    ),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return [(type(k), k) for k in one] == [(type(k), k) for k in other] and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple | collections.deque):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(VALUES)
def test_every_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    assert same(there_and_back(value), value)


@given(arrays(scalar_dtypes(), array_shapes(min_dims=0, min_side=0, max_dims=4)), st.booleans())
def test_arrays_come_back_bit_for_bit_in_any_layout(array: np.ndarray, by_columns: bool) -> None:
    array = np.asfortranarray(array) if by_columns else array
    back = there_and_back(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_an_array_is_copied_neither_on_its_way_out_nor_in() -> None:
    array = np.arange(100_000, dtype=np.float32)
    buffers = encode({"x": array})
    assert any(isinstance(b, memoryview) and np.shares_memory(np.frombuffer(b, np.uint8), array) for b in buffers)
    data = bytearray(joined(buffers))
    assert np.shares_memory(decode(data)["x"], np.frombuffer(data, np.uint8))


def test_an_array_in_a_file_is_an_array_whole_or_in_part(tmp_path: pathlib.Path) -> None:
    array = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "array.npy", array)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    for value, same in ((mapped, array), (mapped[1:, ::2], array[1:, ::2]), (mapped.T, array.T)):
        found = decode(joined(encode(value)))
        assert type(found) is np.ndarray
        assert np.array_equal(found, same)


def test_from_bytes_that_cannot_be_written_to_arrays_are_copies_or_views_as_asked() -> None:
    data = joined(encode(np.arange(10)))
    assert decode(data).flags.writeable
    view = decode(data, views=True)
    assert not view.flags.writeable
    assert view.sum() == 45


@pytest.mark.parametrize(
    "value",
    [pathlib.Path("/a/b"), pathlib.PureWindowsPath("c:/x"), range(1, 10**30, 3), slice(1, None), ..., np.float32(1.5),
     np.int8(-3), np.bool_(True), np.datetime64("2020-01-01"), b"x" * 5000, bytearray(b"y" * 5000), "\ud800"],
    ids=repr,
)  # fmt: skip
def test_single_types(value: Any) -> None:
    assert same(there_and_back(value), value)


def test_a_dict_that_fills_itself_fills_itself_there_too_by_what_everybody_has() -> None:
    back = there_and_back(collections.defaultdict(list, {"a": [1]}))
    back["b"].append(2)
    assert back == {"a": [1], "b": [2]}
    assert there_and_back(collections.deque([1, 2], maxlen=2)).maxlen == 2
    assert there_and_back(collections.Counter("abba")).most_common() == [("a", 2), ("b", 2)]
    with pytest.raises(Unencodable, match=r"\['x'\]: a defaultdict of .* make it a dict first"):
        encode({"x": collections.defaultdict(lambda: 7)})


@pytest.mark.parametrize(
    "parts",
    [["deque", [1, 2], 1], ["deque", [1], True], ["deque", {}, None], ["Counter", [1], None], ["OrderedDict", {}, 3],
     ["defaultdict", {}, "eval"], ["defaultdict", {}, 5], ["UserDict", {}, None], ["deque"], [[], [], []]],
    ids=repr,
)  # fmt: skip
def test_a_container_that_nobody_has_is_malformed(parts: list[Any]) -> None:
    body = msgspec.msgpack.encode(msgspec.msgpack.Ext(int(Code.COLLECTED), msgspec.msgpack.encode(parts)))
    with pytest.raises(Malformed):
        decode(HEAD.pack(len(body), 0) + body)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: Any

    def __post_init__(self) -> None:
        assert not READING, "a constructor runs on what a stranger sent"


READING: list[int] = []


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    left: int
    right: Any


def test_dataclasses_enums_and_named_tuples_travel_by_value_and_no_constructor_runs() -> None:
    types: dict[str, type] = {}
    value = [Point(1, (2, Colour.RED)), Pair(1, Point(2, 3))]
    data = joined(encode(value, types=types))
    assert set(types.values()) == {Point, Pair, Colour}
    READING.append(1)
    try:
        assert decode(data, types=types) == value
    finally:
        READING.clear()


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("moment", [
    datetime.datetime(2024, 7, 1, 12, tzinfo=BERLIN), datetime.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
    datetime.time(12, 30, tzinfo=BERLIN),
], ids=repr)  # fmt: skip
def test_a_moment_keeps_its_zone(moment: Any) -> None:
    found = there_and_back(moment)
    assert (found, found.fold, found.tzinfo) == (moment, moment.fold, BERLIN)
    if isinstance(found, datetime.datetime):
        winter = datetime.timedelta(days=120)
        assert (found + winter).utcoffset() == (moment + winter).utcoffset(), "the clocks have changed in between"


def test_a_zone_that_is_not_here_leaves_the_moment() -> None:
    moment = datetime.datetime(2024, 7, 1, 12, tzinfo=BERLIN)
    data = joined(encode(moment))
    for named in (b"Europe/Nowhere", b"../../etc/hosts", b"tzdata/__init_"):
        damaged = data.replace(b"Europe/Berlin", named[: len(b"Europe/Berlin")])
        assert decode(damaged) == moment
        assert decode(damaged).tzinfo == datetime.timezone(datetime.timedelta(hours=2))


@dataclasses.dataclass
class Circle:
    radius: float
    unset: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.area = 3 * self.radius**2

    @functools.cached_property
    def hook(self) -> Any:
        return lambda: self.radius

    @property
    def guarded(self) -> float:
        return self.radius

    @guarded.setter
    def guarded(self, value: float) -> None:
        raise AssertionError("code of a class runs on what a stranger sent")


class Ring(Circle):
    def __init__(self, radius: float, inner: float):
        super().__init__(radius)
        self.inner = inner


def test_a_dataclass_keeps_what_was_set_on_it_beside_its_fields() -> None:
    circle, ring = Circle(2.0), Ring(2.0, 1.0)
    assert circle.hook() == 2.0, "it is kept on the circle from now on, and cannot travel"
    found = there_and_back([circle, ring])
    assert [vars(each) for each in found] == [
        {"radius": 2.0, "area": 12.0},
        {"radius": 2.0, "area": 12.0, "inner": 1.0},
    ]
    assert [type(each) for each in found] == [Circle, Ring]
    assert found[0].hook() == 2.0
    assert not hasattr(found[0], "unset"), "a field that was never set"
    circle.area = print  # type: ignore[assignment]
    with pytest.raises(Unencodable, match=r"^the circle\.area: "):
        encode(circle, name="the circle")


@pytest.mark.parametrize(("field", "expected"), [("guarded", Circle), ("__class__", Unknown), ("__dict__", Unknown)])
def test_what_a_stranger_sets_on_a_dataclass_runs_nothing_of_it(field: str, expected: type) -> None:
    kind = f"{__name__}:Circle"
    body = msgspec.msgpack.encode(_made_up(Code.DATACLASS, kind, [field], [5]))
    found = decode(HEAD.pack(len(body), 0) + body)
    assert type(found) is expected


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    OTHERS = 1 << 80


class Mode(enum.IntFlag):
    READ = 4
    WRITE = 2


@pytest.mark.parametrize(
    "value",
    [Rights.READ, Rights.READ | Rights.WRITE, Rights(0), ~Rights.READ, Rights.READ | Rights.OTHERS, Mode.READ | Mode(2),
     Mode(0), Mode(64), {Rights.READ | Rights.WRITE: 1}],
    ids=repr,
)  # fmt: skip
def test_flags_come_back_however_many_are_set(value: Any) -> None:
    types: dict[str, type] = {}
    data = joined(encode(value, types=types))
    assert same(decode(data, types=types), value)


class Lenient(enum.Flag):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise AssertionError("code of a class runs on what a stranger sent")


def test_a_number_of_a_strangers_makes_flags_only_where_python_makes_them() -> None:
    data = joined(encode(Rights.READ | Rights.WRITE)).replace(b"Rights", b"Colour")
    assert isinstance(decode(data), Unknown), "an enum that is none of flags has no numbers"
    data = joined(encode(Mode(64))).replace(b"Mode", b"Kind")
    assert isinstance(decode(data, types={f"{__name__}:Kind": Lenient}), Unknown)


def test_what_is_of_a_class_that_is_not_here_shows_its_fields() -> None:
    data = joined(encode(Point(1, 2))).replace(b"Point", b"Joint")
    found = decode(data)
    assert isinstance(found, Unknown)
    assert (found.x, found.y) == (1, 2)
    with pytest.raises(AttributeError, match="no field 'z'"):
        _ = found.z


def test_a_name_that_is_no_such_class_gives_no_instance_of_it() -> None:
    name = f"{Point.__module__}:Point"
    data = joined(encode(Point(1, 2)))
    for other in ("subprocess:Popen", "builtins:dict", "os:system"):
        found = decode(data, types={name: dict} if other == "builtins:dict" else {name: type("Popen", (), {})})
        assert isinstance(found, Unknown)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (object(), "argument 'x': "),
        ({"a": [1, {"b": object()}]}, "argument 'x'['a'][1]['b']: "),
        ((1, {2: {print: 1}}), "argument 'x'[1][2] (a key of it): "),
        (Pair(1, {3: lambda: 0}), "argument 'x'.right[3]: "),
        (np.array([object()]), "argument 'x': an array of object"),
        ({"s": {1, print}}, "argument 'x'['s']{…}: "),
    ],
)
def test_what_cannot_travel_is_named_by_its_place(value: Any, place: str) -> None:
    with pytest.raises(TypeError) as caught:
        encode(value, name="argument 'x'")
    assert str(caught.value).startswith(place)


@dataclasses.dataclass
class Table(dict[str, int]):
    name: str


@dataclasses.dataclass
class Refused(Exception):
    code: int


class Pair(collections.namedtuple("Pair", "left right")):
    label: str


@pytest.mark.parametrize("value", [Table("a"), Refused(3)])
def test_a_dataclass_that_is_something_else_too_is_refused_where_it_is_sent(value: Any) -> None:
    with pytest.raises(Unencodable, match=r"\[0\]: (Table|Refused) is a dataclass and more"):
        encode([value])


def test_a_named_tuple_with_attributes_of_its_own_is_refused() -> None:
    pair = Pair(1, 2)
    assert decode(joined(encode(pair))) == pair
    pair.label = "x"
    with pytest.raises(Unencodable, match="Pair has attributes beside its fields"):
        encode(pair)


def test_what_cannot_travel_names_the_switch() -> None:
    with pytest.raises(TypeError, match="allow_pickle=True"):
        encode(lambda: 1)


def test_what_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(Unencodable, match="holds itself"):
        encode(ring)
    holder: dict[str, Any] = {}
    holder["me"] = (holder,)
    with pytest.raises(Unencodable, match="holds itself"):
        encode(holder)


# ---- hostile bytes


@given(st.binary(max_size=300))
@settings(max_examples=500)
def test_any_bytes_give_a_value_or_malformed(data: bytes) -> None:
    try:
        decode(data)
    except Malformed:
        pass


SAMPLES = [
    joined(encode(value))
    for value in (
        {"a": (1, 2.5, {3}), 4: [np.arange(5), b"x" * 2000]}, np.zeros((3, 4)), Point(1, Colour.RED), Pair(1, 2),
        decimal.Decimal("1.5"), fractions.Fraction(1, 3), uuid.UUID(int=1), range(5), pathlib.Path("/x"),
        datetime.datetime(2020, 1, 1), np.float64(1), {(1, 2): "x"},
    )
]  # fmt: skip


@given(st.sampled_from(SAMPLES), st.data())
@settings(max_examples=1000)
def test_damaged_bytes_give_a_value_or_malformed(sample: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    try:
        decode(damaged[:cut])
    except Malformed:
        pass


@pytest.mark.parametrize(
    "body",
    [b"\xdd\x7f\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\x91" * 100_000 + b"\xc0"],
    ids=["a list of two billion", "a map of two billion", "a string of two billion", "a hundred thousand lists"],
)
def test_bytes_that_promise_much_take_no_memory(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode(len(body).to_bytes(4, "little") + b"\0\0\0\0" + body)


def test_extensions_inside_one_another_end_somewhere() -> None:
    value: Any = 0
    for _ in range(100):
        value = (value,)
    assert there_and_back(value) == value
    data = joined(encode(value))
    body = data[8:]
    for _ in range(60):
        body = b"\xc9" + (len(body) + 1).to_bytes(4, "big") + b"\x01" + b"\x91" + body
    with pytest.raises(Malformed):
        decode(len(body).to_bytes(4, "little") + b"\0\0\0\0" + body)


def test_an_array_that_is_longer_than_its_bytes_is_refused() -> None:
    data = joined(encode(np.zeros(2, np.uint8)))
    at = data.index(b"|u1") + 3  # the shape: a list of one
    for length in (b"\x91\x03", b"\x91\x00"):
        with pytest.raises(Malformed):
            decode(data[:at] + length + data[at + 2 :])


def _made_up(code: Code, *parts: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(int(code), msgspec.msgpack.encode(parts))


_HUGE = _made_up(Code.DECIMAL, "1e999999999")  # ten letters; as an int, a billion digits


@pytest.mark.parametrize(
    "value",
    [
        _made_up(Code.FRACTION, _HUGE, 1), _made_up(Code.TIMEDELTA, _HUGE, 0, 0), _made_up(Code.UUID, 1 << 60),
        _made_up(Code.RANGE, _HUGE, 1, 1), _made_up(Code.COMPLEX, _HUGE, 0.0), _made_up(Code.BYTES, _HUGE),
        _made_up(Code.FRAME, ["a"], [1], _made_up(Code.RANGE, 0, 1 << 40, 1), None),
        _made_up(Code.SERIES, "a", _made_up(Code.RANGE, 0, 1 << 40, 1), _made_up(Code.RANGE, 0, 1 << 40, 1), None),
    ],
    ids=["fraction", "timedelta", "uuid", "range", "complex", "bytes", "frame", "series"],
)  # fmt: skip
def test_a_few_bytes_never_ask_for_work_or_memory_without_end(value: Any) -> None:
    body = msgspec.msgpack.encode(value)
    with pytest.raises(Malformed):
        decode(len(body).to_bytes(4, "little") + bytes(4) + body)


def test_an_error_of_a_librarys_own_is_malformed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Exception):
        pass

    def refuse(*_: Any) -> None:
        raise Odd("only floating point tensors can require gradients")

    monkeypatch.setitem(_MAKERS, Code.TENSOR, refuse)
    body = msgspec.msgpack.encode(_made_up(Code.TENSOR, "int8", [1], 0, True))
    with pytest.raises(Malformed, match="floating point"):
        decode(len(body).to_bytes(4, "little") + bytes(4) + body)
