"""Adapters and devices: each listed once, software named so, budgets kept, losses survived, threads kept apart."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest
from moregpu_kernels.device import AdapterInfo, Device, Ledger, default_budget_bytes, describe, open_device, probe
from moregpu_kernels.errors import BudgetExceeded, DeviceLost, NoAdapter, ProbeFailed, WrongThread
from moregpu_kernels.executor import Executor
from moregpu_kernels.fuse import step


def listed(name: str, backend: str = "Vulkan", kind: str = "DiscreteGPU", device_id: int = 1) -> tuple[Any, Any, Any]:
    return (
        {"device": name, "device_id": device_id, "backend_type": backend, "adapter_type": kind},
        [],
        {"max-buffer-size": 1},
    )


def test_a_device_seen_through_two_backends_is_one():
    found = describe([listed("RTX", "OpenGL"), listed("RTX", "Vulkan")])
    assert [(a.name, a.backend, a.position) for a in found] == [("RTX", "Vulkan", 1)]


def test_a_software_adapter_that_is_listed_twice_is_one_and_named_so():
    (only,) = describe([listed("llvmpipe", kind="CPU"), listed("llvmpipe", kind="CPU")])
    assert only.is_software and only.label == "llvmpipe (software)"


def test_two_equal_cards_are_two_devices():
    assert [a.key for a in describe([listed("RTX 4090"), listed("RTX 4090")])] == [
        "vulkan:rtx-4090#0",
        "vulkan:rtx-4090#1",
    ]


def test_real_devices_come_before_software():
    found = describe([listed("cpu", kind="CPU"), listed("arc", kind="IntegratedGPU"), listed("rtx", device_id=2)])
    assert [a.kind for a in found] == ["discrete", "integrated", "software"]


@pytest.mark.parametrize(
    ("name", "size"),
    [("llvmpipe (LLVM 15.0.6, 256 bits)", 8), ("llvmpipe (LLVM 20.1, 128 bits)", 4), ("llvmpipe (LLVM 9, 7 bits)", 4)],
)
def test_the_width_of_a_subgroup_is_what_llvmpipe_says_of_itself(name: str, size: int):
    info, features, limits = listed(name, kind="CPU")
    (only,) = describe([({**info, "subgroup_min_size": 4}, features, limits)])
    assert only.subgroup_size == size


def test_hostile_names_make_tame_keys():
    (only,) = describe([listed("\x1b]52;c;evil\x07 [/bold] 名" + "x" * 500)])
    assert only.key.isascii() or all(c.isalnum() or c in ":-" for c in only.key)
    assert len(only.key) < 80


def test_the_probe_lists_what_this_process_lists(device: Device):
    assert device.info.key in [adapter.key for adapter in probe()]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.write(2, b'driver exploded'); os.abort()", "no answer"),
        ("print('not json')", "no answer"),
        ("print('{}')", "no answer"),
        ('print(\'{"error": "no library", "hint": "install it"}\')', "no library"),
        ("import time; time.sleep(60)", "longer than"),
    ],
)
def test_a_probe_that_fails_says_how(code: str, said: str):
    with pytest.raises(ProbeFailed, match=said):
        probe(timeout_s=2.0, command=(sys.executable, "-c", code))


def test_a_probe_ignores_what_drivers_print():
    code = 'import os; os.write(2, b"noise"); print("noise"); print(\'{"adapters": []}\')'
    assert probe(command=(sys.executable, "-c", code)) == ()


def test_an_adapter_that_is_not_there_is_refused_with_what_is(device: Device):
    with pytest.raises(NoAdapter, match=device.info.key):
        open_device("vulkan:voodoo-2")


def test_software_is_not_opened_where_it_is_not_allowed(device: Device):
    if not device.info.is_software:
        pytest.skip("missing: a machine with a software adapter only")
    with pytest.raises(NoAdapter):
        open_device(allow_software=False)


def test_the_ledger_takes_all_or_nothing():
    ledger = Ledger(100)
    ledger.charge(60)
    with pytest.raises(BudgetExceeded, match="41 bytes"):
        ledger.charge(41)
    assert (ledger.held_bytes, ledger.free_bytes) == (60, 40)
    ledger.refund(60)
    assert (ledger.held_bytes, ledger.peak_bytes) == (0, 60)


@pytest.mark.parametrize(
    ("kind", "buffer"), [("DiscreteGPU", 1 << 63), ("IntegratedGPU", 1 << 40), ("CPU", 1), ("DiscreteGPU", 1)]
)
def test_a_budget_is_never_more_than_is_careful(kind: str, buffer: int):
    info, features, _ = listed("x", kind=kind)
    (adapter,) = describe([(info, features, {"max-buffer-size": buffer})])
    budget = default_budget_bytes(adapter)
    assert budget >= 1 << 28
    assert adapter.is_software or budget <= 4 << 30


def test_another_thread_is_refused(executor: Executor):
    caught: list[BaseException] = []

    def intrude() -> None:
        try:
            executor.run([step("relu", {"a": "x"}, "y")], {"x": np.ones(3, np.float32)}, ["y"])
        except WrongThread as error:
            caught.append(error)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert len(caught) == 1


@pytest.fixture
def fragile(device: Device) -> Device:
    """A device of its own, to be broken."""
    return Device(device.info, 64 << 20)


def test_a_lost_device_is_built_again_and_the_work_done(fragile: Device):
    executor = Executor(fragile)
    x = np.arange(100, dtype=np.float32)
    resident = executor.upload(x)
    work = [step("vector_add", {"a": "x", "b": "r"}, "y")]
    executor.run(work, {"x": x, "r": resident}, ["y"])
    fragile.native.destroy()
    np.testing.assert_array_equal(executor.run(work, {"x": x, "r": resident}, ["y"])["y"], 2 * x)
    assert fragile.generation == 1
    assert fragile.ledger.held_bytes <= 64 << 20


def test_a_device_lost_in_the_middle_of_a_run_is_built_again(fragile: Device):
    executor = Executor(fragile, slice_s=0.0005)
    a = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    losses = [True]

    def between() -> None:
        if losses:
            losses.pop()
            fragile.native.destroy()

    out = executor.apply("matmul", {"a": a, "b": a}, between=between)
    assert not losses and fragile.generation == 1
    np.testing.assert_allclose(out, a @ a, atol=1e-3)


def test_a_device_that_is_lost_again_and_again_ends_in_an_error(fragile: Device):
    executor = Executor(fragile, slice_s=0.0005)
    a = np.ones((300, 300), np.float32)
    with pytest.raises(DeviceLost, match="twice"):
        executor.apply("matmul", {"a": a, "b": a}, between=lambda: fragile.native.destroy())


def test_a_device_whose_adapter_is_gone_is_lost(fragile: Device):
    fragile.info = AdapterInfo("vulkan:gone", "gone", "", "", "Vulkan", "discrete", 0, (), {})
    with pytest.raises(DeviceLost, match="does not come back"):
        fragile.rebuild()
