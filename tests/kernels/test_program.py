"""Compiling: pipelines are cached, and what is wrong in a kernel is named by the line that a person wrote."""

from __future__ import annotations

import numpy as np
import pytest
from moregpu_kernels.device import Device
from moregpu_kernels.errors import BadBinding, BadKernel
from moregpu_kernels.executor import Executor
from moregpu_kernels.layout import Dispatch, Span
from moregpu_kernels.program import Programs
from moregpu_kernels.template import load_kernel, parse_kernel

HEAD = '//! name = "mine"\n//! bindings = ["a: read tensor", "out: write tensor"]\n//! uniforms = ["count: u32"]\n'
MAIN = "@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"


def test_a_pipeline_is_compiled_once(device: Device):
    programs = Programs(device)
    kernel = load_kernel("cast")
    first = programs.get(kernel, (("dtype", "float16"),))
    assert programs.get(kernel, (("dtype", "float16"),)) is first
    assert programs.get(parse_kernel(_text("cast"), "copy.wgsl"), (("dtype", "float16"),)) is first
    assert len(programs) == 1


def _text(name: str) -> str:
    from moregpu_kernels.template import FOLDER

    return (FOLDER / f"{name}.wgsl").read_text()


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("  let x: u32 = 1.5;\n}", 6, "expected to be `u32`"),
        ("  nothing(3);\n}", 6, "no definition in scope"),
        ("  out[id.x] = a[id.x]\n}", 7, "expected"),
        ("  if id.x < u.size { store_out(id.x, load_a(id.x)); }\n}", 6, "size"),
        ("  store_out(id.x, vec4<u32>(1u));\n}", 6, "doesn't match the type"),
    ],
)
def test_bad_wgsl_names_the_line(device: Device, body: str, line: int, said: str):
    with pytest.raises(BadKernel, match=said) as caught:
        Programs(device).get(parse_kernel(HEAD + MAIN + body, "mine.wgsl"))
    assert (caught.value.file, caught.value.line) == ("mine.wgsl", line)
    assert caught.value.source_line.strip()


def test_wgsl_that_writes_what_it_declares_as_read_is_refused(device: Device):
    with pytest.raises(BadKernel):
        Programs(device).get(parse_kernel(HEAD + MAIN + "  a[id.x] = vec4<f32>(0.0);\n}", "mine.wgsl"))


def test_a_kernel_without_an_entry_point_is_refused(device: Device):
    with pytest.raises(BadKernel, match="mine"):
        Programs(device).get(parse_kernel(HEAD + "fn other() {}", "mine.wgsl"))


def test_wrong_uniforms_are_refused(device: Device):
    program = Programs(device).get(load_kernel("cast"), (("dtype", "float16"),))
    for values in ((), (1, 2), (1.5,), (-1,)):
        with pytest.raises(BadBinding, match="count"):
            program.pack(0, 1, values)


def test_a_wrong_number_of_tensors_is_refused(executor: Executor, monkeypatch: pytest.MonkeyPatch):
    from moregpu_kernels import compiled
    from moregpu_kernels.fuse import step
    from moregpu_kernels.layout import Plan

    short = Plan("x", (3,), "float32", (Dispatch(load_kernel("cast"), (), (Span("a"),), (3,), 1, 1.0),))
    monkeypatch.setattr(compiled, "plan", lambda *_, **__: short)
    with pytest.raises(BadBinding, match="binds a, out"):
        executor.run([step("relu", {"a": "x"}, "odd")], {"x": np.zeros(3, np.float32)}, ["odd"])
