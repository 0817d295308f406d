"""Nothing that a stranger wrote reaches a screen raw (row 30)."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.wire.messages import (
    Acknowledged,
    Device,
    Heartbeat,
    Hello,
    LeaseRef,
    Limits,
    Output,
    Policy,
    Refused,
    Reject,
    Result,
    ResultEntry,
    TaskError,
    Verdict,
    Welcome,
)
from moregpu.wire.text import LINE_LIMIT, NAME_LIMIT, clean, clean_message

EVIL = "a\x1b[31m\x1b]52;c;eA==\x07b\x9b2J\u202ec\u200bd\u2066e\r\nf\ud800g\U000e0041h"
SAFE = "a[31m]52;c;eA==b2Jcde fgh"
LEASE = LeaseRef(task="t-1", attempt=1, token=bytes(16))


def test_escapes_controls_and_direction_marks_go() -> None:
    assert clean(EVIL) == SAFE


@given(st.text(max_size=300), st.integers(2, 120))
def test_cleaned_text_is_one_short_line_of_visible_characters(text: str, limit: int) -> None:
    cleaned = clean(text, limit)
    assert len(cleaned) <= limit
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in cleaned)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]", cleaned)
    assert clean(cleaned, limit) == cleaned


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_names_of_the_world_stay_as_they_are() -> None:
    for text in ("Jürgens Küche", "王さんのPC", "ноутбук", "Élodie’s Mac", "🚀 rig", "हिन्दी"):
        assert clean(text) == text


def test_stacked_marks_and_endless_text_are_cut() -> None:
    assert len(clean("a" + "\u0301" * 500 + "b")) == 5
    assert clean("x" * 10_000) == "x" * (LINE_LIMIT - 1) + "…"


def strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list() | tuple():
            return [text for item in value for text in strings(item)]
        case dict():
            return [text for pair in value.items() for text in strings(pair)]
        case _:
            return []


DEVICE = Device(id="cpu", kind="cpu", name=EVIL, driver=EVIL, engine=EVIL)
MESSAGES = [
    Hello(wi_pub=bytes(32), signature=bytes(64), ws_number=0, ws_signature=bytes(64), boot=bytes(16), name=EVIL,
          system=EVIL, version=EVIL, devices=[DEVICE], kinds=["kernel"], isolation=EVIL, limits=Limits(schedule=EVIL)),
    Heartbeat(sent=0.0, reason=EVIL, held=[LEASE], duty={"cpu": 0.5}),
    Output(lease=LEASE, lines=[EVIL, "ok"]),
    Result(entries=[ResultEntry(task="t-1", attempt=1, token=bytes(16), error=TaskError(code=EVIL, message=EVIL))],
           signature=bytes(64)),
    Refused(leases=[LEASE], reason=EVIL),
    Welcome(worker="w-1", pool=bytes(16), pool_name=EVIL, ci_pub=bytes(32), blob_token="t"),
    Acknowledged(entries=[Verdict(task="t-1", attempt=1, token=bytes(16), verdict="rejected", detail=EVIL)]),
    Policy(limits=Limits(schedule=EVIL), name=EVIL),
    Reject(code=EVIL, detail=EVIL, hint=EVIL),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_text_of_every_message_is_cleaned(message: Any) -> None:
    cleaned = msgspec.to_builtins(clean_message(message), builtin_types=(bytes,))
    texts = strings(cleaned)
    assert all("\x1b" not in text and "\u202e" not in text for text in texts)
    assert any(text == SAFE for text in texts)


def test_a_clean_message_is_not_copied() -> None:
    message = Heartbeat(sent=0.0, reason="in use", held=[LEASE])
    assert clean_message(message) is message


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(sent=0.0, held=[LeaseRef(task="t\n1", attempt=1, token=bytes(16))]),
        Heartbeat(sent=0.0, hot=["\x1b"]),
        Heartbeat(sent=0.0, duty={"cpü": 0.5}),
        Refused(leases=[LeaseRef(task="t" * (NAME_LIMIT + 1), attempt=1, token=bytes(16))]),
    ],
)
def test_names_for_programs_are_plain_or_refused(message: Any) -> None:
    with pytest.raises(ValueError, match="ASCII"):
        clean_message(message)
