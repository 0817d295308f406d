"""What a sandbox was proven to hold, kept while nothing can have changed it: an agent that starts again is back sooner.

Only what held is kept, in the worker's private folder, and it counts in the same boot, for the same kernel, programs,
settings and user, for a day. Anything else is tried anew.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from blake3 import blake3

from moregpu.errors import StateRefused
from moregpu.platform.private import read_private, write_private
from moregpu.worker.sandbox import bubblewrap
from moregpu.worker.sandbox.box import Isolation, Runtime, code_folder
from moregpu.worker.sandbox.level import Level, Who, candidates

COUNTS_S = 86_400.0

_PROC = Path("/proc/sys")
_SETTINGS = (
    "kernel/random/boot_id", "kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/seccomp/actions_avail", "kernel/yama/ptrace_scope", "user/max_user_namespaces",
)  # fmt: skip
_OUR_CODE = ("worker/sandbox", "worker/functions")


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    facts: str
    since_boot_s: float
    isolation: Isolation
    why: tuple[str, ...]


class Proven:
    """One file."""

    def __init__(self, path: Path):
        self._path = path

    def level(self, who: Who, runtime: Runtime) -> Level | None:
        """What held here before, where it still must."""
        try:
            data = read_private(self._path)
            kept = None if data is None else msgspec.json.decode(data, type=_Kept)
        except (OSError, StateRefused, msgspec.MsgspecError):
            return None
        if kept is None or kept.isolation == "none" or kept.facts != _facts(who, runtime):
            return None
        if not 0.0 <= time.monotonic() - kept.since_boot_s < COUNTS_S:
            return None
        return Level(isolation=kept.isolation, why=kept.why, who=who)

    def keep(self, level: Level, runtime: Runtime) -> None:
        """Note what held. Where that fails it is tried again the next time."""
        kept = _Kept(
            facts=_facts(level.who, runtime),
            since_boot_s=time.monotonic(),
            isolation=level.isolation,
            why=level.why,
        )
        with contextlib.suppress(OSError, StateRefused):
            write_private(self._path, msgspec.json.encode(kept))


def _facts(who: Who, runtime: Runtime) -> str:
    """A digest of all that a trial's outcome depends on."""
    digest = blake3()
    for fact in _all(who, runtime):
        digest.update(len(fact).to_bytes(8, "little") + fact)
    return digest.hexdigest()


def _all(who: Who, runtime: Runtime) -> Iterator[bytes]:
    yield msgspec.json.encode([who, runtime, candidates(), os.getuid(), list(platform.uname())])
    for name in _SETTINGS:
        try:
            yield (_PROC / name).read_bytes()
        except OSError:
            yield b""
    for program in (runtime.python, bubblewrap.executable() or ""):
        try:
            found = Path(program).stat()
            yield msgspec.json.encode([program, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns])
        except OSError:
            yield b""
    for folder in _OUR_CODE:
        for path in sorted((code_folder() / "moregpu" / folder).glob("*.py")):
            yield path.read_bytes()
