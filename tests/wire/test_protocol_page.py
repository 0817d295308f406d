"""`docs/protocol.md` lists every message with its tag and its fields in order, and the limits that hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moregpu import jobs
from moregpu.wire import messages

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
TABLE: dict[str, str] = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
MESSAGES = [*messages.FromWorker.__args__, *messages.FromCoordinator.__args__]
PARTS = [
    messages.Device,
    messages.LeaseRef,
    messages.Assignment,
    messages.TaskError,
    messages.ResultEntry,
    messages.Verdict,
    messages.Limits,
    jobs.Tensor,
    jobs.Blob,
    jobs.Planned,
]


@pytest.mark.parametrize("struct", MESSAGES + PARTS, ids=lambda struct: struct.__name__)
def test_a_messages_fields_stand_in_their_order(struct: Any) -> None:
    listed = re.findall(r"`(\w+)`", TABLE[struct.__name__])
    if struct in MESSAGES:
        assert listed.pop(0) == struct.__struct_config__.tag
    assert listed == list(struct.__struct_fields__)


def test_every_message_is_an_array_with_its_tag_first() -> None:
    assert all(struct.__struct_config__.array_like for struct in MESSAGES)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(messages.Bye(reason="x"))) == ["bye", "x"]
    tensor = jobs.Tensor(dtype="uint8", shape=(1,), data=b"x")
    assert set(msgspec.msgpack.decode(msgspec.msgpack.encode(tensor))) == {"dtype", "shape", "data", "region"}


def test_the_limits_are_those_of_the_code() -> None:
    for limit in (messages.MAX_RECORD_BYTES, messages.MAX_INLINE_BYTES, 1 << 16, 65_535):
        assert f"{limit:,}" in PAGE
    assert messages.SUBPROTOCOL in PAGE
    assert f"`{' '.join(jobs.ITEM_BYTES)}`" in PAGE


def test_every_link_in_the_page_leads_somewhere() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in PAGE.splitlines()
        if line.startswith("#")
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= headings
    for path in re.findall(r"`((?:moregpu|tests)/[\w/.]+)`", PAGE):
        assert (Path(__file__).parents[2] / path).exists()
