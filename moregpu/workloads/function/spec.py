"""The JobSpec of a function job: one Python function (or a script), and the calls to make of it.

What the parts promise each other about a task of this kind:

- `TaskSpec.inputs`: `program` (uint8), `arguments` (uint8: the encoded arguments of the task's calls, one behind the
  other), and every `shared/<digest>` of the job (uint8: one encoded value each).
- `TaskSpec.parameters`: msgpack of a `CallPlan`.
- `TaskSpec.program`: the BLAKE3 of the program's bytes, in hex. Speeds are kept under it.
- the one output, `results` (uint8, of open size): the records of `moregpu.encoding.records`, one for each call, in
  their order. What a user's code does (raises, exits, crashes, runs out of time or memory, returns what cannot be
  encoded) is that call's record; the other calls of its task have their own. A task fails as a whole only for what is
  no call's doing: its environment cannot be built, the worker is in trouble.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moregpu.jobs import MAX_COUNT, JobCommon, Tensor

PROGRAM = "program"
ARGUMENTS = "arguments"
SHARED = "shared/"
RESULTS = "results"

MAX_CALLS = 10_000
"""Calls of one job; the SDK cuts longer maps."""

MAX_RESULT_BYTES = 1 << 30
"""What one task's results may take at most."""

Form = Literal["pickle", "script"]
Isolate = Literal["job", "task"]
Requirement = Annotated[str, Meta(min_length=1, max_length=200)]

_MADE: dict[str, object] = {"widget": "none"}
"""For forms: a field that is made of others, or is for programs alone."""

_SAID: dict[str, object] = {"blank": "as the file says"}
"""For forms: left empty, the program's own header is asked."""


class FunctionSpec(JobCommon, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="function", tag_field="kind"):
    """Calls of one function. `inputs` holds `program`, `arguments` and the shared values (see the module).

    `program` is a cloudpickle of `(function, {type name: class})` (form `pickle`), or a script's UTF-8 text (form
    `script`: each call runs it with the encoded payload as `payload`). `time_limit_s` is for each call.
    """

    calls: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=MAX_COUNT)], ...],
        Meta(
            title="Calls",
            description="Bytes of each call's encoded arguments",
            max_length=MAX_CALLS,
            extra_json_schema=_MADE,
        ),
    ]
    inputs: Annotated[dict[str, Tensor], Meta(title="Inputs", max_length=1000, extra_json_schema={"widget": "program"})]
    form: Annotated[Form, Meta(title="Form", extra_json_schema=_MADE)] = "pickle"
    session: Annotated[
        str,
        Meta(
            title="Session",
            description="Jobs of one session share a warm process",
            max_length=64,
            extra_json_schema=_MADE,
        ),
    ] = ""
    function: Annotated[
        str, Meta(title="Function", description="Its name, for people", max_length=200, extra_json_schema=_MADE)
    ] = ""
    requires: Annotated[
        tuple[Requirement, ...],
        Meta(title="Requirements", description="Packages, as pip takes them", max_length=100, extra_json_schema=_SAID),
    ] = ()
    python: Annotated[
        str,
        Meta(title="Python", description="Its minor version", pattern=r"^3\.\d{1,2}$", extra_json_schema=_SAID),
    ] = "3.11"
    idempotent: Annotated[
        bool, Meta(title="Idempotent", description="May run again where nobody knows whether it ran")
    ] = True
    isolate: Annotated[Isolate, Meta(title="Isolate", description="A process for the job, or for each task")] = "job"
    network: Annotated[bool, Meta(title="Network", description="Needs the network")] = False
    cores: Annotated[int, Meta(title="Cores", description="A worker's CPU must have", ge=1, le=4096)] | None = None
    gpu: Annotated[bool, Meta(title="GPU", description="Needs a GPU")] = False
    vram_bytes: Annotated[int, Meta(title="GPU memory", ge=0, le=MAX_COUNT)] | None = None
    detach: Annotated[
        bool, Meta(title="Detach", description="Goes on when its submitter is gone", extra_json_schema=_MADE)
    ] = True


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A task's parameters: which calls, and how they are run."""

    form: Form
    first: int  # number of the task's first call in its job
    calls: tuple[int, ...]  # bytes of each call's arguments, one behind the other in `arguments`
    session: str
    requires: tuple[str, ...]
    python: str
    isolate: Isolate
    network: bool
    memory_bytes: int | None = None
    cores: int = 1  # threads that numeric libraries start
    gpu: bool = False  # whether the machine's GPUs are to be seen
