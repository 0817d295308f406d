"""Tuning: the best right variant wins, and no file on disk can do harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from moregpu_kernels.errors import BadKernel, KernelError
from moregpu_kernels.executor import Executor
from moregpu_kernels.layout import Request
from moregpu_kernels.plan import bucket, candidates, plan
from moregpu_kernels.tune import TuneCache, default_folder, tune

REQUEST = Request("softmax", {"a": (16, 200)})


def test_the_measured_choice_is_kept_and_used(executor: Executor, tmp_path: Path):
    cache = TuneCache(tmp_path, "device")
    best = tune(executor, cache, REQUEST, runs=1)
    assert best in candidates(REQUEST, executor.device.traits)
    again = TuneCache(tmp_path, "device").choices()
    assert again == {bucket(REQUEST): best}
    assert plan(REQUEST, executor.device.traits, again).variant == best


def test_a_choice_of_another_device_or_driver_is_not_found(tmp_path: Path):
    TuneCache(tmp_path, "driver-1").store("b", "lanes8", {})
    assert TuneCache(tmp_path, "driver-2").choices() == {}


def test_a_wrong_variant_never_wins(executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = candidates(REQUEST, executor.device.traits)
    real = executor.apply

    def broken(operation, arrays, parameters=None, *, between=None, variant=None):
        out = real(operation, arrays, parameters, between=between, variant=variant)
        if variant == names[1]:
            return out * np.float32(1.001)
        if variant == names[2]:
            raise BadKernel("this one does not compile here")
        return out

    monkeypatch.setattr(executor, "apply", broken)
    seen: dict[str, float] = {}
    best = tune(executor, TuneCache(tmp_path, "d"), REQUEST, runs=1, progress=seen.__setitem__)
    assert best not in names[1:3]
    assert seen[names[1]] == seen[names[2]] == float("inf")


def test_a_device_on_which_nothing_is_right_is_refused(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(executor, "apply", lambda *_, **__: np.zeros((16, 200), np.float32))
    with pytest.raises(KernelError, match="must not be used"):
        tune(executor, TuneCache(tmp_path, "d"), REQUEST, runs=1)


@pytest.mark.parametrize("damage", ["", "{", "null", "[]", '{"checksum": "x", "body": "{}"}', "\x00\xff" * 10])
def test_a_damaged_or_half_written_file_counts_as_absent(tmp_path: Path, damage: str):
    cache = TuneCache(tmp_path, "d")
    cache.store("good", "lanes8", {})
    cache.store("bad", "lanes64", {})
    for path in cache.folder.glob("*.json"):
        if '\\"bad\\"' in path.read_text():
            path.write_bytes(damage.encode("latin-1"))
    assert TuneCache(tmp_path, "d").choices() == {"good": "lanes8"}


def test_a_changed_file_fails_its_checksum(tmp_path: Path):
    cache = TuneCache(tmp_path, "d")
    cache.store("b", "lanes8", {})
    (path,) = cache.folder.glob("*.json")
    path.write_text(path.read_text().replace("lanes8", "lanes9"))
    assert TuneCache(tmp_path, "d").choices() == {}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    cache = TuneCache(blocker, "d")
    cache.store("b", "lanes8", {})
    assert cache.choices()["b"] == "lanes8"


def test_two_processes_that_tune_at_once_both_leave_good_files(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from moregpu_kernels.tune import TuneCache\n"
        "cache = TuneCache(Path(sys.argv[1]), 'd')\n"
        "for i in range(60): cache.store(f'b{i % 6}', f'{sys.argv[2]}-{i}', {'x': 1.0})\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in ("one", "two")]
    reader = TuneCache(tmp_path, "d")
    while any(child.poll() is None for child in children):
        for path in reader.folder.glob("*.json"):
            assert json.loads(path.read_text())["checksum"]
    assert [child.returncode for child in children] == [0, 0]
    choices = TuneCache(tmp_path, "d").choices()
    assert sorted(choices) == [f"b{i}" for i in range(6)]
    assert all(variant.startswith(("one-", "two-")) for variant in choices.values())
    assert not list(reader.folder.glob("*.part"))


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MOREGPU_KERNEL_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("MOREGPU_KERNEL_CACHE")
    assert os.sep + "moregpu" in str(default_folder())
