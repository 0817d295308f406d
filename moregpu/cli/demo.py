"""`moregpu demo`: the whole road on this machine, from a file of numbers to a checked and signed product.

Nothing is believed: the product is compared with NumPy's float64, the digest and the signatures are verified here.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from moregpu.cli.loopback import LoopbackPool
from moregpu.cli.show import JsonOption, counted, print_facts, print_json, print_table, progress_line, seconds
from moregpu.client.bars import describe
from moregpu.client.job import JobHandle
from moregpu.client.signatures import Verified, verify_signed
from moregpu.errors import DigestMismatch, HandshakeFailed, JobFailed
from moregpu.platform.signals import ending_signals
from moregpu.wire.api import JobView
from moregpu.wire.statement import OutputsDigest

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[Any, Any]

WORKERS = ("anna", "ben")
DEMO_SEED = 20_260_101
CORES_EACH = 1


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """What `moregpu demo --json` prints."""

    job: str
    summary: str
    digest: str  # of the result; recomputed here from the bytes that came
    checked: bool
    evidence: dict[str, int]  # kind → tasks
    signed: bool  # every task, each signature verified here
    signers: dict[str, int]  # worker → tasks
    workers: int  # that took part
    worst_error: float  # |product − float64| as a share of what float32 may err; at most 1
    ledger_ok: bool
    seconds: float  # of everything, start and stop included
    parts: dict[str, float]  # seconds of each part


def demo(
    size: Annotated[int, typer.Option(min=1, max=8192, help="Rows and columns of the two matrices.")] = 1024,
    as_json: JsonOption = False,
) -> None:
    """Two workers compute, check and sign a matrix product, here and now; everything is stopped afterwards."""
    begun = time.perf_counter()
    parts: dict[str, float] = {}
    with _stopped_by_signals(), tempfile.TemporaryDirectory(prefix="moregpu-demo-") as folder:
        steps = _Steps(parts, quiet=as_json)
        with LoopbackPool(Path(folder) / "home") as local:
            with steps.of("start", "starting a coordinator and two workers on loopback"):
                local.start_coordinator()
            with steps.of("join", "each worker joins by an invite, is tested with a canary, and measured"):
                for name in WORKERS:
                    local.start_worker(name, cores=CORES_EACH)
                local.wait_for_workers()
            with steps.of("data", f"writing two {size} × {size} matrices to a file, reading them back"):
                A, B = _through_a_file(Path(folder) / "matrices.npz", size)
            with local.connect() as pool:
                with steps.of("submit", "sealing and uploading them, submitting the product"):
                    handle = pool.kernel("matmul", A, B, name="demo")
                with steps.of("compute", "the workers compute; the coordinator checks and combines"):
                    _watch(handle, quiet=as_json)
                with steps.of("fetch", "fetching and opening the result"):
                    C = handle.result()
                with steps.of("verify", "comparing with NumPy float64, verifying digest, signatures, ledger"):
                    worst = _worst_error(A, B, C)
                    view = handle.status()
                    verified = _verified(handle, view, C)
                    ledger_ok = pool.audit().ok
                names = {worker.id: worker.name for worker in pool.workers()}
            with steps.of("stop", "stopping everything"):
                local.stop()
    report = _report(view, verified, worst, ledger_ok, time.perf_counter() - begun, parts)
    if as_json:
        print_json(report)
    else:
        _show(report, view, verified, names)
    if not (report.checked and report.signed and report.ledger_ok and report.worst_error <= 1.0):
        raise JobFailed("the demo's result is not what it must be", "please report it, with the output above")


class _Steps:
    """Says what happens, and how long each part took."""

    def __init__(self, parts: dict[str, float], *, quiet: bool):
        self._parts = parts
        self._quiet = quiet

    @contextmanager
    def of(self, part: str, what: str) -> Generator[None]:
        """Time one part."""
        begun = time.perf_counter()
        if not self._quiet:
            typer.echo(f"• {what}", nl=not sys.stdout.isatty())
        try:
            yield
        finally:
            self._parts[part] = time.perf_counter() - begun
            if not self._quiet and sys.stdout.isatty():
                typer.echo(f"\r• {what}  {typer.style(seconds(self._parts[part]), dim=True)}")


def _through_a_file(path: Path, size: int) -> tuple[Matrix, Matrix]:
    """Real data: drawn, written, read back, and from then on only what the file said."""
    import numpy as np

    rng = np.random.default_rng(DEMO_SEED)
    np.savez(
        path,
        a=rng.standard_normal((size, size), dtype=np.float32),
        b=rng.standard_normal((size, size), dtype=np.float32),
    )
    with np.load(path, allow_pickle=False) as saved:
        return saved["a"], saved["b"]


def _watch(handle: JobHandle, *, quiet: bool) -> None:
    """Wait, with a bar where there is a terminal."""
    show: Callable[[str], None] | None = None if quiet else progress_line()
    if show is not None and sys.stdout.isatty():
        typer.echo("")
    for progress in handle.watch():
        if show is not None:
            show("  " + describe(progress))
    if show is not None:
        show("")


def _worst_error(A: Matrix, B: Matrix, C: Matrix) -> float:
    """Largest |C − A·B| over what float32 sums in any order may err: γ_K (|A||B|), γ_K = K·u / (1 − K·u), u = 2⁻²⁴.

    (Higham, Accuracy and Stability of Numerical Algorithms, 3.5.) NaN anywhere gives infinity.
    """
    import numpy as np

    exact = A.astype(np.float64) @ B.astype(np.float64)
    unit = A.shape[1] * 2.0**-24
    bound = unit / (1.0 - unit) * (np.abs(A).astype(np.float64) @ np.abs(B).astype(np.float64))
    worst = float(np.max(np.abs(C - exact) / np.maximum(bound, np.finfo(np.float64).tiny)))
    return worst if worst <= sys.float_info.max else float("inf")


def _verified(handle: JobHandle, view: JobView, C: Matrix) -> list[Verified]:
    """Every signature from the key up, and that the digest is that of the bytes which came."""
    found = [verify_signed(handle.id, signed) for signed in handle.statements()]
    if len({(statement.task) for statement in found}) != view.tasks_total:
        raise HandshakeFailed(f"{len(found)} signed statements for {view.tasks_total} tasks")
    digest = OutputsDigest()
    name = next(iter(view.result.outputs)) if view.result else ""
    digest.begin(name, C.dtype.name, C.shape)
    digest.update(C.reshape(-1).data.cast("B"))
    if view.result is None or digest.hex() != view.result.digest:
        raise DigestMismatch("the result that came is not the one that the coordinator combined")
    return found


def _report(
    view: JobView,
    verified: list[Verified],
    worst: float,
    ledger_ok: bool,
    total_s: float,
    parts: dict[str, float],
) -> Demo:
    signers: dict[str, int] = {}
    for statement in verified:
        signers[statement.worker] = signers.get(statement.worker, 0) + 1
    return Demo(
        job=view.id,
        summary=view.summary,
        digest=view.result.digest if view.result else "",
        checked=view.checked,
        evidence=view.evidence,
        signed=view.signed and len(verified) == view.tasks_total > 0,
        signers=signers,
        workers=len(signers),
        worst_error=worst,
        ledger_ok=ledger_ok,
        seconds=round(total_s, 3),
        parts={
            **{part: round(spent, 4) for part, spent in parts.items()},
            "queued": round(view.timing.queued_s, 4),
            "running": round(view.timing.running_s, 4),
            "checking": round(view.timing.checking_s, 4),
            "combining": round(view.timing.combining_s, 4),
        },
    )


def _show(report: Demo, view: JobView, verified: list[Verified], names: dict[str, str]) -> None:
    """The result for a person."""
    evidence = ", ".join(f"{counted(count, 'task')} {kind}" for kind, count in sorted(report.evidence.items()))
    typer.echo("")
    print_facts(
        [
            ("product", report.summary),
            ("digest", report.digest),
            ("right", f"worst error {report.worst_error:.1%} of what float32 may err, against NumPy float64"),
            ("checked", f"{'yes' if report.checked else 'NO'}: {evidence}"),
            ("ledger", "verifies" if report.ledger_ok else "DOES NOT VERIFY"),
        ]
    )
    grains = {task.id: task.grains for task in view.tasks or []}
    typer.echo("")
    print_table(
        ["SIGNED BY", "WORKER", "TASK MADE", "ITS TIME"],
        [
            [
                names.get(statement.worker, "?"),
                statement.worker[:12],
                " + ".join(" × ".join(str(length) for length in output.shape) for output in statement.outputs)
                + (f"  ({_grains(*grains[statement.task])})" if statement.task in grains else ""),
                seconds(statement.ran.seconds),
            ]
            for statement in sorted(verified, key=lambda one: grains.get(one.task, (0, 0)))
        ],
        "nobody signed",
    )
    typer.echo("")
    print_facts([(part, seconds(spent)) for part, spent in report.parts.items()])
    typer.echo(
        f"\n{seconds(report.seconds)} in all. Nothing is left running. A pool that stays: moregpu serve --worker"
    )


@contextmanager
def _stopped_by_signals() -> Generator[None]:
    """Make SIGTERM and SIGHUP unwind like Ctrl-C, so that nothing that was started is left behind."""

    def leave(number: int, frame: FrameType | None) -> None:
        for each in watched:  # the unwinding itself is not interrupted again
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    watched = ending_signals()
    before = {number: signal.signal(number, leave) for number in watched}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _grains(start: int, stop: int) -> str:
    return f"grain {start}" if stop - start == 1 else f"grains {start}–{stop - 1}"
