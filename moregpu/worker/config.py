"""How a worker is set up: section `[worker]` of `config.toml`, options of `moregpu join`, and the tray's form alike."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moregpu.errors import InvalidRequest
from moregpu.platform.settings import read_section
from moregpu.wire.schedule import parse_schedule
from moregpu.worker.adapters import EngineChoice
from moregpu.workloads import KINDS

YIELD_VARIABLE = "MOREGPU_YIELD"


def _yields() -> bool:
    """MOREGPU_YIELD=off: a machine that nobody sits at keeps to its ceiling and schedule alone."""
    return os.environ.get(YIELD_VARIABLE, "").lower() not in ("off", "0", "no", "false")


def kept_settings() -> dict[str, Any]:
    """What `[worker]` of `config.toml` says to a worker that somebody starts. Raises `NotConfigured`.

    Not that it is paused: that is the tray's, which can be told to go on, and whoever types `join` wants it to work.
    """
    kept = read_section("worker")
    kept.pop("paused", None)
    if YIELD_VARIABLE in os.environ:
        kept.pop("yields", None)
    return kept


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's settings. Holds no secret: the invite goes to `run_worker` beside it."""

    state: Annotated[str, Meta(title="State folder", description="Empty: the usual place")] = ""
    name: Annotated[str, Meta(title="Name", description="Empty: the machine's name", max_length=100)] = ""
    cores: Annotated[int, Meta(title="Cores", description="CPU cores to lend; 0: all but one", ge=0, le=4096)] = 0
    ceiling: Annotated[
        float, Meta(title="Ceiling", description="Highest share of a device that is used", ge=0.05, le=1.0)
    ] = 0.85
    schedule: Annotated[str, Meta(title="Schedule", description="always, 22:00-07:00, mon-fri 19:00-07:00")] = "always"
    engine: Annotated[
        EngineChoice, Meta(title="Engine", description="auto: real GPUs and the CPU; gpu: a software one, too; cpu")
    ] = "auto"
    device: Annotated[
        str, Meta(title="Device", description="Only graphics adapters whose key begins so", max_length=200)
    ] = ""
    cache_bytes: Annotated[int, Meta(title="Cache", description="Disk for sealed inputs", ge=0)] = 2 << 30
    hang_s: Annotated[
        float, Meta(title="Hang", description="A compute process silent for so long is replaced", gt=0)
    ] = 120.0
    unload_s: Annotated[
        float, Meta(title="Unload", description="Engines leave memory after so long without work", gt=0)
    ] = 600.0
    again_s: Annotated[
        float, Meta(title="Second chance", description="A device that failed is tried again after so long", gt=0)
    ] = 60.0
    enrol_wait_s: Annotated[
        float, Meta(title="Patience", description="Seconds to look for a pool that was never reached before", ge=0)
    ] = 30.0

    yields: Annotated[
        bool, Meta(title="Step back", description="Give way to the owner's input, programs, battery and heat")
    ] = msgspec.field(default_factory=_yields)
    kinds: Annotated[
        tuple[str, ...] | None, Meta(title="Kinds", description="Kinds of jobs that may run here; none named: all")
    ] = None
    functions: Annotated[
        tuple[str, ...],
        Meta(
            title="Functions", description="Whose Python code may run here: names, or * for all; none named: nobody's"
        ),
    ] = ()
    functions_network: Annotated[
        bool, Meta(title="Network", description="Functions that ask for the network get it: this machine's, unfiltered")
    ] = False
    functions_unconfined: Annotated[
        bool, Meta(title="I trust this pool", description="Functions run also where no sandbox holds")
    ] = False
    environments_bytes: Annotated[
        int, Meta(title="Environments", description="Disk for the packages that functions ask for", ge=0)
    ] = 20 << 30
    python_downloads: Annotated[
        bool, Meta(title="Interpreters", description="A Python that functions need and is not here may be downloaded")
    ] = False
    paused: Annotated[bool, Meta(title="Paused", description="Start paused, and stay so until told to go on")] = False

    json_lines: Annotated[
        bool, Meta(title="JSON", description="Print what changes as one JSON object a line, for programs")
    ] = False

    @property
    def allowed_kinds(self) -> tuple[str, ...]:
        """Kinds of jobs that may run here. Other people's code is off until it is turned on by `functions`."""
        named = tuple(kind for kind in KINDS if self.kinds is None or kind in self.kinds)
        return tuple(kind for kind in named if kind != "function" or self.functions)

    @property
    def consent(self) -> dict[str, list[str]]:
        """Whose jobs of a kind may run here, for the kinds that are not everybody's."""
        return {"function": list(self.functions)} if self.functions else {}

    @classmethod
    def checked(cls, **fields: Any) -> WorkerConfig:
        """From what a person typed; raises `InvalidRequest` for a value out of its range."""
        try:
            config = msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"a setting of the worker is wrong: {error}", "see `moregpu join --help`") from error
        parse_schedule(config.schedule)
        return config
