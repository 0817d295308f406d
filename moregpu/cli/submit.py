"""`moregpu submit`: a kernel or a formula on .npy files, or a benchmark for which the pool makes the data."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import msgspec
import typer

from moregpu.cli.files import STANDARD, JobFile, check_place, load, load_job, save
from moregpu.cli.jobs import follow, raise_unless_done, show_job, signers, without_keys
from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, print_json, say
from moregpu.client.options import JobOptions
from moregpu.errors import InvalidRequest
from moregpu.jobs import Check, Engine
from moregpu.workloads.kernel.spec import Operation

if TYPE_CHECKING:
    from moregpu.client.job import JobHandle
    from moregpu.client.pool import Pool


def submit(
    operation: Annotated[
        str, typer.Argument(metavar="KERNEL|JOB.toml", help="The kernel, `script`, or a file that says all of it.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A.npy [B.npy]]",
            help="Its inputs, .npy or .safetensors[:NAME]; - reads standard input. Of a formula: its text, NAME=x.npy. "
            "Of custom: the kernel's name, NAME=x.npy. Of script: FILE.py, or FILE.py:FUNCTION.",
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=0, help="Benchmark: the pool makes data of this size and drops the output.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the result here, .npy or .safetensors; - is standard output."),
    ] = None,
    scalar: Annotated[float | None, typer.Option(help="For saxpy and scale; 1 unless given.")] = None,
    check: Annotated[Check | None, typer.Option(help="How the result is checked; spot unless given.")] = None,
    engine: Annotated[Engine | None, typer.Option(help="Where it may run; auto unless given.")] = None,
    device: Annotated[str | None, typer.Option(help="Run only on devices whose name holds this.")] = None,
    group: Annotated[str | None, typer.Option(help="Run only on workers of this group.")] = None,
    priority: Annotated[
        int | None, typer.Option(min=-100, max=100, help="Higher runs first among your own jobs.")
    ] = None,
    after: Annotated[list[str] | None, typer.Option(help="A job that must be done first; may be repeated.")] = None,
    name: Annotated[str | None, typer.Option(help="Shown in lists.")] = None,
    retries: Annotated[int | None, typer.Option(min=0, max=20, help="Failed attempts before a task fails.")] = None,
    time_limit: Annotated[float | None, typer.Option(min=0.001, help="Seconds for one task.")] = None,
    keep: Annotated[float | None, typer.Option(min=0, help="Seconds that outputs are kept.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of a benchmark's data.")] = None,
    payloads: Annotated[
        str | None,
        typer.Option(metavar="FILE.json", help="Of a script: a list, or JSON itself; it runs once for each item."),
    ] = None,
    requires: Annotated[
        list[str] | None, typer.Option(metavar="PACKAGE", help="Of a script: a package it needs; may be repeated.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for its end.")] = True,
    watch: Annotated[
        bool, typer.Option("--watch", help="Print a line for each step, also where there is no terminal.")
    ] = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Submit a kernel, a formula or a registered kernel on files, or a benchmark, and wait for its end.

    moregpu submit matmul a.npy b.npy -o c.npy

    moregpu submit matmul --size 2048

    moregpu submit formula "exp(-k*x*x) * sin(y)" x=x.npy y=y.npy k=0.5 -o z.npy

    moregpu submit custom leaky_relu a=a.npy slope=0.1 -o b.npy

    moregpu submit script train.py --payloads payloads.json

    moregpu submit job.toml
    """
    if operation == "script" and inputs:
        from moregpu.cli.script import submit_script

        _refuse(
            "of a script",
            {"--size": size, "--output": output, "--scalar": scalar, "--after": after, "--retries": retries}
            | {"--keep": keep, "--seed": seed, f"{inputs[-1]!r}": inputs[1:] or None},
        )
        about = {"name": name, "group": group, "priority": priority, "timeout": time_limit, "check": check}
        about |= {"gpu": device or (engine == "gpu" or None), "requires": requires}
        submit_script(inputs[0], payloads, about, wait=wait, as_json=as_json, profile=profile)
        return
    _refuse("of anything but a script", {"--payloads": payloads, "--requires": requires})
    job = _job(operation, list(inputs or []), size, scalar, output)
    if job.operation not in ("saxpy", "scale"):
        _refuse(f"of {job.operation}", {"--scalar": scalar})
    if output is None and wait:
        output = job.output
    if output is not None:
        check_place(output)
    if (job.size is None) == (not job.inputs and not job.formula):
        raise InvalidRequest("give input files or --size, and not both", "moregpu submit matmul a.npy b.npy -o c.npy")
    if output is not None and (job.size is not None or not wait):
        raise InvalidRequest("there is no output to write", "a benchmark drops its own; --no-wait does not wait for it")
    if output == STANDARD and as_json:
        raise InvalidRequest("standard output is one array or one JSON value", "name a file: -o c.npy")
    given: dict[str, Any] = {
        "check": check,
        "engine": engine,
        "device": device,
        "group": group,
        "priority": priority,
        "after": tuple(after) if after else None,
        "name": name,
        "retries": retries,
        "time_limit_s": time_limit,
        "keep_s": keep,
        "seed": seed,
    }
    options = cast("JobOptions", job.options | {key: value for key, value in given.items() if value is not None})
    by_name = bool(job.formula or job.kernel)
    named = _named(job.inputs) if by_name else {}
    arrays = [] if by_name else [load(path) for path in in_order(job)]
    if len(arrays) > 2:
        raise InvalidRequest(f"{len(arrays)} input files, and no kernel takes more than two")
    with reach(profile) as pool:
        if job.formula:
            handle = pool.formula_job(job.formula, options=options, **named)
        elif job.kernel:
            handle = pool.custom_job(job.kernel, options=options, **named)
        else:
            handle = _submit(pool, job.operation, arrays, job.size, job.scalar, options)
        if not wait:
            print_json(without_keys(handle.view)) if as_json else say("{}", handle.id)
            return
        quiet = as_json or output == STANDARD
        follow(handle, quiet=quiet and not watch, lines=watch)
        view = handle.status()
        signed = signers(handle) if view.tasks_done else {}
        if as_json:
            print_json({**msgspec.to_builtins(without_keys(view)), "signers": signed})
        elif not quiet:
            show_job(msgspec.structs.replace(view, tasks=None), signed)
        raise_unless_done(view)
        if output is not None:
            save(handle.result(), output)


