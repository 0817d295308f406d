"""`moregpu submit`: a kernel or a formula on .npy files, or a benchmark for which the pool makes the data."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from moregpu.cli.jobs import follow, raise_unless_done, show_job, signers, without_keys
from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, print_json
from moregpu.client.options import JobOptions
from moregpu.errors import InvalidRequest
from moregpu.jobs import Check, Engine
from moregpu.workloads.kernel.spec import Operation

if TYPE_CHECKING:
    from moregpu.client.job import JobHandle
    from moregpu.client.pool import Pool

STANDARD = "-"


def submit(
    operation: Annotated[Operation, typer.Argument(help="The kernel.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A.npy [B.npy]]",
            help="Its inputs; - reads standard input. Of a formula: its text, then NAME=x.npy.",
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=0, help="Benchmark: the pool makes data of this size and drops the output.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write the result here, as .npy; - is standard output.")
    ] = None,
    scalar: Annotated[float, typer.Option(help="For saxpy and scale.")] = 1.0,
    check: Annotated[Check, typer.Option(help="How the result is checked.")] = "spot",
    engine: Annotated[Engine, typer.Option(help="Where it may run.")] = "auto",
    group: Annotated[str | None, typer.Option(help="Run only on workers of this group.")] = None,
    priority: Annotated[int, typer.Option(min=-100, max=100, help="Higher runs first among your own jobs.")] = 0,
    after: Annotated[list[str] | None, typer.Option(help="A job that must be done first; may be repeated.")] = None,
    name: Annotated[str, typer.Option(help="Shown in lists.")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of a benchmark's data.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for its end.")] = True,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Submit a kernel or a formula on .npy files, or a benchmark, and wait for its end.

    moregpu submit matmul a.npy b.npy -o c.npy

    moregpu submit matmul --size 2048

    moregpu submit formula "exp(-k*x*x) * sin(y)" x=x.npy y=y.npy k=0.5 -o z.npy
    """
    paths = inputs or []
    if (size is None) == (not paths):
        raise InvalidRequest("give input files or --size, and not both", "moregpu submit matmul a.npy b.npy -o c.npy")
    if output is not None and (size is not None or not wait):
        raise InvalidRequest("there is no output to write", "a benchmark drops its own; --no-wait does not wait for it")
    is_formula = operation == "formula" and size is None
    named = _named(paths[1:]) if is_formula else {}
    arrays = [] if is_formula else [_load(path) for path in paths]
    if len(arrays) > 2:
        raise InvalidRequest(f"{len(arrays)} input files, and no kernel takes more than two")
    options = JobOptions(
        check=check,
        engine=engine,
        group=group,
        priority=priority,
        after=tuple(after or ()),
        name=name,
        seed=seed,
    )
    with reach(profile) as pool:
        if is_formula:
            handle = pool.formula_job(paths[0], options=options, **named)
        else:
            handle = _submit(pool, operation, arrays, size, scalar, options)
        if not wait:
            print_json(without_keys(handle.view)) if as_json else typer.echo(handle.id)
            return
        quiet = as_json or output == STANDARD
        follow(handle, quiet=quiet)
        view = handle.status()
        signed = signers(handle) if view.tasks_done else {}
        if as_json:
            print_json({**msgspec.to_builtins(without_keys(view)), "signers": signed})
        elif not quiet:
            show_job(msgspec.structs.replace(view, tasks=None), signed)
        raise_unless_done(view)
        if output is not None:
            _save(handle.result(), output)


def _submit(
    pool: Pool, operation: Operation, arrays: list[Any], size: int | None, scalar: float, options: JobOptions
) -> JobHandle:
    if size is not None:
        return pool.benchmark(operation, size, scalar=scalar, **options)
    return pool.kernel(operation, *arrays, scalar=scalar, **options)


def _named(given: list[str]) -> dict[str, Any]:
    """Read a formula's inputs, each NAME=FILE.npy or NAME=NUMBER."""
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
            inputs[name] = _load(value)
    return inputs


def _load(path: str) -> Any:
    """Read one array. Pickled objects in it are refused, whatever the file says."""
    import numpy as np

    try:
        source: Any = io.BytesIO(sys.stdin.buffer.read()) if path == STANDARD else Path(path)
        array = np.load(source, allow_pickle=False)
    except FileNotFoundError as error:
        raise InvalidRequest(f"there is no file {path}") from error
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, SyntaxError, UnicodeError, MemoryError) as error:
        raise InvalidRequest(f"{path} is no .npy file of numbers: {error}", "numpy.save writes them") from error
    if not isinstance(array, np.ndarray):
        raise InvalidRequest(f"{path} holds several arrays", "save one array to a file: numpy.save")
    return array


def _save(array: Any, path: str) -> None:
    """Write one array; a file appears whole or not at all."""
    import numpy as np

    if path == STANDARD:
        np.save(sys.stdout.buffer, array)
        return
    place = Path(path)
    fresh = place.with_name(f".{place.name}.part")
    try:
        with fresh.open("wb") as file:
            np.save(file, array)
        fresh.replace(place)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}", "choose another place") from error
    finally:
        fresh.unlink(missing_ok=True)
