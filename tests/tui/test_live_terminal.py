"""The real console in a real terminal over a real pool: what goes wrong while somebody works with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.wire.api import TokenRequest
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu_tui.present.tones import palette
from tests.tui.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="missing: tmux on this system")]

DIM = "38;2;" + ";".join(str(int(palette("dark").tones["dim"][at : at + 2], 16)) for at in (1, 3, 5))
"""The dim tone of the dark theme, as a terminal is told it."""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LoopbackPool]:
    with LoopbackPool(tmp_path / "home") as pool:
        pool.start_coordinator()
        yield pool


def place(local: LoopbackPool, **more: str) -> dict[str, str]:
    return {"MOREGPU_HOME": str(local.home), "MOREGPU_SECRETS": "file", **more}


def submit(local: LoopbackPool, *names: str) -> None:
    """Jobs that wait, since nobody is here."""
    with local.connect() as pool:
        for name in names:
            pool.submit_job(KernelSpec(operation="matmul", size=64, name=name))


def test_a_coordinator_killed_while_a_form_is_half_filled_takes_nothing_of_it_away(local: LoopbackPool) -> None:
    submit(local, "alpha", "beta one", "beta two", "gamma")
    with Terminal(columns=110, rows=34, environment=place(local)) as console:
        console.wait("● live")
        console.press("3")
        console.wait("gamma")
        console.press("/")
        console.type("beta")
        console.press("Enter")
        console.wait("filter: beta")
        console.press("G")
        console.until(lambda shown: cursor_on(shown, "beta two"), "the cursor on beta two")
        console.press("c")
        console.wait("F10 submit")
        console.press("Tab", "Tab")
        console.press("C-u")
        console.type("77")
        console.wait("matmul float32 (77, 77)")

        local.kill_coordinator()
        console.wait("✕ offline")
        console.press("F10")
        console.wait("not now: the coordinator does not answer")
        assert "77" in console.screen()
        console.press("Escape")
        console.wait("filter: beta")
        row = next(line for line in console.screen(colours=True).splitlines() if "beta one" in line)
        inks = re.findall(r"(38;2;\d+;\d+;\d+)[;\d]*m[^\x1b]*[^\s\x1b]", row)  # of what is more than a space
        assert set(inks) == {DIM}, row  # old data looks old

        local.start_coordinator()
        console.wait("● live", 60)
        shown = console.screen()
        assert "filter: beta" in shown
        assert "gamma" not in shown
        assert cursor_on(shown, "beta two"), shown
        console.press("5")
        console.wait("matmul float32 (77, 77)")
        console.press("F10")
        console.wait("planned")


def cursor_on(shown: str, name: str) -> bool:
    return any(line.startswith(" ▌") and name in line for line in shown.splitlines())


def test_a_token_revoked_in_use_is_said_and_the_console_stays(local: LoopbackPool) -> None:
    submit(local, "alpha")
    with local.connect() as admin:
        made = admin.create_token(TokenRequest(label="desk", role="submitter"))
        with Terminal(columns=110, rows=34, environment=place(local, MOREGPU_ADMIN_TOKEN=made.line)) as console:
            console.wait("● live")
            console.wait("submitter")
            console.press("c")
            console.wait("F10 submit")
            admin.doors.call("DELETE", f"/v1/tokens/{made.id}", type(None))
            console.wait("✕ refused", 60)
            console.press("F10")
            console.wait("the token is not accepted any more")
            console.press("Escape")
            console.press("C-q")
            console.wait("ended with 0")


def test_a_job_is_cancelled_by_the_keyboard_and_no_is_the_first_answer(local: LoopbackPool) -> None:
    submit(local, "doomed")
    with Terminal(environment=place(local)) as console:
        console.wait("● live")
        console.press("3")
        console.wait("doomed")
        console.press("X")
        console.wait("Keep as it is")
        console.press("Enter")
        console.wait_gone("Keep as it is")
        assert "cancelled" not in console.screen()
        console.press("X")
        console.wait("Keep as it is")
        console.press("y")
        console.wait("– cancelled")


def test_a_viewer_has_no_key_that_changes_anything(local: LoopbackPool) -> None:
    submit(local, "alpha")
    with local.connect() as admin:
        made = admin.create_token(TokenRequest(label="wall", role="viewer"))
    with Terminal(environment=place(local, MOREGPU_ADMIN_TOKEN=made.line)) as console:
        console.wait("viewer")
        console.press("3")
        console.wait("alpha")
        assert "X cancel" not in console.screen()
        console.press("X")
        console.press("7")
        console.wait("only an admin sees these")
        console.press("3")
        shown = console.wait("alpha")
        assert "○ queued" in shown


TICKING = """
import time


def train(rate):
    for number in range(10_000):
        print(f"tick {number} of {rate} \x1b[2J\x1b]52;c;aGFja2Vk\x07", flush=True)
        time.sleep(0.2)
"""


@pytest.fixture
def calling(tmp_path: Path) -> Iterator[LoopbackPool]:
    """A pool with a worker that lets functions in; as root it runs them as somebody else."""
    with LoopbackPool(tmp_path / "home", environment={"MOREGPU_FUNCTIONS_USER": "65534"}) as pool:
        pool.start_coordinator()
        pool.start_worker("anna", "--allow", "functions", "--ceiling", "1.0")
        (anna,) = pool.wait_for_workers()
        if "function" not in anna.kinds:
            pytest.skip("missing: a sandbox for functions; mend: apt-get install bubblewrap")
        yield pool


def test_a_function_is_submitted_by_the_form_and_what_it_prints_is_seen_while_it_runs(
    calling: LoopbackPool, tmp_path: Path
) -> None:
    (tmp_path / "sweep.py").write_text(TICKING)
    with Terminal(columns=110, rows=30, environment=place(calling)) as console:
        console.wait("● live")
        console.press("5")
        console.wait("new job: kernel")
        console.press("BTab", "Right")
        console.wait("new job: function")
        console.press("Tab")
        console.type(f"{tmp_path}/sweep.py:train")
        console.press("Tab")
        console.type("[0.5]")
        console.wait("1 worker")
        console.press("F10")
        shown = console.wait("anna: tick 3 of 0.5")
        assert "● running" in shown
        assert "\x1b]52" not in console.screen(colours=True)
        assert "anna: tick 2 of 0.5" in shown  # nothing cleared the screen
        console.press("3")
        console.wait("sweep.py:train")
        console.press("Enter")
        console.wait("anna: tick ")
        console.press("g")
        console.wait("anna: tick 0 of 0.5")  # what was printed before the page was opened
        console.press("X")
        console.wait("Keep as it is")
        console.press("y")
        console.wait("– cancelled")