def _refuse(of: str, given: dict[str, Any]) -> None:
    """Raise for what would not be heeded: a job that runs otherwise than it was said is worse than none."""
    for name, value in given.items():
        if value is not None and value != []:
            raise InvalidRequest(f"{of}, {name} means nothing", "leave it away; moregpu submit --help")


def _job(operation: str, inputs: list[str], size: int | None, scalar: float | None, output: str | None) -> JobFile:
    """What is to be done: the file's word, or that of the command line."""
    if operation.lower().endswith(".toml"):
        if inputs or size is not None or scalar is not None:
            raise InvalidRequest("a job file says inputs, size and scalar itself", "write them there")
        return load_job(operation)
    known: tuple[str, ...] = get_args(Operation)
    if operation not in known:
        near = difflib.get_close_matches(operation, known, 1)
        raise InvalidRequest(
            f"there is no kernel {operation[:60]!r}",
            f"did you mean {near[0]}?" if near else f"kernels: {', '.join(known)}; or a JOB.toml",
        )
    first = inputs[0] if operation in ("formula", "custom") and size is None and inputs else ""
    return JobFile(
        operation=cast("Operation", operation),
        inputs=inputs[1:] if first else inputs,
        formula=first if operation == "formula" else "",
        kernel=first if operation == "custom" else "",
        size=size,
        scalar=1.0 if scalar is None else scalar,
    )


def _submit(
    pool: Pool, operation: Operation, arrays: list[Any], size: int | None, scalar: float, options: JobOptions
) -> JobHandle:
    if size is not None:
        return pool.benchmark(operation, size, scalar=scalar, **options)
    return pool.kernel(operation, *arrays, scalar=scalar, **options)


def in_order(job: JobFile) -> list[str]:
    """The files of a kernel's inputs, first `a`, then `b`; a job.toml may name them so."""
    if not isinstance(job.inputs, dict):
        return job.inputs
    places = [job.inputs[name] for name in ("a", "b") if name in job.inputs]
    if len(places) < len(job.inputs) or not all(isinstance(place, str) for place in places):
        raise InvalidRequest(
            f"{job.operation} has the inputs a and b, files both; the job names {', '.join(job.inputs)}",
            'inputs = { a = "a.npy", b = "b.npy" }',
        )
    return [str(place) for place in places]


def _named(given: list[str] | dict[str, str | float]) -> dict[str, Any]:
    """Read the inputs of a formula or a registered kernel, each NAME=FILE.npy or NAME=NUMBER."""
    if isinstance(given, dict):
        return {name: load(value) if isinstance(value, str) else value for name, value in given.items()}
    inputs: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.isidentifier() or name == "options":
            raise InvalidRequest(f"{one!r} names no input", "give each as NAME=FILE.npy or NAME=NUMBER")
        if name in inputs:
            raise InvalidRequest(f"{name} is given twice")
        try:
            inputs[name] = float(value)
        except ValueError:
            inputs[name] = load(value)
    return inputs
