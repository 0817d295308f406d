"""A sandbox that was proven to hold is not tried again, until anything that it depends on may have changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from moregpu.worker.functions import probe, proven
from moregpu.worker.functions.probe import find_level
from moregpu.worker.functions.proven import COUNTS_S, Proven
from moregpu.worker.sandbox.box import Isolation, Runtime
from moregpu.worker.sandbox.level import Level, Who
from tests.worker.functions.rooms import USER


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder / "sandbox.json"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of sandboxes that were tried for real, in order."""
    kinds: list[str] = []
    real = probe.try_level

    async def noted(isolation: Isolation, who: Who, runtime: Runtime, folder: Path) -> str:
        kinds.append(isolation)
        return await real(isolation, who, runtime, folder)

    monkeypatch.setattr(probe, "try_level", noted)
    monkeypatch.setenv("MOREGPU_FUNCTIONS_USER", str(USER))
    return kinds


def found(tmp_path: Path, file: Path) -> Level:
    return asyncio.run(find_level(tmp_path / "functions", proven=Proven(file)))


def test_what_held_is_not_tried_again(tmp_path: Path, file: Path, tried: list[str]) -> None:
    first = found(tmp_path, file)
    assert first.isolation != "none" and first.isolation == tried[-1]
    before = len(tried)
    assert found(tmp_path, file) == first
    assert len(tried) == before
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("change", ["user", "boot", "program", "day", "loose", "torn", "forged"])
def test_it_is_tried_again_when_anything_is_another(
    tmp_path: Path, file: Path, tried: list[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found(tmp_path, file)
    before = len(tried)
    match change:
        case "user":
            monkeypatch.setenv("MOREGPU_FUNCTIONS_USER", str(USER + 1))
            if first.who.user is None:
                pytest.skip("functions run as this user itself")
        case "boot":
            other = tmp_path / "proc"
            (other / "kernel/random").mkdir(parents=True)
            (other / "kernel/random/boot_id").write_text("another\n")
            monkeypatch.setattr(proven, "_PROC", other)
        case "program":
            monkeypatch.setattr(proven, "_OUR_CODE", ("worker/sandbox",))
        case "day":
            kept = msgspec.json.decode(file.read_bytes())
            kept["since_boot_s"] -= COUNTS_S
            file.write_bytes(msgspec.json.encode(kept))
        case "loose":
            file.chmod(0o622)
        case "torn":
            file.write_bytes(file.read_bytes()[:-5])
        case _:
            kept = msgspec.json.decode(file.read_bytes())
            file.write_bytes(msgspec.json.encode(kept | {"isolation": "none"}))
    again = found(tmp_path, file)
    assert len(tried) > before and again.isolation == first.isolation


def test_what_did_not_hold_is_tried_each_time(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOREGPU_FUNCTIONS_USER", str(USER))
    tried: list[str] = []

    async def escaped(isolation: Isolation, *_: object) -> str:
        tried.append(isolation)
        return "got at everything"

    monkeypatch.setattr(probe, "try_level", escaped)
    assert [found(tmp_path, file).isolation for _ in range(2)] == ["none", "none"]
    assert len(tried) >= 2 and not file.exists()
