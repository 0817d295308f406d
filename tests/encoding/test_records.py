"""Records of calls, and what they raised."""

from __future__ import annotations

import asyncio
import json
import traceback
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.encoding import Malformed, decode, encode
from moregpu.encoding.failures import Failure, RemoteError, RemoteTraceback, describe, packed, rebuilt, unpacked
from moregpu.encoding.records import RecordCounter, Status, read_records, record


@given(st.lists(st.binary(max_size=9000), max_size=8))
def test_records_joined_are_read_one_by_one(values: list[bytes]) -> None:
    stream = b"".join(b"".join(record(Status.VALUE, encode(value))) for value in values)
    assert [decode(content) for _, content in read_records(stream)] == values


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_malformed(data: bytes) -> None:
    try:
        for status, content in read_records(data):
            if status is Status.FAILURE:
                unpacked(content)
    except Malformed:
        pass


def test_a_record_that_is_cut_off_is_refused() -> None:
    whole = b"".join(record(Status.VALUE, encode("a value")))
    for cut in range(1, len(whole) - 7):
        with pytest.raises(Malformed):
            list(read_records(whole[:cut]))


@given(
    st.lists(st.tuples(st.sampled_from(Status), st.binary(max_size=40)), max_size=6),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_records_are_counted_however_their_stream_is_cut(values: list[tuple[Status, bytes]], sizes: list[int]) -> None:
    stream = b"".join(b"".join(record(status, encode(value))) for status, value in values)
    counter, place = RecordCounter(), 0
    for size in sizes:
        counter.add(stream[place : place + size])
        place += size
    if place < len(stream):
        counter.add(stream[place:])
    assert (counter.count, counter.size_bytes) == (len(values), len(stream))
    assert counter.failed == sum(status is Status.FAILURE for status, _ in values)
    if values:
        counter = RecordCounter()
        counter.add(stream[:-1])
        assert counter.count is None


def caught(raise_it: object) -> Failure:
    try:
        exec(raise_it) if isinstance(raise_it, str) else raise_it()  # type: ignore[operator]  # noqa: S102
    except BaseException as error:  # noqa: BLE001
        return unpacked(b"".join(packed(describe(error))))
    raise AssertionError("nothing was raised")


class Own(Exception):
    def __init__(self, code: int, about: str):
        super().__init__(about)
        self.code = code


def test_an_exception_comes_back_as_itself_with_the_traceback_as_cause_and_notes() -> None:
    def deep() -> None:
        error = ValueError("no such thing", 3)
        error.add_note("while looking")
        raise error

    error = rebuilt(caught(deep), where="on worker w-1, attempt 1")
    assert type(error) is ValueError
    assert error.args == ("no such thing", 3)
    assert error.__notes__ == ["while looking", "on worker w-1, attempt 1"]
    assert "in deep" in str(error.__cause__)


def test_a_traceback_shows_lines_of_files_that_are_here_though_no_worker_has_them(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a line\n")

    def raise_both() -> None:
        raise ExceptionGroup("two", [KeyError(1)])  # the line

    line = raise_both.__code__.co_firstlineno + 1
    place = f'File "{__file__}", line {line}, in f'
    for told, shown_as in (
        (f"  {place}\nKeyError: 1\n", f"  {place}\n    raise ExceptionGroup("),
        (f"  |   {place}\n  | KeyError: 1\n", f"  |   {place}\n  |     raise ExceptionGroup("),
        (f"  {place}\n    theirs\nKeyError\n", f"  {place}\n    theirs\nKeyError"),
        (f"  {place.replace(str(line), '9' * 9)}\nKeyError\n", f"{'9' * 9}, in f\nKeyError"),
        (f'  File "{secret}", line 1\nKeyError\n', "line 1\nKeyError"),
    ):
        assert shown_as in str(RemoteTraceback(told))


@pytest.mark.parametrize(
    "text",
    [
        "1/0",
        "{}['a']",
        "b'\\xff'.decode()",
        "open('/nowhere')",
        "raise KeyError((1, 2))",
        "import json; json.loads('{')",
        "import os; os.rename('/nowhere', '/nowhere else')",
        "import no_such_module.at_all",
        "from json import no_such_name",
    ],
)
def test_built_in_exceptions_and_those_of_loaded_modules_keep_class_text_and_fields(text: str) -> None:
    try:
        exec(text)  # noqa: S102
    except Exception as error:  # noqa: BLE001
        back = rebuilt(caught(text))
        assert type(back) is type(error)
        assert str(back) == str(error)
        for name in ("filename", "filename2", "errno", "name", "path"):
            assert getattr(back, name, None) == getattr(error, name, None) or isinstance(error, AttributeError)
        assert vars(back) | {"__notes__": None} == vars(error) | {"__notes__": None}
    assert json is not None


def test_a_class_with_a_constructor_of_its_own_comes_back_without_a_call_of_it() -> None:
    def fail() -> None:
        raise Own(7, "seven")

    back = rebuilt(caught(fail))
    assert type(back) is Own
    assert (back.code, str(back)) == (7, "seven")


class OwnGroup(ExceptionGroup[Exception]):
    pass


def test_a_group_comes_back_with_what_is_in_it() -> None:
    class Elsewhere(Exception):
        """Of no module that anybody has loaded."""

    def fail() -> None:
        raise OwnGroup("several", [ValueError("a"), ExceptionGroup("inner", [Own(7, "seven"), Elsewhere("x")])])

    back = rebuilt(caught(fail), where="on worker w-1")
    assert isinstance(back, OwnGroup)
    assert (back.message, back.__notes__) == ("several", ["on worker w-1"])
    first, inner = back.exceptions
    assert isinstance(inner, ExceptionGroup)
    own, elsewhere = inner.exceptions
    assert (repr(first), type(own), type(elsewhere)) == ("ValueError('a')", Own, RemoteError)
    assert str(elsewhere) == f"{Elsewhere.__qualname__}: x"
    matched, rest = back.split(Own)
    assert matched is not None and rest is not None


def test_a_group_too_large_to_be_told_leaves_class_and_text() -> None:
    deep: Exception = ValueError()
    for _ in range(50):
        deep = ExceptionGroup("deep", [deep])
    for group in (deep, ExceptionGroup("wide", [ValueError() for _ in range(1000)])):

        def fail(group: Exception = group) -> None:
            raise group

        failure = caught(fail)
        assert len(b"".join(packed(failure))) < 1 << 20
        assert isinstance(rebuilt(failure), RemoteError | ExceptionGroup)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(cause="raised", type="nowhere:Gone", text="it went"),
        Failure(
            cause="raised", type="builtins:SystemExit", text="3", value=b"".join(encode({"args": (3,), "vars": {}}))
        ),
        Failure(cause="raised", type="os:system", text="x", value=b"".join(encode({"args": ("true",), "vars": {}}))),
        Failure(cause="raised", type="builtins:ValueError", text="x", value=b"\x00" * 30),
        Failure(cause="crashed", text="the process was ended by SIGSEGV"),
    ],
    ids=lambda failure: failure.type or failure.cause,
)
def test_whatever_cannot_be_rebuilt_is_a_remote_error_with_its_name_and_text(failure: Failure) -> None:
    error = rebuilt(failure)
    assert type(error) is RemoteError
    assert failure.text in str(error)
    assert error.cause == failure.cause


