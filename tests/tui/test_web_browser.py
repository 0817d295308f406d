"""The console in a real browser: headless Chromium opens the link, sees it painted, presses keys, copies, leaves."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

if sys.platform == "win32":
    pytest.skip("pseudo-terminals", allow_module_level=True)

from tests.tui.browser import Browser, Tab
from tests.tui.test_web import alive, children, served, until

pytestmark = pytest.mark.slow

GROUND, LIGHT = (0x0E, 0x13, 0x18), (0xFB, 0xFB, 0xF9)
LINES = """function () {
  const shown = this.filter((terminal) => terminal.element?.isConnected).at(-1);
  if (!shown) return null;
  const buffer = shown.buffer.active;
  return Array.from({ length: shown.rows }, (_, row) => buffer.getLine(row).translateToString(true, 0, shown.cols));
}"""


class Page:
    """A tab with a console in it."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self._terminals = ""

    def lines(self) -> list[str]:
        """What the terminal of the page holds: it is found on the heap, once: that is searched whole."""
        found = self.tab.ask(self._terminals, LINES) if self._terminals else None
        if found is None:
            self._terminals = self.tab.instances("/static/xterm/xterm.mjs", "Terminal")
            found = self.tab.ask(self._terminals, LINES)
        return found or []

    def wait(self, wanted: str) -> list[str]:
        """Until a text is on the terminal."""
        self.tab.wait("document.body.classList.contains('live')")
        self.tab.wait(lambda: any(wanted in line for line in self.lines()))
        return self.lines()

    def picture(self) -> Image.Image:
        return Image.open(io.BytesIO(self.tab.picture())).convert("RGB")


@contextmanager
def opened(folder: Path, *arguments: str) -> Generator[tuple[psutil.Popen, Browser, Page, str]]:
    """A server, a browser that has opened its link, and the link."""
    with served(folder, "--demo", "--no-open", *arguments) as (server, client, token), Browser() as browser:
        link = f"http://{client.host}/#{token}"
        yield server, browser, Page(browser.open(link)), link


def colours(picture: Image.Image, box: tuple[int, int, int, int]) -> set[Any]:
    part = picture.crop(box)
    return {colour for _, colour in part.getcolors(part.width * part.height) or ()}


def test_a_browser_shows_the_console_and_keys_reach_it(tmp_path: Path) -> None:
    with opened(tmp_path) as (_server, _browser, page, link):
        shown = page.wait("needs you")
        assert "1 Overview" in shown[1]
        address = page.tab.run("location.href")
        assert address == link.partition("#")[0], "the token has left the address"
        history = page.tab.call("Page.getNavigationHistory")["entries"]
        assert not [entry for entry in history if link in entry["url"]], "nor can one go back to it"
        assert page.tab.run("document.cookie") == "", "no script sees the session"

        picture = page.picture()
        assert picture.size == (1280, 800)
        assert colours(picture, (0, 0, 1280, 8)) == {GROUND}, "the margin is of the theme"
        assert colours(picture, (0, 0, 8, 800)) == {GROUND}
        assert len(colours(picture, (20, 50, 640, 60))) > 10, "letters are painted"

        page.tab.press("2")
        page.wait("DUTY")
        page.wait("anna-")
        page.tab.press("/")
        for letter in "emil":
            page.tab.press(letter)
        page.tab.wait(lambda: not any("anna-" in line for line in page.lines()))

        assert page.tab.problems == []
        host = link.split("/")[2]
        assert {request.split("/")[2] for request in page.tab.requests} == {host}, "no other host is asked for anything"
        assert all(page.tab.run("[...document.fonts].map((font) => font.status === 'loaded')"))


