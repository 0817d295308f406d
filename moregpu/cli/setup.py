"""`moregpu setup`: what this machine has, what it could be, and the next line to type. Changes nothing."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import psutil
import typer

from moregpu.cli.show import JsonOption, print_json, print_table, say
from moregpu.platform.settings import part_folder
from moregpu.worker.adapters import find_devices
from moregpu.worker.devices import lent_cores, machine_name, system_text, usable_cores
from moregpu.worker.functions.probe import find_level
from moregpu.worker.home import has_joined, worker_folder

Part = Literal["coordinator", "worker", "both"]
PARTS: tuple[Part, ...] = ("coordinator", "worker", "both")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Sizes in bytes."""

    name: str
    system: str
    cores: int
    memory_bytes: int
    gpus: list[str]
    gpu_note: str
    """Why there is none, where there is none."""
    sandbox: str
    """Which one holds for other people's Python code; `none` where none does."""
    sandbox_note: str
    """Why no better one."""
    has_joined: bool
    """Whether it is a pool's worker already."""
    holds_pool: bool
    """Whether a coordinator ran here before."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One line to type, and why."""

    line: str
    why: str


def setup(
    part: Annotated[
        Part | None, typer.Option("--as", help="What this machine is to be; asked for on a terminal.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at this machine, ask what it is to be, and say the next line to type. Nothing is changed."""
    machine = find_machine()
    if not as_json:
        print_table(["", "FOUND"], rows_of(machine), "", longest=1000, whole=True)
    if part is None and not as_json and sys.stdin.isatty():
        typer.echo("\nA pool has one coordinator, which is always on and takes the jobs; workers compute.")
        part = _asked()
    steps = {each: next_steps(machine, each) for each in (PARTS if part is None else (part,))}
    if as_json:
        print_json({"machine": machine, "next": steps})
        return
    for each, lines in steps.items():
        say("\nAs {}:" if part is None else "\nNext:", each)
        for step in lines:
            say("  {}\n      {}", step.line, step.why)


def find_machine() -> Machine:
    """Look. Takes seconds where a GPU or a sandbox is tried."""
    devices = find_devices(lent_cores(0))
    gpus = [f"{device.name}, {device.driver}" for device in devices.devices if device.kind == "gpu"]
    with tempfile.TemporaryDirectory(prefix="moregpu-") as folder:
        Path(folder).chmod(0o755)  # the sandbox's user looks in
        level = asyncio.run(find_level(Path(folder)))
    return Machine(
        name=machine_name(),
        system=system_text(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        gpu_note="" if gpus else devices.told,
        sandbox=level.isolation,
        sandbox_note="; ".join(level.why),
        has_joined=has_joined(worker_folder("")),
        holds_pool=(part_folder("pool") / "listening.json").exists(),
    )


def rows_of(machine: Machine) -> list[list[str]]:
    """The table."""
    return [
        ["machine", f"{machine.name}: {machine.system}"],
        ["CPU", f"{machine.cores} cores, {machine.memory_bytes / (1 << 30):.1f} GiB of memory"],
        ["GPU", "; ".join(machine.gpus) or f"none: it computes with {machine.gpu_note}"],
        ["functions", _sandboxed(machine)],
        ["pool", _standing(machine)],
    ]


def next_steps(machine: Machine, part: Part) -> list[Step]:
    """What to type, in order."""
    steps: list[Step] = []
    if part != "worker":
        with_worker = " --worker" if part == "both" else ""
        again = "goes on with the pool of this machine" if machine.holds_pool else "prints how to get in, once"
        steps += [
            Step(line=f"moregpu serve --host 0.0.0.0{with_worker}", why=f"{again}; other machines may join"),
            Step(line="moregpu invite", why="one line for each machine that is to compute"),
        ]
    if part == "worker":
        why = "goes on for its pool" if machine.has_joined else "asks for the invite that the pool's admin made"
        steps.append(Step(line="moregpu join", why=f"{why}; it steps back whenever you use the machine"))
    if part == "worker" and machine.sandbox != "none":
        steps.append(
            Step(line="moregpu join --allow functions=NAMES", why="the same, and lets Python of named people in")
        )
    return steps


def _sandboxed(machine: Machine) -> str:
    why = f" ({machine.sandbox_note})" if machine.sandbox_note else ""
    return f"stay off: no sandbox holds here{why}" if machine.sandbox == "none" else f"in {machine.sandbox}{why}"


def _standing(machine: Machine) -> str:
    found = ["a coordinator ran here before"] if machine.holds_pool else []
    found += ["is a worker already"] if machine.has_joined else []
    return "; ".join(found) or "belongs to none yet"


def _asked() -> Part:
    while True:
        answer = typer.prompt("This machine is to be: coordinator, worker or both").strip().lower()
        for part in PARTS:
            if answer and part.startswith(answer):
                return part
