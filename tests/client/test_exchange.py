"""What is open on the link: answers find who asked, and what was not answered is said again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.client.exchange import Exchanges
from moregpu.errors import HandshakeFailed, InvalidRequest, NotFound, Unreachable
from moregpu.jobs import JobState
from moregpu.wire.api import JobView, Problem
from moregpu.wire.link import Ended, Follow, Progress, Refused, Shown, ToLink

VIEW = JobView(id="j-1", kind="kernel", name="", state=JobState.DONE, submitter="me", created_at=0.0)


def frame(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


def asking(exchanges: Exchanges, heard: list[Any], job: str = "j-1") -> int:
    id, _ = exchanges.begin(lambda id: Follow(id=id, job=job), heard.append)
    return id


def deliver(exchanges: Exchanges, message: Any) -> None:
    found = exchanges.received(frame(message))
    if found is not None:
        found.hear(found.answer)


@given(st.permutations(range(6)))
def test_answers_in_any_order_reach_who_asked_and_close_what_they_close(order: list[int]) -> None:
    exchanges, heard = Exchanges(), [list[Any]() for _ in range(6)]
    ids = [asking(exchanges, mine) for mine in heard]
    for number in order:
        deliver(exchanges, Progress(id=ids[number], state=JobState.RUNNING, grains=4, grains_done=number))
        deliver(exchanges, Ended(id=ids[number], job=VIEW))
        deliver(exchanges, Ended(id=ids[number], job=VIEW))  # closed: nobody hears of it
    assert [[type(one) for one in mine] for mine in heard] == [[Progress, Ended]] * 6
    assert len(exchanges) == 0
    assert exchanges.again() == []


def test_what_was_not_answered_is_said_again_word_for_word() -> None:
    exchanges = Exchanges()
    ids = [asking(exchanges, [], job) for job in ("j-1", "j-2", "j-3")]
    deliver(exchanges, Shown(id=ids[1], job=VIEW))
    again = [msgspec.msgpack.decode(one, type=ToLink) for one in exchanges.again()]
    assert again == [Follow(id=ids[0], job="j-1"), Follow(id=ids[2], job="j-3")]


def test_a_refusal_becomes_the_error_that_it_names() -> None:
    exchanges, heard = Exchanges(), list[Any]()
    id = asking(exchanges, heard)
    problem = Problem(type="about:moregpu/not-found", title="t", status=404, detail="no such job", hint="look")
    deliver(exchanges, Refused(id=id, problem=problem))
    assert isinstance(heard[0], NotFound)
    assert (heard[0].detail, heard[0].hint) == ("no such job", "look")


def test_a_stopped_request_hears_nothing_more() -> None:
    exchanges, heard = Exchanges(), list[Any]()
    id = asking(exchanges, heard)
    assert exchanges.stop(id) is not None
    assert exchanges.stop(id) is None
    deliver(exchanges, Ended(id=id, job=VIEW))
    assert heard == []


def test_all_that_is_open_ends_with_the_connection_that_cannot_come_back() -> None:
    exchanges, heard = Exchanges(), list[Any]()
    for _ in range(3):
        asking(exchanges, heard)
    error = Unreachable("gone")
    for one in exchanges.fail(error):
        one.hear(one.answer)
    assert heard == [error] * 3
    assert len(exchanges) == 0


@pytest.mark.parametrize("data", [b"", b"\xc1", b"text", frame({"type": "nonsense"}), frame([1, 2])])
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(HandshakeFailed):
        Exchanges().received(data)


def test_a_request_that_no_frame_holds_is_refused_here() -> None:
    exchanges = Exchanges()
    with pytest.raises(InvalidRequest):
        asking(exchanges, [], "j" * 70_000)
    assert len(exchanges) == 0
