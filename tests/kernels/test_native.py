"""The calls that go straight to wgpu-native: the same work as through wgpu-py, and what goes wrong is said."""

from __future__ import annotations

import numpy as np
import pytest
from moregpu_kernels.device import Device, is_native_error
from moregpu_kernels.executor import Executor
from moregpu_kernels.fuse import step


def test_what_is_recorded_directly_is_what_wgpu_py_would_record(device: Device):
    executor = Executor(device)
    x = np.arange(7, dtype=np.float32)
    executor.run([step("scale", {"a": "x"}, "y", scalar=3.0)], {"x": x}, ["y"])
    (compiled,) = executor._compiled.values()  # pyright: ignore[reportPrivateUsage]
    (piece,) = compiled.pieces
    device.queue.write_buffer(compiled.results.results["y"].buffer, 0, bytes(32))
    encoder = device.native.create_command_encoder()
    stage = encoder.begin_compute_pass()
    stage.set_pipeline(piece.program.pipeline)
    stage.set_bind_group(0, piece.group)
    stage.dispatch_workgroups(piece.groups)
    stage.end()
    device.queue.submit([encoder.finish()])
    by_wgpu = bytes(device.queue.read_buffer(compiled.results.results["y"].buffer, 0, 28))
    np.testing.assert_array_equal(np.frombuffer(by_wgpu, np.float32), 3 * x)
    np.testing.assert_array_equal(
        executor.run([step("scale", {"a": "x"}, "y", scalar=3.0)], {"x": x}, ["y"])["y"], 3 * x
    )


def test_a_staging_buffer_is_read_again_and_again(device: Device):
    staging = device.buffer(256, staging=True)
    source = device.buffer(256)
    for number in (1, 2, 3):
        device.queue.write_buffer(source, 0, np.full(4, number, np.uint32))
        device.fast.submit((), [device.fast.copy(source, 0, staging, 0, 16)])
        first, rest = np.empty(1, np.uint32), np.empty(3, np.uint32)
        device.fast.read(staging, 16, [(rest, 4), (first, 0)])
        assert [*first, *rest] == [number] * 4
    with pytest.raises(ValueError, match="16 that are mapped"):
        device.fast.read(staging, 16, [(rest, 8)])
    device.fast.read(staging, 16, [(rest, 4)])
    device.free(staging)
    device.free(source)


def test_a_submit_that_the_driver_refuses_raises_and_the_next_one_is_done(device: Device):
    executor = Executor(device)
    relu = [step("relu", {"a": "x"}, "y")]
    executor.run(relu, {"x": np.ones(4, np.float32)}, ["y"])
    (compiled,) = executor._compiled.values()  # pyright: ignore[reportPrivateUsage]
    too_many = device.traits.limits.max_groups + 1
    with pytest.raises(Exception, match=r"workgroup|dispatch") as raised:
        device.fast.submit([(compiled.pieces[0].call, too_many, 1)])
    assert is_native_error(raised.value)
    with pytest.raises(Exception, match="same buffer") as raised:
        device.fast.submit((), [device.fast.copy(compiled.uniforms, 0, compiled.uniforms, 0, 1 << 40)])
    assert is_native_error(raised.value)
    with pytest.raises(Exception, match=r"overrun|bounds|size") as raised:
        device.fast.write(compiled.uniforms, 0, bytes(1 << 20))
    assert is_native_error(raised.value)
    np.testing.assert_array_equal(executor.run(relu, {"x": np.full(4, 3, np.float32)}, ["y"])["y"], 3.0)


def test_submitting_to_a_lost_device_raises(device: Device):
    lost = Device(device.info, 1 << 20)
    source, target = lost.buffer(256), lost.buffer(256, staging=True)
    lost.native.destroy()
    with pytest.raises(Exception) as raised:
        lost.fast.submit((), [lost.fast.copy(source, 0, target, 0, 16)])
    assert is_native_error(raised.value)


def test_reading_on_a_lost_device_raises_and_does_not_wait(device: Device):
    lost = Device(device.info, 1 << 20)
    staging = lost.buffer(256, staging=True)
    lost.native.destroy()
    with pytest.raises(Exception) as raised:
        lost.fast.read(staging, 16, [])
    assert is_native_error(raised.value)
