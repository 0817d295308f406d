"""What a program is told on stderr fails nothing, whatever stands there."""

from __future__ import annotations

import io
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from moregpu.client import bars
from moregpu.client.functions.printed import show
from moregpu.client.functions.progress import show_progress
from moregpu.jobs import JobState
from moregpu.wire.link import Printed


class OnlyWrites:
    """What people put in the place of a stream: it has what they needed."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)


class Raises(io.StringIO):
    def write(self, text: str) -> int:
        raise RuntimeError("the window is gone")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream", [lambda: None, OnlyWrites, Raises, closed], ids=["none", "writes", "raises", "closed"]
)
@pytest.mark.parametrize("wanted", [True, None])
def test_a_program_whose_stderr_is_none_or_somebodys_own_goes_on(
    stream: Any, wanted: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream()
    monkeypatch.setattr(sys, "stderr", stream)
    show("f", Printed(id=1, task=0, worker="anna", lines=["hello"]))
    future: Future[Any] = Future()
    show_progress([future, Future()], "f", wanted)
    future.set_result(1)
    progress = SimpleNamespace(state="running", share=0.5, done=1, total=2, waiting_reason="")
    handle: Any = SimpleNamespace(view=SimpleNamespace(state=JobState.RUNNING), watch=lambda: [progress])
    bars.show(handle, always=wanted is True)
    if isinstance(stream, OnlyWrites):
        assert "[f on anna] hello\n" in stream.written
