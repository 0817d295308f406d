"""What loads when: a light import is a promise, kept by naming what must not be loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "numpy",
    "asyncio",
    "ssl",
    "http.client",
    "cryptography",
    "nacl",
    "rich",
    "typer",
    "starlette",
    "uvicorn",
    "wgpu",
}


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\nbefore = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(shown.stdout.split())


def test_importing_moregpu_loads_nothing_but_itself() -> None:
    assert {name for name in loaded_by("import moregpu") if name.startswith("moregpu")} == {"moregpu"}
    assert not loaded_by("import moregpu") & (HEAVY | {"msgspec"})


def test_connecting_needs_no_numpy() -> None:
    assert not loaded_by("import moregpu; moregpu.connect; moregpu.KernelSpec") & {
        "numpy", "rich", "typer", "starlette", "uvicorn", "sqlite3"
    }  # fmt: skip


def test_the_command_line_loads_only_what_was_typed() -> None:
    """`moregpu --help` imports no command."""
    loaded = loaded_by("import sys; sys.argv = ['moregpu']; from moregpu.cli.main import build; build(['--help'])")
    assert {name for name in loaded if name.startswith("moregpu.cli.")} == {"moregpu.cli.main"}
    assert not loaded & {"numpy", "asyncio", "http.client", "cryptography", "nacl", "starlette", "msgspec"}


@pytest.mark.parametrize(
    "name",
    ["connect", "Pool", "JobHandle", "KernelSpec", "MoreGPUError", "Access", "Progress", "MoreGPU", "connect_async"],
)
def test_every_public_name_is_there(name: str) -> None:
    import moregpu

    assert getattr(moregpu, name) is not None
    assert name in dir(moregpu)


def test_what_the_sdk_may_load() -> None:
    """A test that fails here asks whether everybody who imports the SDK should pay for what was added."""
    loaded = {name for name in loaded_by("import moregpu; moregpu.Pool") if name.startswith("moregpu.")}
    assert {
        name for name in loaded if name.startswith(("moregpu.coordinator", "moregpu.worker", "moregpu.cli."))
    } == set()
    assert not loaded_by("import moregpu; moregpu.Pool") & {"numpy", "rich", "websockets", "cryptography", "typer"}


def test_a_command_that_asks_the_pool_loads_little() -> None:
    statement = (
        "import sys; sys.argv = ['moregpu', 'workers', '--profile', 'absent']\n"
        "from moregpu.cli.main import main\n"
        "import contextlib, io\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()): main()"
    )
    assert not loaded_by(statement) & {
        "numpy", "rich", "pydantic", "websockets", "asyncio", "starlette", "uvicorn", "cryptography",
        "moregpu.cli.serve",
    }  # fmt: skip
