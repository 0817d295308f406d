"""What every test shares: the rule about skips, and a place of its own for everything that is saved."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Tests start hundreds of Python processes: what those import is compiled once, beside the virtual environment and not
# in the source tree, whatever the developer's own setting is. It halves what a start costs.
sys.dont_write_bytecode = False
sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(sys.prefix) / "pycache")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("quick", max_examples=20)
"""`make quick` asks for it; where a test names a number of its own, that holds."""

MISSING = "missing:"
"""A skip for a part that could be installed begins so, and says how to mend it:
`pytest.skip("missing: gnome-keyring; mend: apt-get install gnome-keyring")`. Under MOREGPU_REQUIRE_ALL=1, as in CI,
it is a failure. Other skips (another system, another Python) stay skips."""

REQUIRE_ALL = os.environ.get("MOREGPU_REQUIRE_ALL") == "1"


def _fail_when_missing(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not REQUIRE_ALL or not report.skipped or not isinstance(report.longrepr, tuple):
        return
    path, line, reason = report.longrepr
    reason = str(reason).removeprefix("Skipped: ")
    if reason.startswith((MISSING, "could not import")):
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: {reason}\n(a skip is a failure here: MOREGPU_REQUIRE_ALL=1)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_when_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_when_missing(report)
    return report


@pytest.fixture(autouse=True, scope="session")
def nothing_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the pool of whoever runs it, nor obeys their environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MOREGPU_") and name != "MOREGPU_REQUIRE_ALL"]:
            patch.delenv(name)
        patch.setenv("MOREGPU_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("MOREGPU_YIELD", "off")  # nor steps back for the load of the other tests
        patch.setenv("MOREGPU_SECRETS", "file")  # nor puts anything into their keyring
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty MOREGPU_HOME for one test."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("MOREGPU_HOME", str(folder))
    return folder
