"""A real headless Chromium, driven through its DevTools protocol: opens pages, presses keys, reads, takes pictures."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

WAIT_S = 60.0
LOOK_S = 0.1
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "--remote-allow-origins=*", "--hide-scrollbars",
)  # fmt: skip


class Tab:
    """One page."""

    def __init__(self, browser: Browser, target: str) -> None:
        self.target = target
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._browser = browser
        browser.tabs[self._session] = self
        for part in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{part}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self.target)

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise AssertionError(done["exceptionDetails"])
        return done["result"].get("value")

    def heard(self, method: str, parameters: dict[str, Any]) -> None:
        """Something happened in the page."""
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requests.append(parameters["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(parameters["entry"]["text"])

    def press(self, key: str, *, control: bool = False, does: str = "") -> None:
        """A key by its name; `does` names what the browser itself does for it: `paste`."""
        code = {"Enter": 13, "Escape": 27, "ArrowRight": 39}.get(key, ord(key.upper()) if len(key) == 1 else 0)
        one: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 if control else 0}
        one |= {"commands": [does]} if does else {}
        text = key if len(key) == 1 and not control else "\r" if key == "Enter" else ""
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **one)
        self.call("Input.dispatchKeyEvent", type="keyUp", **one)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self) -> bytes:
        """PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def words(self) -> str:
        """The page's own words."""
        return self.run("document.body?.innerText ?? ''")

    def instances(self, module: str, name: str) -> str:
        """The id of an array of all objects that a class of a module has in the page."""
        found = self.call(
            "Runtime.evaluate", expression=f"import({module!r}).then(m => m.{name}.prototype)", awaitPromise=True
        )
        of = found["result"]["objectId"]
        return self.call("Runtime.queryObjects", prototypeObjectId=of)["objects"]["objectId"]

    def ask(self, object: str, function: str) -> Any:
        """What a function of JavaScript gives for an object, its `this`."""
        done = self.call("Runtime.callFunctionOn", objectId=object, functionDeclaration=function, returnByValue=True)
        if "exceptionDetails" in done:
            raise AssertionError(done["exceptionDetails"])
        return done["result"].get("value")

    def wait(self, condition: str | Callable[[], bool], seconds: float = WAIT_S) -> None:
        """Until an expression is true in the page, or a condition holds here."""
        end = time.monotonic() + seconds
        while not (self._holds(condition) if isinstance(condition, str) else condition()):
            if time.monotonic() > end:
                raise AssertionError(
                    f"waited {seconds:.0f} s for {condition}; {self.problems}; it says:\n{self.words()}"
                )
            time.sleep(LOOK_S)

    def _holds(self, condition: str) -> bool:
        try:
            return bool(self.run(f"Boolean({condition})"))
        except AssertionError:  # the page is not there yet
            return False


class Browser:
    """Chromium with a profile of its own. Use it as a context manager."""

    def __init__(self, *flags: str) -> None:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        if program is None:
            pytest.skip("missing: chromium; mend: apt-get install chromium")
        self.tabs: dict[str, Tab] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="moregpu-browser-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [program, *_FLAGS, *flags, f"--user-data-dir={self._folder.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._number = 0
        self._kept = ExitStack()
        self._line: ClientConnection = self._kept.enter_context(
            connect(self._address(), max_size=1 << 26, compression=None)
        )

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kept.close()
        self.kill()
        self._folder.cleanup()

    def kill(self) -> None:
        """All of its processes, at once."""
        if self._process.poll() is None and sys.platform != "win32":
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)

    def open(self, address: str, width: int = 1280, height: int = 800, *, private: bool = False) -> Tab:
        """A tab; a private one shares neither cookies nor storage with the others."""
        context = {"browserContextId": self.call("Target.createBrowserContext")["browserContextId"]} if private else {}
        tab = Tab(self, self.call("Target.createTarget", url="about:blank", **context)["targetId"])
        tab.resize(width, height)
        tab.go(address)
        return tab

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """One command; what else comes meanwhile is heard by its tab."""
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        self._line.send(json.dumps(command))
        while True:
            said = json.loads(self._line.recv(WAIT_S))
            if said.get("id") == number:
                if "error" in said:
                    raise AssertionError(f"{method}: {said['error']}")
                return said["result"]
            tab = self.tabs.get(said.get("sessionId", ""))
            if tab is not None and "method" in said:
                tab.heard(said["method"], said["params"])

    def _address(self) -> str:
        file = Path(self._folder.name) / "DevToolsActivePort"
        end = time.monotonic() + WAIT_S
        while not (file.exists() and len(file.read_text().split()) == 2):
            assert self._process.poll() is None, "the browser ended"
            assert time.monotonic() < end, "the browser does not say where it is"
            time.sleep(LOOK_S)
        port, path = file.read_text().split()
        return f"ws://127.0.0.1:{port}{path}"
