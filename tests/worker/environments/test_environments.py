"""Environments with the real uv and the index that this machine is set up with: built once, reused, clear when not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from moregpu.errors import EnvironmentRefused, EnvironmentUnavailable
from moregpu.worker.environments.build import save
from moregpu.worker.environments.cache import Environments
from moregpu.worker.functions.room import FunctionRoom
from moregpu.worker.sandbox.box import Runtime, own_runtime
from tests.worker.functions.rooms import Owner, called, with_room

OWN = own_runtime().version


def get(folder: Path, python: str, *requires: str) -> Runtime:
    return asyncio.run(Environments(folder).runtime(python, requires))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Runtime]:
    """An environment with one small package that this one has not."""
    folder = tmp_path_factory.mktemp("environments")
    try:
        return folder, get(folder, OWN, "toolz")
    except EnvironmentUnavailable as error:
        pytest.skip(f"missing: a package index ({error}); mend: connect this machine to one")


def test_without_packages_it_is_the_worker_s_own_python(tmp_path: Path) -> None:
    assert get(tmp_path, OWN) == own_runtime()
    assert list(tmp_path.iterdir()) == []


def test_packages_are_there_and_the_worker_s_own_are_not(built: tuple[Path, Runtime]) -> None:
    _, runtime = built
    code = "import toolz, cloudpickle, msgspec, importlib.util as u; print(u.find_spec('starlette'))"
    said = subprocess.run([runtime.python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "None"


def test_everything_installed_was_locked_by_its_hash(built: tuple[Path, Runtime]) -> None:
    folder, _ = built
    (lock,) = folder.glob("*/requirements.txt")
    text = lock.read_text()
    assert "toolz==" in text
    assert text.count("--hash=sha256:") >= text.count("==")


def test_a_second_wish_finds_it_without_starting_anything(
    built: tuple[Path, Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, runtime = built

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    assert get(folder, OWN, "toolz") == runtime


def test_one_whose_building_was_cut_off_is_built_anew(built: tuple[Path, Runtime], tmp_path: Path) -> None:
    folder, _ = built
    (name,) = [path.name for path in folder.iterdir()]
    (tmp_path / name / "python").mkdir(parents=True)
    runtime = get(tmp_path, OWN, "toolz")
    assert Path(runtime.python).exists()


def test_a_function_runs_in_it_and_cannot_change_it(built: tuple[Path, Runtime], tmp_path: Path) -> None:
    _, runtime = built

    async def runtime_of(python: str, requires: tuple[str, ...]) -> Runtime:
        del python, requires
        return runtime

    async def story(room: FunctionRoom, owner: Owner) -> None:
        def use() -> list[Any]:
            import toolz

            try:
                with open(os.path.join(os.path.dirname(toolz.__file__), "mine.py"), "w") as file:
                    file.write("1")
            except OSError as error:
                return [toolz.last([1, 2, 3]), error.errno]
            return ["written"]

        assert await called(room, owner, 1, use) == [3, 30]  # EROFS

    with_room(tmp_path, story, runtime=runtime_of)


def test_each_task_asks_for_its_environment_so_that_one_in_use_is_not_thrown_away(
    built: tuple[Path, Runtime], tmp_path: Path
) -> None:
    _, runtime = built
    asked: list[str] = []

    async def runtime_of(python: str, requires: tuple[str, ...]) -> Runtime:
        del requires
        asked.append(python)
        return runtime

    async def story(room: FunctionRoom, owner: Owner) -> None:
        for number in (1, 2):
            assert await called(room, owner, number, lambda x: x, number) == number

    with_room(tmp_path, story, runtime=runtime_of)
    assert asked == [OWN, OWN]


def test_what_a_package_runs_at_start_runs_confined_and_never_as_root(
    built: tuple[Path, Runtime], tmp_path: Path
) -> None:
    _, runtime = built
    (packages,) = runtime.paths
    early = Path(packages) / "early.pth"
    early.write_text(
        "import builtins, os; "
        "builtins.early = getattr(builtins, 'early', 0) or (os.getuid(), open('/proc/self/status').read())\n"
    )

    async def runtime_of(python: str, requires: tuple[str, ...]) -> Runtime:
        del python, requires
        return runtime

    async def story(room: FunctionRoom, owner: Owner) -> None:
        def look() -> tuple[int, str]:
            import builtins

            return builtins.early  # type: ignore[attr-defined]

        user, status = await called(room, owner, 1, look)
        assert user != 0
        assert "Seccomp:\t2" in status

    try:
        with_room(tmp_path, story, runtime=runtime_of)
    finally:
        early.unlink()


def test_a_package_that_does_not_exist_is_nobody_s_to_build(built: tuple[Path, Runtime], tmp_path: Path) -> None:
    del built
    with pytest.raises(EnvironmentRefused, match="surely-not-a-package-of-anybody"):
        get(tmp_path, OWN, "surely-not-a-package-of-anybody")
    assert list(tmp_path.iterdir()) == []


def test_a_python_that_is_not_here_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable, match=r"no Python 3\.99"):
        get(tmp_path, "3.99")


def test_without_network_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(EnvironmentUnavailable, match="could not be fetched") as caught:
        get(tmp_path / "environments", OWN, "toolz")
    assert "127.0.0.1" not in str(caught.value)


def test_a_failure_is_not_tried_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def twice() -> None:
        environments = Environments(tmp_path)
        with pytest.raises(EnvironmentUnavailable):
            await environments.runtime("3.99", ("toolz",))
        monkeypatch.setattr(asyncio, "create_subprocess_exec", None)
        with pytest.raises(EnvironmentUnavailable, match=r"no Python 3\.99"):
            await environments.runtime("3.99", ("toolz",))

    asyncio.run(twice())


def _made(folder: Path, name: str, size: int, age_s: float) -> Runtime:
    """An environment as it stands on disk, used so long ago."""
    place = folder / name
    (place / "python" / "bin").mkdir(parents=True)
    (place / "python" / "lib").write_bytes(bytes(size))
    runtime = Runtime(python=str(place / "python" / "bin" / "python"), version=OWN, folders=(str(place),))
    Path(runtime.python).touch()
    save(runtime, place)
    os.utime(place / "ready.json", (time.time() - age_s,) * 2)
    return runtime


@pytest.mark.parametrize(("most_mib", "left"), [(100, {"new", "old", "older"}), (9, {"new", "old"}), (1, {"new"})])
def test_environments_take_no_more_disk_than_their_owner_gives_and_the_longest_unused_go(
    tmp_path: Path, most_mib: int, left: set[str]
) -> None:
    for age, name in enumerate(("new", "old", "older")):
        _made(tmp_path, name, 4 << 20, 10.0 * age)
    environments = Environments(tmp_path, most_bytes=most_mib << 20)
    environments._throw_away("new", set(), time.time())
    assert {path.name for path in tmp_path.iterdir()} == left


def test_one_that_a_sandbox_uses_stays_whatever_it_takes(tmp_path: Path) -> None:
    used = _made(tmp_path, "used", 4 << 20, 1000.0)
    for age in range(3):
        _made(tmp_path, f"other{age}", 4 << 20, float(age))
    environments = Environments(tmp_path, most_bytes=9 << 20)
    environments._throw_away("other0", {Path(used.python)}, time.time())
    assert {path.name for path in tmp_path.iterdir()} == {"used", "other0", "other1"}
    environments = Environments(tmp_path, most_bytes=0)
    environments._throw_away("other0", {Path(used.python)}, time.time())
    assert {path.name for path in tmp_path.iterdir()} == {"used", "other0"}


def test_a_room_says_which_environments_its_sandboxes_have(built: tuple[Path, Runtime], tmp_path: Path) -> None:
    _, runtime = built

    async def runtime_of(python: str, requires: tuple[str, ...]) -> Runtime:
        del python, requires
        return runtime

    async def story(room: FunctionRoom, owner: Owner) -> None:
        assert room.runtimes() == []
        assert await called(room, owner, 1, lambda x: x, 1) == 1
        assert room.runtimes() == [runtime]

    with_room(tmp_path, story, runtime=runtime_of)
