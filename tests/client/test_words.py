"""What a program says is written down whole, or refused in words; nothing is written as something else."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.client.doors import path_of
from moregpu.client.exchange import Exchanges
from moregpu.client.words import as_json, as_query, in_header, packed
from moregpu.errors import InvalidRequest
from moregpu.wire.api import TokenRequest
from moregpu.wire.link import Follow
from moregpu.workloads.kernel.spec import KernelSpec

NO_TEXT = "\udcff"
"""What a name on the command line becomes that is not UTF-8."""


@pytest.mark.parametrize(
    "number", [np.float32(0.5), np.float16(0.5), np.array(0.5), np.array(0.5, np.float32), Fraction(1, 2)]
)
@pytest.mark.parametrize("write", [packed, as_json])
def test_a_number_of_another_library_is_the_number(write: Any, number: Any) -> None:
    assert write(KernelSpec(operation="scale", size=4, scalar=number)) == write(
        KernelSpec(operation="scale", size=4, scalar=0.5)
    )


@pytest.mark.parametrize("name", ["", " "])
def test_a_name_that_was_not_given_is_no_path_of_something_else(name: str) -> None:
    with pytest.raises(InvalidRequest, match="it is empty"):
        path_of("jobs", name)


@pytest.mark.parametrize("number", [np.int64(7), np.uint8(7), np.array(7)])
def test_so_is_a_whole_one(number: Any) -> None:
    assert packed(KernelSpec(operation="relu", size=number)) == packed(KernelSpec(operation="relu", size=7))


@pytest.mark.parametrize(
    "options", [{"name": NO_TEXT}, {"name": object()}, {"name": np.ones(2)}, {"after": (1, object())}]
)
@pytest.mark.parametrize("write", [packed, as_json])
def test_what_cannot_be_written_is_refused_in_words(write: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        write(KernelSpec(operation="relu", size=4, **options))


def test_so_is_a_whole_number_that_msgpack_lacks() -> None:
    for number in (10**30, -(10**30)):
        with pytest.raises(InvalidRequest):
            packed(KernelSpec(operation="relu", size=4, seed=number))


def test_names_that_are_no_text_are_refused_wherever_they_stand() -> None:
    for ask in (
        lambda: path_of("jobs", NO_TEXT),
        lambda: as_query({"kind": NO_TEXT}),
        lambda: in_header(NO_TEXT),
        lambda: in_header("€"),
        lambda: in_header("a\r\nb: c"),
        lambda: Exchanges().begin(lambda id: Follow(id=id, job=NO_TEXT), lambda _: None),
    ):
        with pytest.raises(InvalidRequest):
            ask()
    for nothing in (None, "", 5, object()):
        with pytest.raises(InvalidRequest, match="name"):
            path_of("jobs", nothing)  # type: ignore[arg-type]
    assert in_header("clé 1") == "clé 1"
    assert path_of("jobs", "a/b ü") == "/v1/jobs/a%2Fb%20%C3%BC"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_number_that_json_lacks_is_not_sent_as_nothing(number: Any) -> None:
    with pytest.raises(InvalidRequest):  # null would be heard as: this token never expires
        as_json(TokenRequest(label="null", role="viewer", expires_s=number))
    with pytest.raises(InvalidRequest):
        as_json({"deep": [{"down": (1.0, number)}]})


@given(st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False), st.text())
def test_nothing_and_the_word_null_are_sent_as_they_are(value: Any, key: str) -> None:
    assert msgspec.json.decode(as_json({"null": value, key: [None, value]})) == {"null": value, key: [None, value]}
