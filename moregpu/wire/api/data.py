"""What stays on the pool: named tensors, registered kernels, blobs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from moregpu.jobs import Tensor
from moregpu.wire.api.bodies import Body, View


class TensorRequest(Body, frozen=True, kw_only=True):
    """POST /v1/tensors: name a tensor, so that its blob stays here. The same name again replaces it."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$")]
    tensor: Tensor


class TensorView(View, frozen=True, kw_only=True):
    """A named tensor. `tensor` carries the key: put it into a JobSpec's inputs."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    created_at: float
    tensor: Tensor


class KernelRequest(Body, frozen=True, kw_only=True):
    """POST /v1/kernels: register a kernel, its whole text with front matter and reference (`docs/kernels.md`)."""

    source: Annotated[str, Meta(title="WGSL", min_length=1, max_length=6_144)]


class KernelView(View, frozen=True, kw_only=True):
    """A registered kernel."""

    name: str
    digest: str
    summary: str = ""
    inputs: list[str] = []
    parameters: list[str] = []  # numbers that a job gives
    reference: str = ""  # the formula that CPUs compute and results are judged by
    source: str = ""
    created_at: float = 0.0


class BlobView(View, frozen=True, kw_only=True):
    """What an upload came to: whole, with the name and length of the sealed bytes, or partial, with `offset`."""

    digest: str | None = None
    sealed_bytes: int | None = None
    offset: int | None = None
