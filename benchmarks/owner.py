"""An owner at their machine, for recordings: types, saves, compiles, reads in a browser, goes away.

    python -m benchmarks.owner KIND SEED SECONDS      at the display in DISPLAY; needs gcc and Chromium

Programs and input are real (XTEST); what is played is when. `record.sh` beside the recordings tells how they were made.
Three kinds of people: `developer` (edits, saves with a check, compiles), `reader` (opens pages, scrolls, thinks) and
`visitor` (comes to the machine for a minute or two and leaves again).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from Xlib import XK, X, display
from Xlib.ext import xtest

KINDS = {
    "developer": (("edit", 5), ("compile", 2), ("read", 1), ("think", 3), ("away", 1)),
    "reader": (("read", 5), ("think", 4), ("away", 1)),
    "visitor": (("edit", 1), ("read", 2), ("away", 3)),
}
"""Of each kind, what they do next, and how often."""


class Owner:
    """Somebody with a keyboard, a mouse and a browser."""

    def __init__(self, kind: str, seed: int, folder: Path):
        self.kind, self.folder, self.random = kind, folder, Random(seed)
        self._display: Any = display.Display(os.environ["DISPLAY"])
        self._browser: subprocess.Popen[bytes] | None = None
        self._pages = _pages(folder)
        _sources(folder)

    def live(self, seconds: float) -> None:
        """Do one thing after another for so long."""
        acts: dict[str, Callable[[], None]] = {
            "edit": self.edit, "compile": self.compile, "read": self.read, "think": self.think, "away": self.away,
        }  # fmt: skip
        names, weights = zip(*KINDS[self.kind], strict=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            acts[self.random.choices(names, weights)[0]]()
        self.leave()

    def edit(self) -> None:
        """Type in bursts; save at the end, which runs a check."""
        for _ in range(self.random.randint(2, 5)):
            for _ in range(self.random.randint(5, 40)):
                self._key("a")
                time.sleep(self.random.uniform(0.08, 0.3))
            time.sleep(self.random.uniform(1.0, 6.0))
        self._run([sys.executable, "-m", "compileall", "-q", "-f", str(self.folder / "python")])

    def compile(self) -> None:
        """Press a key, wait for two to five files to be compiled, look at the outcome."""
        self._key("Return")
        for number in range(self.random.randint(2, 5)):
            self._run(["gcc", "-O2", "-c", str(self.folder / f"part{number}.c"), "-o", str(self.folder / "part.o")])
        time.sleep(self.random.uniform(3.0, 12.0))

    def read(self) -> None:
        """Open a page, scroll now and then."""
        page = self.random.choice(self._pages)
        if self._browser is None:
            profile = self.folder / "profile"
            self._browser = subprocess.Popen(
                ["chromium", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", str(page)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        else:
            self._run(["chromium", "--no-sandbox", f"--user-data-dir={self.folder / 'profile'}", str(page)])
        for _ in range(self.random.randint(2, 6)):
            time.sleep(self.random.uniform(2.0, 15.0))
            for _ in range(self.random.randint(1, 4)):
                self._scroll()
                time.sleep(0.2)

    def think(self) -> None:
        """Look at the screen, touch nothing."""
        time.sleep(self.random.uniform(8.0, 30.0))

    def away(self) -> None:
        """Be elsewhere."""
        time.sleep(self.random.uniform(40.0, 100.0))

    def leave(self) -> None:
        """Close the browser."""
        if self._browser is not None:
            self._browser.terminate()
            self._browser.wait(10.0)

    def _key(self, name: str) -> None:
        code = self._display.keysym_to_keycode(XK.string_to_keysym(name))
        for what in (X.KeyPress, X.KeyRelease):
            xtest.fake_input(self._display, what, code)
        self._display.sync()

    def _scroll(self) -> None:
        xtest.fake_input(self._display, X.MotionNotify, x=self.random.randint(100, 500), y=300)
        for what in (X.ButtonPress, X.ButtonRelease):
            xtest.fake_input(self._display, what, 5)
        self._display.sync()

    @staticmethod
    def _run(command: list[str]) -> None:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )


def _pages(folder: Path) -> list[Path]:
    """Local pages: long text with tables, and one that draws."""
    row = "<tr>" + "".join(f"<td>{column * 37 % 101}</td>" for column in range(8)) + "</tr>"
    text = "<p>" + "What is lent is given back the moment it is wanted. " * 12 + "</p>"
    drawing = (
        "<canvas id=c width=600 height=400></canvas><script>const g=c.getContext('2d');let n=0;"
        "function f(){g.fillStyle=`hsl(${n%360},70%,50%)`;g.fillRect(n*7%600,n*3%400,9,9);"
        "if(n++<240)requestAnimationFrame(f)}f()</script>"
    )
    pages: list[Path] = []
    for number, body in enumerate((text * 60, f"<table>{row * 800}</table>", text * 20 + drawing)):
        page = folder / f"page{number}.html"
        page.write_text(f"<!doctype html><meta charset=utf-8><title>{number}</title>{body}")
        pages.append(page)
    return pages


def _sources(folder: Path) -> None:
    """C files that take a second or so each, and Python files that a save checks."""
    for number in range(5):
        functions = "\n".join(
            f"double f{index}(const double *x, int n) {{ double s = {index}; for (int i = 0; i < n; i++) "
            f"s += x[i] * {index % 7 + 1} / (1 + s * s); return s; }}"
            for index in range(700 + 300 * number)
        )
        (folder / f"part{number}.c").write_text(functions + "\n")
    (folder / "python").mkdir()
    for number in range(6):
        (folder / "python" / f"module{number}.py").write_text(
            "\n".join(f"def f{index}(x):\n    return [x * {index} + y for y in range(x)]" for index in range(400))
        )


def main() -> None:
    """Be that owner."""
    kind, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Owner(kind, seed, Path(folder)).live(seconds)


if __name__ == "__main__":
    main()
