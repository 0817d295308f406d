"""The real console in a real terminal: a private tmux server, keys in, screens out. Waits for what it wants to see."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType

import pytest

WAIT_S = 30.0
LOOK_S = 0.05


class Terminal:
    """`moregpu-tui` in tmux. Use it as a context manager."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        environment: Mapping[str, str] | None = None,
        program: tuple[str, ...] = ("-m", "moregpu_tui"),
    ) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("missing: tmux; mend: apt-get install tmux")
        self._socket = f"moregpu-{uuid.uuid4().hex[:10]}"
        variables = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **(environment or {})}
        settings = " ".join(f"{name}={value}" for name, value in variables.items())
        command = " ".join([sys.executable, *program, *arguments])
        # The shell stays when the console has ended: its exit status and its last words can be read.
        shell = f"env {settings} {command}; echo ended with $?; stty -a | head -4; exec sleep 600"
        self._tmux("new-session", "-d", "-s", "m", "-x", str(columns), "-y", str(rows), shell)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tmux("kill-server")

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: Enter, Escape, C-c, or characters."""
        self._tmux("send-keys", "-t", "m", *keys)

    def type(self, text: str) -> None:
        """A text, letter by letter."""
        self._tmux("send-keys", "-t", "m", "-l", text)

    def paste(self, text: str) -> None:
        """A bracketed paste."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-t", "m")

    def screen(self, *, colours: bool = False) -> str:
        """What is shown; with its escape sequences where colours are wanted."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []), "-t", "m")

    def wait(self, wanted: str, seconds: float = WAIT_S) -> str:
        """Wait until a text is on the screen."""
        return self.until(lambda shown: wanted in shown, f"{wanted!r} to appear", seconds)

    def wait_gone(self, unwanted: str, seconds: float = WAIT_S) -> str:
        """Wait until a text has left the screen."""
        return self.until(lambda shown: unwanted not in shown, f"{unwanted!r} to go", seconds)

    def until(self, condition: Callable[[str], bool], what: str, seconds: float = WAIT_S) -> str:
        """Wait until the screen is so."""
        end = time.monotonic() + seconds
        shown = self.screen()
        while not condition(shown):
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds:.0f} s for {what}; the screen is:\n{shown}")
            time.sleep(LOOK_S)
            shown = self.screen()
        return shown

    def resize(self, columns: int, rows: int) -> None:
        """Another size."""
        self._tmux("resize-window", "-t", "m", "-x", str(columns), "-y", str(rows))

    def signal(self, name: str) -> None:
        """To the console alone."""
        subprocess.run(["kill", f"-{name}", str(self.pid())], check=True)

    def pid(self) -> int:
        """The console's process."""
        shell = self._tmux("display-message", "-p", "-t", "m", "#{pane_pid}").strip()
        children = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", shell], capture_output=True, text=True, check=True
        )
        line = next(line for line in children.stdout.splitlines() if "moregpu_tui" in line)
        return int(line.split()[0])

    def modes(self) -> dict[str, str]:
        """What the terminal was left in: alternate screen, cursor, mouse."""
        names = ("alternate_on", "cursor_flag", "mouse_any_flag", "mouse_sgr_flag")
        form = " ".join(f"{name}=#{{{name}}}" for name in names)
        said = self._tmux("display-message", "-p", "-t", "m", form).split()
        return dict(part.split("=") for part in said)

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._socket, "-f", "/dev/null", *arguments], capture_output=True, text=True, check=False
        ).stdout
