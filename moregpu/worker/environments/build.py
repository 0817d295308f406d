"""Builds one environment with uv: wheels only, locked with hashes; nothing of what is installed runs meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from moregpu.errors import EnvironmentRefused, EnvironmentUnavailable
from moregpu.worker.environments.interpreters import best_of, find
from moregpu.worker.environments.requirements import BASE
from moregpu.worker.sandbox.box import Runtime

BUILD_S = 900.0
"""Longer than the largest wheels take over a home line."""

_ASK = "import sys; print(sys.base_prefix); print('%d.%d' % sys.version_info[:2])"

_REFUSED = (
    "No solution found", "was not found in the package registry", "Couldn't parse requirement", "Failed to parse",
    "has no wheels", "no usable wheels", "only-binary",
)  # fmt: skip
_OFFLINE = (
    "error sending request", "dns error", "Connection refused", "Could not connect", "timed out", "Network",
    "Failed to fetch", "offline", "Connectivity is disabled",
)  # fmt: skip
_ABSENT = ("No interpreter found", "No download found", "not find a Python", "Failed to inspect Python")


def uv() -> str:
    """The uv program: the package's own, else one on the path. Raises `EnvironmentUnavailable`."""
    try:
        from uv import find_uv_bin

        return os.fsdecode(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise EnvironmentUnavailable(
            "this worker has no uv to build environments with", "its owner can install it: pip install uv"
        )
    return found


async def installed_version(variables: Mapping[str, str]) -> str | None:
    """The minor version of Python that this machine has for functions. Raises `EnvironmentUnavailable`."""
    status, listed = await _run(
        [uv(), "python", "list", "--only-installed", "--output-format", "json"], variables, only_output=True
    )
    try:
        return best_of(listed.encode()) if status == 0 else None
    except msgspec.MsgspecError:
        return None


async def build(
    folder: Path, python: str, requires: tuple[str, ...], variables: Mapping[str, str], *, downloads: bool
) -> Runtime:
    """Build into `folder`, which must not exist. Raises `EnvironmentUnavailable` and `EnvironmentRefused`."""
    program = uv()
    wanted, lock, place = folder / "requirements.in", folder / "requirements.txt", folder / "python"
    folder.mkdir(parents=True)
    wanted.write_text("\n".join((*BASE, *requires)) + "\n")
    fetch = [] if downloads else ["--no-python-downloads"]
    interpreter = str(place / "bin" / "python")
    for step in (
        ["venv", "--no-project", "--relocatable", *fetch, "--python", find(python), str(place)],
        ["pip", "compile", "--quiet", "--only-binary", ":all:", "--generate-hashes", "--no-header", "--no-annotate",
         "--python", interpreter, str(wanted), "--output-file", str(lock)],
        ["pip", "install", "--require-hashes", "--only-binary", ":all:", "--no-deps", "--python", interpreter,
         "--requirement", str(lock)],
    ):  # fmt: skip
        status, said = await _run([program, *step], variables)
        if status != 0:
            raise _trouble(said, python, requires)
    status, said = await _run([interpreter, "-I", "-S", "-c", _ASK], {})
    lines = said.split()
    if status != 0 or len(lines) != 2:
        raise EnvironmentUnavailable(f"the Python of the new environment does not run: {said[:500]}")
    base = str(Path(lines[0]).resolve())
    packages = str(next(place.glob("lib/python*/site-packages")))
    folders = (str(folder), *(() if Path(base).is_relative_to("/usr") else (base,)))
    return Runtime(python=interpreter, version=lines[1], folders=folders, paths=(packages,))


async def _run(command: list[str], variables: Mapping[str, str], *, only_output: bool = False) -> tuple[int, str]:
    """Exit status and what it said; `only_output`: without its warnings."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL if only_output else asyncio.subprocess.STDOUT,
        env=dict(variables) | {"NO_COLOR": "1"},
        cwd="/",
    )
    try:
        async with asyncio.timeout(BUILD_S):
            said, _ = await process.communicate()
    except TimeoutError:
        raise EnvironmentUnavailable(f"building the environment took longer than {BUILD_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode(errors="replace")


def _trouble(said: str, python: str, requires: tuple[str, ...]) -> EnvironmentUnavailable | EnvironmentRefused:
    """What uv's words mean. Addresses in them may hold somebody's password, so only known ones are passed on."""
    if any(word in said for word in _ABSENT):
        return EnvironmentUnavailable(
            f"this worker has no Python {python}", "its owner can install it, or allow downloads of interpreters"
        )
    if any(word in said for word in _OFFLINE):
        return EnvironmentUnavailable(
            "the packages could not be fetched", "the worker has no network, or its package index does not answer"
        )
    lines = [line.strip() for line in said.splitlines() if line.strip() and "://" not in line]
    words = " ".join(lines)[:600]
    if any(word in said for word in _REFUSED):
        named = ", ".join(requires) or "nothing"
        return EnvironmentRefused(f"no set of wheels for Python {python} satisfies {named}: {words}")
    return EnvironmentUnavailable(f"the environment could not be built: {words}")


def save(runtime: Runtime, folder: Path) -> None:
    """Note that the environment is whole."""
    (folder / "ready.json").write_bytes(msgspec.json.encode(runtime))