@pytest.mark.parametrize(
    "variables",
    [{"__notes__": 3}, {"add_note": 3}, {"__class__": "x", "with_traceback": 1}, {1: 2}, [1]],
    ids=str,
)
def test_variables_that_no_exception_has_cannot_keep_it_from_being_raised(variables: object) -> None:
    value = b"".join(encode({"args": ("x",), "vars": variables}))
    error = rebuilt(Failure(cause="raised", type="builtins:ValueError", text="x", value=value), where="on worker w-1")
    assert error.__notes__ == ["on worker w-1"]
    with pytest.raises((ValueError, RemoteError), match="x"):
        raise error.with_traceback(None)


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, CancelledError])
def test_what_a_caller_would_take_for_its_own_arrives_as_a_remote_error(kind: type[Exception]) -> None:
    def fail() -> None:
        raise kind("no more")

    error = rebuilt(caught(fail))
    assert type(error) is RemoteError
    assert str(error) == f"{kind.__name__}: no more"

    async def wait() -> None:
        future: Future[None] = Future()
        future.set_exception(error)
        await asyncio.wrap_future(future)

    with pytest.raises(RemoteError):
        asyncio.run(wait())


def test_an_exception_whose_text_raises_is_described_all_the_same() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise Rude

    assert "whose text raised" in caught(fail).text


def test_an_exception_keeps_its_class_where_what_it_holds_cannot_travel() -> None:
    def fail() -> None:
        raise ValueError("bad", print, {3: 4})

    error = rebuilt(caught(fail))
    assert type(error) is ValueError
    assert error.args == ("bad", "<built-in function print>", {3: 4})

    def fail_alone() -> None:
        error = Own(3, "about")
        error.about = print  # type: ignore[attr-defined]
        raise error

    alone = rebuilt(caught(fail_alone))
    assert type(alone) is Own
    assert (alone.code, alone.args, hasattr(alone, "about")) == (3, ("about",), False)


class Needy(Exception):
    def __init__(self, held: object):
        super().__init__()
        self.held = held

    def __str__(self) -> str:
        return f"it holds {self.held}"


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.parametrize(("held", "text"), [(Needy(print), "it holds <built-in"), (ValueError(Silent()), "ValueError")])
def test_an_exception_that_cannot_be_without_what_does_not_travel_leaves_class_and_text(
    held: Exception, text: str
) -> None:
    def fail() -> None:
        raise held

    error = rebuilt(caught(fail))
    assert type(error) is RemoteError
    assert text in str(error)


def test_what_a_stranger_wrote_steers_no_terminal_whatever_prints_it() -> None:
    steering = "\x1b]52;c;cm0=\x07\x9b2J\u202e"
    value = b"".join(encode({"args": (f"one\n\ttwo {steering}", 3, "Zoë"), "vars": {}}))
    hostile = Failure(
        cause="raised", type="builtins:ValueError", text=steering, traceback=f"Traceback:\n  {steering}",
        notes=(steering,), value=value,
    )  # fmt: skip
    for failure in (hostile, Failure(cause="crashed", type=steering, text=steering, traceback=steering)):
        error = rebuilt(failure, where=f"on worker {steering}")
        printed = "".join(traceback.format_exception(error))
        assert not any(mark in printed for mark in "\x1b\x07\x9b\u202e")
        assert "\\x1b]52" in printed
    assert rebuilt(hostile).args == ("one\n\ttwo \\x1b]52;c;cm0=\\x07\\x9b2J\\u202e", 3, "Zoë")
