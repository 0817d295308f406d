"""One JSON object a line, and no secret in it."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.platform.logs import JsonLines, facts, set_up, thread_ended, without_secrets
from moregpu.wire.identity import PoolKeys
from moregpu.wire.invite import ClientLine, Invite, new_token


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    for handler in handlers:
        root.removeHandler(handler)  # `set_up` closes what it finds
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)


def logged(message: str, *arguments: object, **extra: Any) -> tuple[dict[str, Any], str]:
    stream = io.StringIO()
    set_up("debug", stream=stream)
    logging.getLogger("moregpu.test").warning(message, *arguments, **extra)
    text = stream.getvalue()
    assert text.count("\n") == 1
    return json.loads(text), text


def test_a_record_is_one_object_with_its_facts() -> None:
    line, _ = logged("worker %s joined", "w-1", extra=facts(worker="w-1", groups=["a"], message="not this"))
    assert line["message"] == "worker w-1 joined"
    assert (line["level"], line["logger"], line["worker"], line["groups"]) == ("warning", "moregpu.test", "w-1", ["a"])


def test_a_traceback_stays_in_its_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        line, _ = logged("failed", exc_info=True)
    assert "ValueError: two\nlines" in line["traceback"]


def secrets_there_are() -> list[str]:
    _, token = new_token(os.urandom)
    keys = PoolKeys.generate()
    invite = Invite(
        addresses=("127.0.0.1:8787",), pool_id=keys.pool_id, cs_pub=keys.cs_pub, invite_id="i-" + "0" * 26,
        secret=os.urandom(16), pin=os.urandom(32), pool_name="pool",
    )  # fmt: skip
    return [token, invite.line(), ClientLine(addresses=("h:1",), pin=os.urandom(32), token=token).line()]


@pytest.mark.parametrize("where", ["message", "argument", "fact", "nested fact", "traceback"])
def test_no_secret_gets_into_a_log_wherever_it_was_put(where: str) -> None:
    for secret in secrets_there_are():
        if where == "traceback":
            try:
                raise ValueError(f"bad header: Bearer {secret}")
            except ValueError:
                _, text = logged("failed", exc_info=True)
        elif where == "message":
            _, text = logged(f"got {secret}!")
        elif where == "argument":
            _, text = logged("got %r", {"authorization": secret})
        elif where == "fact":
            _, text = logged("got", extra=facts(header=f"bearer {secret}"))
        else:
            _, text = logged("got", extra=facts(headers=[{"x": secret}]))
        assert secret not in text
        assert secret[20:40] not in text
        assert "[secret]" in text


@given(text=st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    cleaned = without_secrets("\x1b]52;c;x\x07\x9b31m\u202e" + text)
    assert not any(ord(c) < 32 and c not in "\t\n" for c in cleaned)
    assert not any(0x7F <= ord(c) <= 0x9F for c in cleaned)
    assert "\u202e" not in cleaned


def test_a_log_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    set_up(path=tmp_path / "logs" / "coordinator.log")
    logging.getLogger("moregpu.test").info("hello")
    path = tmp_path / "logs" / "coordinator.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["message"] == "hello"


def test_what_json_cannot_hold_is_shown_by_its_name() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "m", (), None)
    record.facts = {"thing": object}
    assert "object" in json.loads(JsonLines().format(record))["thing"]


def test_what_ends_a_thread_is_in_the_log_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", thread_ended)
    set_up(path=tmp_path / "logs" / "tray.log")
    thread = threading.Thread(target=lambda: 1 / 0, name="icon")
    thread.start()
    thread.join()
    line = json.loads((tmp_path / "logs" / "tray.log").read_text())
    assert line["message"] == "the thread icon ended"
    assert "ZeroDivisionError" in line["traceback"]
    assert capfd.readouterr().err == ""


def test_a_log_that_cannot_be_written_is_told_once_and_stops_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").touch(mode=0o600)  # where a folder should be: no user, root neither, can write below it
    set_up(path=tmp_path / "logs" / "tray.log")
    logging.getLogger("moregpu.test").error("hello")
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "tray.log cannot be written (Not a directory)" in said
