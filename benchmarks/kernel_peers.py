"""What the kernels are compared with, beside the system: onnxruntime-webgpu, and a driver that it accepts.

    python -m benchmarks.kernel_peers

makes a folder (MOREGPU_KERNEL_PEERS, or one in the user's cache) with a Python environment that has onnxruntime-webgpu
and, where only an older Mesa draws here, the Mesa of Debian's backports, unpacked: onnxruntime's WebGPU provider
refuses llvmpipe before Mesa 25. Nothing of the system changes. `benchmarks.kernels` then uses both.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from moregpu_kernels.device import probe
from moregpu_kernels.errors import ProbeFailed
from platformdirs import user_cache_path

OLDEST_MESA = 25
PACKAGE = "mesa-vulkan-drivers"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
STEP_TIMEOUT_S = 300


class CannotHave(Exception):
    """A part that this system does not have: says which, and why."""


def folder() -> Path:
    """Where the parts are."""
    named = os.environ.get("MOREGPU_KERNEL_PEERS")
    return Path(named) if named else user_cache_path("moregpu") / "kernel-peers"


def python() -> str:
    """The interpreter that has onnxruntime: this one, or that of the folder."""
    own = folder() / "python" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    return str(own) if find_spec("onnxruntime") is None and own.exists() else sys.executable


def use_driver() -> None:
    """Have this process and its children draw with the folder's driver, where nothing but software draws here.

    Must be called before a graphics library is loaded. A driver that was chosen by hand stays.
    """
    driver = folder() / "driver.json"
    if driver.exists() and "VK_DRIVER_FILES" not in os.environ and _only_software():
        os.environ["VK_DRIVER_FILES"] = str(driver)


def prepare() -> list[str]:
    """Make the folder; what cannot be had, and why."""
    missing: list[str] = []
    for part in (_prepare_python, _prepare_driver):
        try:
            part()
        except CannotHave as error:
            missing.append(str(error))
    return missing


def _prepare_python() -> None:
    if Path(python()) != Path(sys.executable) or find_spec("onnxruntime") is not None:
        return
    place = folder() / "python"
    venv.create(place, with_pip=True)
    try:
        _run([python(), "-m", "pip", "install", "-q", "numpy", "onnxruntime-webgpu>=1.27"], "onnxruntime-webgpu")
    except CannotHave:
        (place / "pyvenv.cfg").unlink(missing_ok=True)
        raise


def _prepare_driver() -> None:
    if sys.platform != "linux" or (folder() / "driver.json").exists() or not _only_software():
        return
    if not (release := _release()):
        raise CannotHave("a newer Mesa: this is no Debian with backports")
    installed = _run(["dpkg-query", "-W", "-f", "${Version}", PACKAGE], PACKAGE)
    if int(installed.partition(".")[0] or 0) >= OLDEST_MESA:
        return
    place = folder() / "apt"
    for name in ("lists/partial", "archives/partial"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "sources.list").write_text("\n".join(_sources(release)) + "\n")
    # Lists and packages of its own: the system's apt knows nothing of backports, before and after.
    apart = [
        f"Dir::Etc::sourcelist={place}/sources.list", "Dir::Etc::sourceparts=/dev/null",
        f"Dir::State::lists={place}/lists", f"Dir::Cache={place}", "APT::Sandbox::User=root",
    ]  # fmt: skip
    apt = ["apt-get", "-qq", *(word for option in apart for word in ("-o", option))]
    _run([*apt, "update"], "Debian's backports")
    _run([*apt, "download", f"{PACKAGE}/{release}-backports"], f"{PACKAGE} of Debian's backports", place)
    package = max(place.glob(f"{PACKAGE}_*.deb"), key=lambda path: path.stat().st_mtime)
    _run(["dpkg-deb", "-x", str(package), str(folder() / "mesa")], PACKAGE)
    found = sorted((folder() / "mesa/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    libraries = sorted((folder() / "mesa/usr/lib").glob("*/libvulkan_lvp.so"))
    if not found or not libraries:
        raise CannotHave(f"a newer Mesa: {package.name} has no software adapter for {platform.machine()}")
    _run(["ldd", "-r", str(libraries[0])], "libraries that the newer Mesa needs")
    about = json.loads(found[0].read_text())
    about["ICD"]["library_path"] = str(libraries[0])
    (folder() / "driver.json").write_text(json.dumps(about))


def _sources(release: str) -> Iterable[str]:
    """Backports from where this system has its packages from."""
    signed = f"[signed-by={KEYRING}] " if Path(KEYRING).exists() else ""
    for line in sorted(
        set(_run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"], "apt").splitlines())
    ):
        site, _, suite = line.partition(" ")
        if suite == release:
            yield f"deb {signed}{site} {release}-backports main"


def _release() -> str:
    """The name of this Debian; empty elsewhere."""
    about = platform.freedesktop_os_release()
    return about.get("VERSION_CODENAME", "") if about.get("ID") == "debian" else ""


def _only_software() -> bool:
    try:
        return all(adapter.is_software for adapter in probe())
    except ProbeFailed:
        return True


def _run(command: Sequence[str], what: str, place: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotHave(f"{what}: {error}") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["it said nothing"])[-1]
        raise CannotHave(f"{what}: {why[:200]}")
    return done.stdout


def main() -> None:
    """Prepare, and say what there is."""
    for why in (missing := prepare()):
        print(f"missing  {why}")
    if not missing:
        print(f"ready    {folder()}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
