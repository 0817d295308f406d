"""Rendered kernels become pipelines, each once: cached by a digest of source, options and the device's generation."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from moregpu_kernels.device import Device, is_native_error
from moregpu_kernels.errors import BadBinding, BadKernel
from moregpu_kernels.template import STANDARD_UNIFORMS, UNIFORM_TYPES, Binding, Kernel, Rendered, Value, render

UNIFORM_STEP: Final = 256
"""Bytes from one dispatch's uniforms to the next: the largest alignment that WebGPU asks for."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A pipeline, and how to feed it."""

    name: str
    digest: str
    pipeline: Any
    layout: Any
    bindings: tuple[Binding, ...]
    uniform_format: struct.Struct
    uniform_names: tuple[str, ...]

    def pack(self, first: int, groups: int, values: tuple[int | float, ...]) -> bytes:
        """The uniforms of one dispatch. Raises BadBinding where the number or the type of values is wrong."""
        try:
            return self.uniform_format.pack(first, groups, float("inf"), float("nan"), 0, *values)
        except (struct.error, OverflowError) as error:
            raise BadBinding(
                f"{self.name} takes the uniforms {', '.join(self.uniform_names)}: {error}", "See its front matter"
            ) from None


class Programs:
    """The pipelines of one device."""

    def __init__(self, device: Device):
        self._device = device
        self._generation = device.generation
        self._programs: dict[str, Program] = {}
        self._rendered: dict[tuple[str, tuple[tuple[str, Value], ...]], str] = {}
        self._layouts: dict[tuple[str, ...], Any] = {}

    def __len__(self) -> int:
        return len(self._programs)

    def get(self, kernel: Kernel, options: tuple[tuple[str, Value], ...] = ()) -> Program:
        """The pipeline of a kernel with options.

        Raises
        ------
        BadKernel
            The template or the WGSL is wrong; with the line as it was written.

        """
        if self._generation != self._device.generation:
            self._programs.clear()
            self._layouts.clear()
            self._rendered.clear()
            self._generation = self._device.generation
        short = (kernel.digest, options)
        digest = self._rendered.get(short)
        if digest is None:
            rendered = render(kernel, dict(options))
            features = ",".join(sorted(self._device.traits.features))
            digest = hashlib.blake2b(f"{features}\0{rendered.source}".encode(), digest_size=16).hexdigest()
            if digest not in self._programs:
                self._programs[digest] = self._compile(kernel, rendered, digest)
            self._rendered[short] = digest
        return self._programs[digest]

    def _compile(self, kernel: Kernel, rendered: Rendered, digest: str) -> Program:
        self._device.check_thread()
        native = self._device.native
        try:
            module = native.create_shader_module(label=kernel.name, code=rendered.source)
            layout = self._layout(rendered.bindings)
            pipeline = native.create_compute_pipeline(
                label=kernel.name,
                layout=native.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
        except Exception as error:
            if not is_native_error(error) or "lost" in str(error):
                raise
            raise explain(error, kernel, rendered) from None
        codes = "".join(UNIFORM_TYPES[kind] for _, kind in rendered.uniforms)
        return Program(
            name=kernel.name,
            digest=digest,
            pipeline=pipeline,
            layout=layout,
            bindings=rendered.bindings,
            uniform_format=struct.Struct("<" + codes),
            uniform_names=tuple(name for name, _ in rendered.uniforms[len(STANDARD_UNIFORMS) :]),
        )

    def _layout(self, bindings: tuple[Binding, ...]) -> Any:
        """The layout that the front matter promises; compiling fails where the WGSL does otherwise."""
        import wgpu

        accesses = tuple(binding.access for binding in bindings)
        if accesses not in self._layouts:
            entries: list[dict[str, Any]] = [
                {
                    "binding": 0,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": "uniform"},
                }
            ]
            entries += [
                {
                    "binding": slot,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": "read-only-storage" if access == "read" else "storage"},
                }
                for slot, access in enumerate(accesses, 1)
            ]
            self._layouts[accesses] = self._device.native.create_bind_group_layout(entries=entries)
        return self._layouts[accesses]


def explain(error: BaseException, kernel: Kernel, rendered: Rendered) -> BadKernel:
    """Turn a compiler's message about rendered WGSL into one about the line that a person wrote."""
    text = str(error)
    detail = _detail(text)
    found = re.search(r"wgsl:(\d+):(\d+)", text) or re.search(r":(\d+):(\d+)", text)
    if not found:
        return BadKernel(detail, file=kernel.file, hint=f"In the kernel {kernel.name}")
    number = min(int(found.group(1)), len(rendered.origins))
    file, line = rendered.origins[number - 1]
    source_line = rendered.source.splitlines()[number - 1]
    hint = "" if line else "This line is made from the front matter's bindings and uniforms"
    return BadKernel(detail, file=file, line=line, source_line=source_line, hint=hint)


def _detail(text: str) -> str:
    """What a compiler's message says, without the source lines that it quotes."""
    found = re.search(r"(?:parsing|validation) error: (.+)", text)
    if found:
        return "; ".join((found.group(1), *re.findall(r"^ *= (.+)$", text, re.MULTILINE)))
    lines = [line.strip() for line in text.splitlines() if line.strip() and "Validation Error" not in line]
    lines = [line for line in lines if line != "Caused by:" and not line.startswith("In wgpu")]
    return "; ".join(lines[:4]) or "The kernel does not compile"
