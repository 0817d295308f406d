"""Builds what people install: `python -m installers.build` (or `make installers`) fills `dist/`.

On Linux: a `.deb`, a tarball, an `install.sh` and an `install.ps1` that have the hashes pinned, `SHA256SUMS`. On
Windows and macOS the same PyInstaller spec is followed by Inno Setup and hdiutil; see `installers/README.md`.

Two builds of one commit on one machine give the same archives: dates come from the commit, entries are sorted, owners
are root, hash seeds are fixed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent
PROGRAMS = ("moregpu", "moregpu-tray", "moregpu-tui")
SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Build for this system."""
    parser = argparse.ArgumentParser(description="Builds the installers of this system.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--work", type=Path, default=ROOT / "build")
    parser.add_argument("--version", default="", help="by default that of the installed package")
    parser.add_argument("--from", dest="source", default="", help="https address of the release, for the scripts")
    parser.add_argument("--frozen", type=Path, help="a folder that PyInstaller has made already")
    given = parser.parse_args(arguments)
    version = given.version or _version()
    given.out.mkdir(parents=True, exist_ok=True)
    epoch = _commit_time()
    folder = given.frozen or freeze(given.work, epoch)
    if sys.platform == "linux":
        made = [debian(folder, given.out, given.work, version, epoch), tarball(folder, given.out, version, epoch)]
        made += scripts(given.out, version, made[1], given.source)
        sums = "".join(f"{_sha256(file)}  {file.name}\n" for file in made)
        (given.out / "SHA256SUMS").write_text(sums)
    for file in sorted(given.out.iterdir()):
        print(f"{file.stat().st_size / 1e6:8.1f} MB  {file}")


def freeze(work: Path, epoch: int) -> Path:
    """PyInstaller's folder with all three programs."""
    out = work / "frozen"
    command = [
        sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN",
        "--distpath", str(out), "--workpath", str(work / "pyinstaller"), str(HERE / "moregpu.spec"),
    ]  # fmt: skip
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "1"}
    # Tracebacks name lines, not columns: their tables would lie in the memory of each process.
    subprocess.run(command, cwd=ROOT, check=True, env=environment | {"PYTHONNODEBUGRANGES": "1"})
    return out / "moregpu"


# ---- Linux -----------------------------------------------------------------------------------------------------------


def debian(folder: Path, out: Path, work: Path, version: str, epoch: int) -> Path:
    """The `.deb`: everything under /opt/moregpu, names in /usr/bin, and what a desktop wants to know."""
    stage = work / "deb"
    shutil.rmtree(stage, ignore_errors=True)
    shutil.copytree(folder, stage / "opt" / "moregpu", symlinks=True)
    share = stage / "usr" / "share"
    binaries = stage / "usr" / "bin"
    binaries.mkdir(parents=True)
    for name in PROGRAMS:
        (binaries / name).symlink_to(f"/opt/moregpu/{name}")
    _copy(HERE / "linux" / "moregpu-tray.desktop", share / "applications" / "moregpu-tray.desktop")
    for size in SIZES:
        place = share / "icons" / "hicolor" / f"{size}x{size}" / "apps" / "moregpu.png"
        _copy(ROOT / "assets" / "icons" / f"moregpu-{size}.png", place)
    _copy(
        HERE / "linux" / "moregpu-worker.service", stage / "usr" / "lib" / "systemd" / "user" / "moregpu-worker.service"
    )
    docs = share / "doc" / "moregpu"
    _copy(ROOT / "LICENSE", docs / "copyright")
    _copy(ROOT / "docs" / "contributor.md", docs / "contributor.md")
    with gzip.GzipFile(docs / "changelog.Debian.gz", "wb", mtime=epoch) as log:
        log.write(
            f"moregpu ({_debian_version(version)}) stable; urgency=medium\n\n  * See the project's history.\n".encode()
        )

    control = stage / "DEBIAN"
    control.mkdir()
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    kib = sum(file.stat().st_size for file in stage.rglob("*") if file.is_file() and not file.is_symlink()) // 1024
    text = (HERE / "linux" / "control").read_text()
    values = {"VERSION": _debian_version(version), "ARCH": architecture, "KIB": str(kib), "GLIBC": _glibc()}
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    (control / "control").write_text(text)
    files = sorted(
        file for file in stage.rglob("*") if file.is_file() and not file.is_symlink() and control not in file.parents
    )
    sums = [
        f"{hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()}  {file.relative_to(stage)}\n"
        for file in files
    ]
    (control / "md5sums").write_text("".join(sums))
    for place in stage.rglob("*"):
        if not place.is_symlink():
            place.chmod(0o755 if place.is_dir() or os.access(place, os.X_OK) else 0o644)
    for place in [*stage.rglob("*"), stage]:  # dpkg-deb only takes back dates that lie after the commit's
        os.utime(place, (epoch, epoch), follow_symlinks=False)
    made = out / f"moregpu_{_debian_version(version)}_{architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", str(stage), str(made)],
        check=True, stdout=subprocess.DEVNULL, env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
    )  # fmt: skip
    return made


def tarball(folder: Path, out: Path, version: str, epoch: int) -> Path:
    """The same folder for systems without dpkg."""
    made = out / f"moregpu-{version}-linux-{platform.machine()}.tar.gz"

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    extra = [
        (HERE / "linux" / "moregpu-tray.desktop", "share/moregpu-tray.desktop"),
        (ROOT / "assets" / "icons" / "moregpu-256.png", "share/moregpu.png"),
        (ROOT / "docs" / "contributor.md", "share/contributor.md"),
        (ROOT / "LICENSE", "share/LICENSE"),
    ]
    with (
        made.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=epoch, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for place in sorted(folder.rglob("*")):
            archive.add(place, f"moregpu/{place.relative_to(folder)}", recursive=False, filter=plain)
        for place, name in extra:
            archive.add(place, f"moregpu/{name}", filter=plain)
    return made


def scripts(out: Path, version: str, archive: Path, source: str) -> list[Path]:
    """`install.sh` and `install.ps1` with the version and the hashes that they check."""
    windows = out / f"moregpu-{version}-windows-x86_64-setup.exe"
    made: list[Path] = []
    for template, name, file in (
        ("linux/install.sh", "install.sh", archive),
        ("windows/install.ps1", "install.ps1", windows),
    ):
        text = (HERE / template).read_text()
        digest = _sha256(file) if file.exists() else ""
        for word, value in {"@VERSION@": version, "@FILE@": file.name, "@SHA256@": digest, "@FROM@": source}.items():
            text = text.replace(word, value)
        place = out / name
        place.write_text(text)
        place.chmod(0o755)
        made.append(place)
    return made


# ---- facts -----------------------------------------------------------------------------------------------------------


def _version() -> str:
    from importlib.metadata import version

    return version("moregpu")


def _debian_version(version: str) -> str:
    """`2.0.0.dev0` sorts before `2.0.0` for dpkg only as `2.0.0~dev0`."""
    return version.replace(".dev", "~dev").replace("rc", "~rc")


def _glibc() -> str:
    return platform.libc_ver()[1] or "2.28"


def _commit_time() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    found = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(found.stdout.strip() or 0)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)


if __name__ == "__main__":
    main()
