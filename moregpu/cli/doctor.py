"""`moregpu doctor`: what a helpdesk would ask for. It changes nothing, and no secret is in what it tells."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from moregpu.cli.config import SECTIONS, check
from moregpu.cli.main import of_this_machine
from moregpu.cli.reach import ProfileOption, reach
from moregpu.cli.show import JsonOption, print_json, print_table, say
from moregpu.errors import InvalidRequest, MoreGPUError, NotConfigured, StateRefused, Unavailable
from moregpu.platform import paths
from moregpu.wire.api import WorkerView

SECRET = re.compile(r"MGPUC?1-[A-Za-z0-9-]+|mgt_[A-Za-z0-9_-]{8,}|Bearer\s+\S+", re.IGNORECASE)
"""Invites, client lines, tokens: what is found is replaced, whatever file it stands in."""

PACKAGES = ("moregpu", "numpy", "msgspec", "cryptography", "websockets", "starlette", "uvicorn", "wgpu", "textual")
LOG_LINES = 200
LOW_DISK = 0.10
NAMED = 4
"""Workers in one state that are called by their names."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    what: str
    ok: bool
    found: str
    hint: str = ""


def doctor(
    bundle: Annotated[
        Path | None, typer.Option(help="Write all of it, with the end of the logs, to this file.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Look at this machine and its way to the pool; say what is wrong and what mends it. Changes nothing."""
    findings = [_of(what, look, named=profile is not None) for what, look in _looks(profile)]
    if bundle is not None:
        _write(bundle, findings)
    if as_json:
        print_json(findings)
    else:
        print_table(
            ["", "WHAT", "FOUND"],
            [
                ["✓" if one.ok else "✗", one.what, f"{one.found}{' → ' + one.hint if one.hint else ''}"]
                for one in findings
            ],
            "",
            longest=1000,  # a hint that ends early helps nobody
            whole=True,
        )
        if bundle is not None:
            say("\nAll of it is in {}, without secrets. Read it before you send it.", bundle, err=True)
    if not all(one.ok for one in findings):
        raise typer.Exit(1)


def without_secrets(text: str) -> str:
    """A text without what opens anything."""
    return SECRET.sub("(secret removed)", text)


def _looks(profile: str | None) -> list[tuple[str, Callable[[], str]]]:
    return [
        ("version", _version),
        ("system", lambda: f"{platform.platform()}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}"),
        ("packages", _packages),
        ("disk", _disk),
        ("settings", _settings),
        ("state", _state),
        ("secrets", _secrets),
        ("worker here", _worker),
        ("devices here", _devices),
        ("functions here", _functions),
        ("profile", lambda: _profile(profile)),
        ("pool", lambda: _pool(profile)),
        ("workers", lambda: _workers(profile)),
    ]


def _of(what: str, look: Callable[[], str], *, named: bool = False) -> Finding:
    """What one look finds. `named`: a profile was asked for by its name, and must be there."""
    try:
        return Finding(what=what, ok=True, found=without_secrets(look()))
    except NotConfigured as error:  # a machine that only works for a pool needs none of its own
        ok = what not in ("profile", "pool") if named else what != "pool" or bool(_works_here())
        return Finding(what=what, ok=ok, found=without_secrets(error.detail), hint=error.hint)
    except MoreGPUError as error:
        return Finding(what=what, ok=False, found=without_secrets(error.detail), hint=without_secrets(error.hint))
    except OSError as error:
        refused = of_this_machine(error) or StateRefused(str(error))
        return Finding(what=what, ok=False, found=without_secrets(refused.detail), hint=refused.hint)


def _version() -> str:
    import moregpu

    return moregpu.__version__


def _packages() -> str:
    found: list[str] = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _disk() -> str:
    from moregpu.platform.settings import part_folder

    place = part_folder("pool")
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    if usage.free < LOW_DISK * usage.total:
        raise InvalidRequest(f"{usage.free / 2**30:.1f} GiB free at {place}", "a coordinator stops taking data at 10 %")
    return f"{usage.free / 2**30:.1f} GiB free at {place}"


def _settings() -> str:
    from moregpu.platform.settings import read_section

    kept = {section: read_section(section) for section in SECTIONS}
    for section, settings in kept.items():
        check(section, settings)
    names = [f"{section}.{key}" for section, settings in kept.items() for key in settings]
    variables = sorted(name for name in os.environ if name.startswith("MOREGPU_"))
    return f"{paths.config_file()}: {', '.join(names) or 'none'}; environment: {', '.join(variables) or 'none'}"


def _state() -> str:
    """Whether this user may keep anything here, and whether the pool that lies here would open."""
    from moregpu.platform.settings import part_folder

    folder = part_folder("pool")
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise StateRefused(
            f"{place} cannot be written by this user: nothing can be kept in {folder}",
            "mend its rights, or choose another place: MOREGPU_HOME moves everything",
        )
    if not (folder / "pool.json").exists():
        return f"no pool lies in {folder}"
    from moregpu.coordinator.state import check_state

    check_state(folder)
    return f"a pool lies in {folder}, for this user alone"


def _secrets() -> str:
    from moregpu.platform.secrets import TokenStore

    return TokenStore().told()


def _worker() -> str:
    here = _works_here()
    return f"joined, in {', '.join(map(str, here))}" if here else "has not joined a pool"


def _works_here() -> list[Path]:
    """Folders of workers that have joined: `join`'s, and beside it those of `serve --worker` and of `--state`."""
    from moregpu.worker.home import has_joined, worker_folder

    usual = worker_folder("")
    return [folder for folder in (usual, *sorted(usual.parent.glob("worker-*"))) if has_joined(folder)]


def _devices() -> str:
    """What a worker would compute with here, and with which driver. No GPU is no illness, but said, with the reason."""
    from moregpu.worker.adapters import find_devices
    from moregpu.worker.devices import lent_cores

    found = find_devices(lent_cores(0))
    gpus = [f"{device.id} {device.name}, {device.driver}" for device in found.devices if device.kind == "gpu"]
    if not gpus:
        raise NotConfigured(found.told, "docs/gpu.md says what a GPU needs; jobs run on the CPU meanwhile")
    return f"{'; '.join(gpus)}; and the CPU"


def _functions() -> str:
    """Which sandbox would hold other people's Python code here: each is tried. None is no illness, but said."""
    import asyncio
    import tempfile

    from moregpu.worker.functions.probe import find_level

    with tempfile.TemporaryDirectory(prefix="moregpu-") as folder:
        Path(folder).chmod(0o755)
        level = asyncio.run(find_level(Path(folder)))
    tried = f" ({'; '.join(level.why)})" if level.why else ""
    if level.isolation == "none":
        raise NotConfigured(f"no sandbox holds here{tried}", "docs/security.md says what is needed")
    return f"{level.isolation}: nothing gets out{tried}"


def _profile(profile: str | None) -> str:
    from moregpu.client.access import find_access

    return f"{find_access(profile=profile)!r}; profiles: {', '.join(paths.profile_names()) or 'none'}"


def _pool(profile: str | None) -> str:
    with reach(profile) as pool:
        info, me = pool.info(), pool.me()
    return f"{info.name} {info.version}, as {me.role}; {info.jobs_queued} queued, {info.jobs_running} running"


def _workers(profile: str | None) -> str:
    with reach(profile) as pool:
        return states_of(pool.workers())


def states_of(workers: list[WorkerView]) -> str:
    """Which worker stands how: those that stand alike together, and of many only some by name.

    Raises `Unavailable` where all are offline.
    """
    alike: dict[str, list[str]] = {}
    for worker in workers:
        alike.setdefault(f"{worker.state}{': ' + worker.reason if worker.reason else ''}", []).append(worker.name)
    found = "; ".join(f"{_named(names)} {state}" for state, names in alike.items())
    if workers and all(worker.state == "offline" for worker in workers):
        raise Unavailable(found, "nothing is computed until one of them comes: moregpu join there, or its tray")
    return found or "none has joined"


def _named(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMED])} and {more} more"


def _write(bundle: Path, findings: list[Finding]) -> None:
    """One JSON file: what was found, and the end of each log."""
    logs: dict[str, list[str]] = {}
    for path in sorted(paths.log_folder().glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
        logs[path.name] = [without_secrets(line) for line in lines]
    content: dict[str, Any] = {"findings": msgspec.to_builtins(findings), "logs": logs}
    try:
        bundle.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))
    except OSError as error:
        raise InvalidRequest(
            f"{bundle} cannot be written: {error.strerror or error}", "choose another place"
        ) from error
