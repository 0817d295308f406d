"""Recordings: what was written is what is played; no secret is in them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moregpu.errors import Conflict, InvalidRequest
from moregpu.wire.api import InviteRequest, TokenRequest
from moregpu_tui.feed.replay import Recorder, Replay, read
from moregpu_tui.state.events import Input
from tests.tui.stage import Stage


def recorded(path: Path) -> list[Input]:
    stage = Stage(seconds=0)
    kept: list[Input] = []
    recorder = Recorder(path, clock=stage.now)
    offer = recorder.wrap(lambda *inputs: kept.extend(inputs))
    offer(*stage.pool.opening())
    stage.pool.offer = offer
    asyncio.run(stage.pool.invite(InviteRequest()))
    asyncio.run(stage.pool.create_token(TokenRequest()))
    for _ in range(20):
        stage.at += 0.2
        offer(*stage.pool.step())
    recorder.close()
    return kept


def test_a_recording_plays_the_same_inputs(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    kept = recorded(path)
    assert [one for _, one in read(path)] == kept
    assert path.stat().st_mode & 0o077 == 0


def test_no_secret_is_in_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    recorded(path)
    text = path.read_text()
    assert "MGPU1-" not in text
    assert "MGPUC1-" not in text


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("mine")
    with pytest.raises(InvalidRequest, match="is there already"):
        Recorder(path)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b'{"t":0,"kind":"moregpu-console","body":{"version":99}}', b"\xff\xfe"]
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match="no recording"):
        Replay(path)


def test_the_past_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    recorded(path)
    with pytest.raises(Conflict, match="recording"):
        asyncio.run(Replay(path).cancel("j-1"))