def test_the_console_is_as_large_as_its_window_and_takes_the_mouse(tmp_path: Path) -> None:
    with opened(tmp_path) as (_server, _browser, page, _link):
        wide = page.wait("workers by latency")
        page.tab.resize(700, 460)
        page.tab.wait(lambda: len(page.lines()) < len(wide))
        page.tab.wait(lambda: max(map(len, page.lines())) < 90)
        page.tab.resize(1280, 800)
        page.tab.wait(lambda: len(page.lines()) == len(wide))
        shown = page.wait("3 Jobs")
        cell = page.tab.run(
            "(() => { const box = document.querySelector('.xterm-screen').getBoundingClientRect();"
            f" return [box.left, box.top, box.width / {len(max(shown, key=len))}, box.height / {len(shown)}]; }})()"
        )
        left, top, width, height = cell
        page.tab.click(left + (shown[1].index("3 Jobs") + 2.5) * width, top + 1.5 * height)
        page.wait("SUBMITTED")


def test_what_the_console_copies_is_in_the_clipboard_and_ctrl_v_pastes_it(tmp_path: Path) -> None:
    with opened(tmp_path) as (_server, browser, page, link):
        browser.call(
            "Browser.grantPermissions",
            permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
            origin=link.partition("/#")[0],
        )
        page.wait("needs you")
        page.tab.press("2")
        page.wait("DUTY")
        page.tab.press("y")
        page.wait("copied")
        page.tab.wait("navigator.clipboard.readText().then((text) => text.startsWith('w-'))")
        copied = page.tab.run("navigator.clipboard.readText()")
        page.tab.press("/")
        page.tab.press("v", control=True, does="paste")
        page.wait(copied[:20])


def test_a_second_browser_is_told_what_to_do_and_gets_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as (server, browser, page, link):
        page.wait("needs you")
        other = Page(browser.open(link, private=True))
        other.tab.wait("document.body.innerText.includes('used already')")
        assert "moregpu-tui --web" in other.tab.words()
        assert len(children(server)) == 1
        again = Page(browser.open(link.partition("#")[0]))
        again.wait("needs you")
        assert len(children(server)) == 2, "another tab of the browser that came in has a console of its own"


def test_closing_the_tab_ends_its_console_and_leaving_it_offers_another(tmp_path: Path) -> None:
    with opened(tmp_path) as (server, browser, page, link):
        page.wait("needs you")
        page.tab.press("q", control=True)
        page.tab.wait("document.querySelector('#title').textContent.includes('has ended')")
        until(lambda: not children(server), "the console to end")
        page.tab.press("Enter")  # the button has the focus
        page.wait("needs you")
        (console,) = children(server)
        page.tab.close()
        until(lambda: not alive(console.pid), "the console to end with its tab")

        another = Page(browser.open(link.partition("#")[0]))
        another.wait("needs you")
        (console,) = children(server)
        browser.kill()
        until(lambda: not alive(console.pid), "the console to end with its browser")


def test_a_server_that_is_gone_is_said_with_what_to_do(tmp_path: Path) -> None:
    with opened(tmp_path) as (server, _browser, page, _link):
        page.wait("needs you")
        (console,) = children(server)
        os.kill(server.pid, signal.SIGTERM)
        page.tab.wait("document.querySelector('#title').textContent === 'The server is gone'")
        assert "moregpu-tui --web" in page.tab.words()
        until(lambda: not alive(console.pid), "the console to end with its server")


def test_why_a_console_cannot_start_can_be_read(tmp_path: Path) -> None:
    with served(tmp_path, "--profile", "nowhere", "--no-open") as (_server, client, token), Browser() as browser:
        tab = browser.open(f"http://{client.host}/#{token}")
        tab.wait("document.querySelector('#notice pre')?.textContent.includes('nowhere')")
        assert "status 2" in tab.words()


def test_another_theme_changes_the_margin_too(tmp_path: Path) -> None:
    with opened(tmp_path) as (_server, _browser, page, _link):
        page.wait("needs you")
        assert colours(page.picture(), (0, 0, 1280, 8)) == {GROUND}
        page.tab.press("8")
        page.wait("dark ‹›")
        page.tab.press("l")
        page.wait("light ‹›")
        page.tab.wait(lambda: colours(page.picture(), (0, 0, 1280, 8)) == {LIGHT})
