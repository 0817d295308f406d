"""`moregpu jobs`, `job` and `cancel`."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import msgspec
import typer

from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import (
    JsonOption,
    ago,
    counted,
    left,
    print_facts,
    print_json,
    print_table,
    progress_line,
    say,
    seconds,
)
from moregpu.client.bars import describe
from moregpu.client.job import JobHandle, raise_unless_done
from moregpu.client.signatures import verify_signed
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.wire.api import JobView

MIN_ID = 14
"""Characters of an id that a list shows at least: twelve are the time to the millisecond, and a beginning is enough."""

JobArgument = Annotated[str, typer.Argument(help="The job's id, or a beginning of it that is unique.")]


def jobs(
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only jobs of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, newest first.")] = 20,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """List jobs, newest first."""
    with reach(profile) as pool:
        found = pool.jobs(state=state.value if state else None, kind=kind, limit=limit)
    if as_json:
        print_json([without_keys(view) for view in found])
        return
    characters = _enough([view.id for view in found]) if sys.stdout.isatty() else None
    several = len({view.submitter for view in found}) > 1
    print_table(
        ["JOB", "STATE", "RESULT", "AGE", *(["BY"] if several else []), "WHAT", "NAME"],
        [
            [
                view.id[:characters],
                f"running {view.grains_done}/{view.grains}" if view.state is JobState.RUNNING else view.state,
                _result(view),
                seconds(max(0.0, time.time() - view.created_at)),
                *([view.submitter_name or view.submitter] if several else []),
                view.summary or view.kind,
                view.name,
            ]
            for view in found
        ],
        "No jobs. Try: moregpu submit matmul --size 1024",
    )


def job(
    id: JobArgument,
    wait: Annotated[
        bool, typer.Option("--wait", "--watch", help="Wait for its end, with a bar on a terminal.")
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Forget its outputs and keys, now, where it has ended; its record stays.")
    ] = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Show one job, its tasks, and who signed them. The signatures are verified here."""
    with reach(profile) as pool:
        handle = pool.job(id)
        if wait:
            follow(handle, quiet=as_json)
        if purge:
            handle.purge()
        view = handle.status()
        signed = signers(handle) if view.tasks_done else {}
    if as_json:
        print_json({**msgspec.to_builtins(without_keys(view)), "signers": signed})
    else:
        show_job(view, signed)
    if wait:
        raise_unless_done(view)


def _enough(ids: list[str]) -> int:
    """How many characters of these ids tell them apart, in commands too: for people, who type them."""
    longest = max(map(len, ids), default=0)
    return next((n for n in range(MIN_ID, longest) if len({id[:n] for id in ids}) == len(ids)), longest)


def _result(view: JobView) -> str:
    """What there is to fetch, in a word; `moregpu job` says more."""
    if view.state is not JobState.DONE:
        return ""
    if view.purged:
        return "gone"
    if view.failed_calls:
        return f"{counted(view.failed_calls, 'call')} failed"
    return "checked" if view.checked else "unchecked"


def kept(view: JobView) -> str:
    """Whether the outputs of a job are still there, and for how long; "" while it runs."""
    if view.state not in JOB_ENDED:
        return ""
    if view.purged:
        return "gone"
    if view.state is not JobState.DONE:
        return ""
    if view.result is not None and view.result.dropped:
        return "checked and dropped"
    return f"kept {left(view.kept_until)}"


def cancel(id: JobArgument, as_json: JsonOption = False, profile: ProfileOption = None) -> None:
    """End a job. One that has ended stays as it is."""
    with reach(profile) as pool:
        view = pool.job(id).cancel()
    if as_json:
        print_json(without_keys(view))
    else:
        say("{} is {}", view.id, view.state)


def retry(
    id: JobArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Submit a job again that failed or was cancelled, as it was; it gets a new id."""
    with reach(profile) as pool:
        handle = pool.retry(pool.job(id).id)
        view = follow(handle, quiet=as_json) if wait else handle.view
    print_json(without_keys(view)) if as_json else say("{} is {}", view.id, view.state)
    if wait:
        raise_unless_done(view)


def follow(handle: JobHandle, *, quiet: bool, lines: bool = False) -> JobView:
    """Wait for a job's end; on a terminal its progress is shown meanwhile, or wherever `lines` are asked for."""
    show = None if quiet or lines else progress_line()
    try:
        if show is None and not lines:
            return handle.wait()
        for progress in handle.watch():
            if show is not None:
                show(describe(progress))
            else:
                say("{}", describe(progress), err=True)
    except KeyboardInterrupt:
        if show is not None:
            show("")
        id = handle.id
        say("{} goes on without you; moregpu job {} --watch shows it, moregpu cancel {} ends it", id, id, id, err=True)
        raise
    finally:
        if show is not None:
            show("")
    return handle.view


def signers(handle: JobHandle) -> dict[str, int]:
    """Worker → tasks whose signature was verified here; raises for one that is not good."""
    count: dict[str, int] = {}
    for signed in handle.statements():
        verified = verify_signed(handle.id, signed)
        label = f"{signed.worker_name} {verified.worker}"
        count[label] = count.get(label, 0) + 1
    return count


def without_keys(view: JobView) -> JobView:
    """The job without where its outputs are and what opens them: a terminal, a log or a pipe is no place for keys."""
    return msgspec.structs.replace(
        view, result=msgspec.structs.replace(view.result, outputs={}) if view.result is not None else None
    )


def show_job(view: JobView, signed: dict[str, int]) -> None:
    """Print what there is to know."""
    evidence = ", ".join(f"{counted(count, 'task')} {kind}" for kind, count in sorted(view.evidence.items()))
    print_facts(
        [
            ("job", view.id),
            ("name", view.name),
            ("by", view.submitter_name or view.submitter),
            ("what", view.summary or view.kind),
            ("state", view.state),
            ("waiting", view.waiting_reason if view.state not in JOB_ENDED else ""),
            ("error", view.error.detail if view.error else ""),
            ("submitted", ago(view.created_at)),
            ("grains", f"{view.grains_done} of {view.grains}"),
            ("failed", counted(view.failed_calls, "call") if view.failed_calls else ""),
            ("result", view.result.digest if view.result else ""),
            ("outputs", "gone; record, evidence and signatures stay" if view.purged else kept(view)),
            ("checked", "yes" if view.checked else "no"),
            ("evidence", evidence),
            *[("signed by", f"{worker}: {counted(count, 'task')}, verified here") for worker, count in signed.items()],
            ("queued", seconds(view.timing.queued_s)),
            ("running", seconds(view.timing.running_s)),
            ("checking", seconds(view.timing.checking_s)),
            ("combining", seconds(view.timing.combining_s)),
        ]
    )
    if view.tasks:
        typer.echo("")
        print_table(
            ["TASK", "STATE", "GRAINS", "WORKER", "ATTEMPTS", "EVIDENCE", "TIME"],
            [
                [
                    task.number,
                    task.state,
                    f"{task.grains[0]}–{task.grains[1] - 1}",
                    task.attempts[-1].worker_name if task.attempts else "",
                    len(task.attempts),
                    task.evidence.kind if task.evidence else "",
                    seconds(task.attempts[-1].seconds) if task.attempts else "",
                ]
                for task in view.tasks
            ],
            "",
        )
