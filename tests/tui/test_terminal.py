"""The real console in a real terminal: sizes, signals, pastes, colours, ASCII."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.tui.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="tmux")]


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """A home of its own."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return {"MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file"}


def test_it_starts_filters_drills_down_and_comes_back(place: dict[str, str]) -> None:
    with Terminal("--demo", environment=place) as console:
        console.wait("live")
        console.press("2")
        console.wait("anna-workstation")
        console.press("/")
        console.type("emil")
        console.press("Enter")
        console.wait_gone("anna-workstation")
        console.wait("filter: emil")
        console.press("Enter")
        console.wait("duty and the owner")
        console.press("Escape", "Escape")
        console.wait("anna-workstation")
        console.press("3")
        console.wait("PROGRESS")
        console.press("Enter")
        console.wait("planned")
        console.press("q")
        console.wait("PROGRESS")
        console.press("?")
        console.wait("Cancel the job")


def test_the_first_page_is_left_by_q_and_the_terminal_is_given_back(tmp_path: Path) -> None:
    with Terminal(environment={"MOREGPU_HOME": str(tmp_path / "nobody"), "MOREGPU_SECRETS": "file"}) as console:
        console.wait("What would you like to do?")
        console.press("q")
        console.wait("ended with 0")
        assert console.modes()["alternate_on"] == "0"


def test_a_small_terminal_says_so_and_twenty_resizes_do_no_harm(place: dict[str, str]) -> None:
    with Terminal("--demo", environment=place) as console:
        console.wait("live")
        for step in range(20):
            console.resize(60 + 7 * (step % 11), 16 + 3 * (step % 9))
        console.resize(50, 12)
        console.wait("too small")
        console.resize(60, 16)
        shown = console.wait("1 Overview")
        assert max(len(line) for line in shown.splitlines()) <= 60
        console.resize(160, 45)
        console.wait("workers by latency")
        assert max(len(line) for line in console.screen().splitlines()) > 120


def test_a_paste_of_three_lines_is_one_line_and_a_warning(place: dict[str, str]) -> None:
    with Terminal("--demo", columns=100, rows=30, environment=place) as console:
        console.wait("live")
        console.press("2")
        console.wait("DUTY")
        console.press("/")
        console.paste("emil\nq\nX\n")
        console.wait("only the first of 3 pasted lines")
        assert "emil" in console.screen()


@pytest.mark.parametrize(("name", "status"), [("TERM", 143), ("HUP", 129)])
def test_a_signal_gives_the_terminal_back(place: dict[str, str], name: str, status: int) -> None:
    with Terminal("--demo", environment=place) as console:
        console.wait("live")
        assert console.modes()["alternate_on"] == "1"
        console.signal(name)
        console.wait(f"ended with {status}")
        assert console.modes() == {
            "alternate_on": "0",
            "cursor_flag": "1",
            "mouse_any_flag": "0",
            "mouse_sgr_flag": "0",
        }
        assert re.search(r"(?<!-)\bicanon\b|speed", console.screen())


BROKEN = """
from moregpu_tui.cli import main
from moregpu_tui.state.store import Store


def sample(self, now):
    if self.state.loaded:
        raise TypeError("sesame \\x1b]52;c;aGFja2Vk\\x07")


Store.sample = sample
main(["--demo"])
"""


def test_a_mistake_of_its_own_gives_the_terminal_back_and_one_line_says_where_it_is_written(
    place: dict[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "broken.py"
    program.write_text(BROKEN)
    with Terminal(environment=place, columns=160, program=(str(program),)) as console:
        shown = console.wait("ended with 1")
        assert console.modes()["alternate_on"] == "0"
        assert "\x1b]52" not in console.screen(colours=True)
        assert "the console made a mistake and ended: TypeError: sesame" in shown
        assert "Traceback" not in shown
    (log,) = (Path(place["MOREGPU_HOME"])).rglob("console-mistake.log")
    assert str(log) in shown.replace("\n", "")
    assert "TypeError: sesame" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_ctrl_c_asks_and_twice_quits(place: dict[str, str]) -> None:
    with Terminal("--demo", environment=place) as console:
        console.wait("live")
        console.press("C-c")
        console.wait("once more quits")
        console.press("C-c")
        console.wait("ended with 0")
        assert console.modes()["alternate_on"] == "0"


@pytest.mark.parametrize("why", ["locale", "linux", "flag"])
def test_ascii_where_there_is_nothing_else(place: dict[str, str], why: str) -> None:
    variables = {"locale": {"LANG": "C", "LC_ALL": "C"}, "linux": {"TERM": "linux"}, "flag": {}}[why]
    flags = ["--ascii"] if why == "flag" else []
    if why == "locale":
        variables = {**variables, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with Terminal("--demo", *flags, columns=130, rows=36, environment={**place, **variables}) as console:
        console.wait("live")
        console.press("2")
        shown = console.wait("DUTY")
        assert shown.isascii(), [character for character in shown if ord(character) > 127]


def test_no_color_means_no_colour(place: dict[str, str]) -> None:
    with Terminal("--demo", columns=130, rows=36, environment={**place, "NO_COLOR": "1"}) as console:
        console.wait("live")
        console.press("2")
        console.wait("DUTY")
        coloured = re.findall(r"\x1b\[[0-9;:]*m", console.screen(colours=True))
        for sequence in coloured:
            codes = sequence[2:-1].replace(":", ";").split(";")
            assert not {"38", "48"} & set(codes), sequence
            assert not any(code.isdigit() and (30 <= int(code) <= 37 or 40 <= int(code) <= 47) for code in codes)


def test_the_plain_view_is_lines(place: dict[str, str], tmp_path: Path) -> None:
    with Terminal("--demo", "--plain", environment=place) as console:
        shown = console.wait("workers online")
        assert console.modes()["alternate_on"] == "0"
        assert "homelab" in shown
        console.press("C-c")
        console.wait("ended with 0")


def test_a_recording_can_be_played_again(place: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    with Terminal("--demo", "--record", str(file), environment=place) as console:
        console.wait("live")
        console.wait("running")
        console.press("q")
        console.wait("ended with 0")
    assert file.stat().st_mode & 0o077 == 0
    with Terminal("--replay", str(file), environment=place) as console:
        console.wait("replay")
        console.wait("homelab")
