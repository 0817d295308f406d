"""What a confined process is started with, whatever confines it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import msgspec

Isolation = Literal["bubblewrap", "landlock", "none"]
"""How well a machine can confine user code: the word that `Hello.isolation` carries."""

TMPFS_BYTES = 256 << 20

CODE = "/opt/moregpu"
"""Where the pool's own code lies in a built root."""

SOURCE = "source"
"""Where it lies in a program that carries its own Python: functions run on another one, of any version."""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A Python to run functions with, and all that it needs to be able to read."""

    python: str  # the interpreter
    version: str  # "3.12"
    folders: tuple[str, ...]  # its installation and its packages, none of them under /usr
    paths: tuple[str, ...] = ()  # further folders of packages: what it would not find by itself


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox to be started."""

    runtime: Runtime
    network: bool = False
    gpu: bool = False
    tmpfs_bytes: int = TMPFS_BYTES
    user: int | None = None  # whose processes they shall be; None: ours, which must not be root's then
    group: int | None = None
    cores: int = 1


def is_frozen() -> bool:
    """Whether this program carries its own Python, which cannot run anything but this program."""
    return bool(getattr(sys, "frozen", False))


def own_runtime() -> Runtime:
    """The Python that the worker itself runs on, with the worker's packages."""
    prefixes = dict.fromkeys(str(Path(prefix).resolve()) for prefix in (sys.base_prefix, sys.prefix))
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return Runtime(
        python=sys.executable,
        version=f"{sys.version_info.major}.{sys.version_info.minor}",
        folders=tuple(dict.fromkeys(p for p in (*prefixes, *packages) if not _is_under(p, "/usr"))),
        paths=tuple(packages),
    )


def code_folder() -> Path:
    """The folder that holds the package `moregpu` on this machine, as any Python can read it."""
    program = Path(__file__).resolve().parents[3]
    return program / SOURCE if is_frozen() else program


def variables(box: Box) -> dict[str, str]:
    """The environment of user code: nothing of the owner's."""
    from moregpu.worker.child_process import THREAD_VARIABLES

    return dict.fromkeys(THREAD_VARIABLES, str(box.cores)) | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 — a tmpfs of its own
        "TMPDIR": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "",
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "") if box.gpu else "",
    }


def _is_under(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)
