"""A real panel: Xfce's shows the icon in its colours, opens its menu, and a click on an entry does what it says.

`SCREENSHOTS=FOLDER` keeps what was seen, for people to look at.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from Xlib import X, display

from moregpu.cli.loopback import LoopbackPool
from moregpu.wire.api import InviteRequest
from tests.displays import Screen, need, screen, session_bus
from tests.tray.desktop import Tray, plain_environment, until

pytestmark = pytest.mark.acceptance
GREEN, AMBER = (92, 200, 140), (235, 180, 60)


def look(x: Screen, name: str = "") -> Image.Image:
    """What the screen shows."""
    shown = display.Display(x.name)
    root = shown.screen().root
    size = root.get_geometry()
    raw = root.get_image(0, 0, size.width, size.height, X.ZPixmap, 0xFFFFFFFF)
    shown.close()
    image = Image.frombytes("RGB", (size.width, size.height), raw.data, "raw", "BGRX")
    if name and os.environ.get("SCREENSHOTS"):
        image.save(Path(os.environ["SCREENSHOTS"]) / f"{name}.png")
    return image


def find(image: Image.Image, colour: tuple[int, int, int]) -> tuple[int, int] | None:
    """Where the top of the screen shows about this colour."""
    bar = image.crop((0, 0, image.width, 40))
    pixels = bar.load()
    assert pixels is not None
    for x in range(bar.width):
        for y in range(bar.height):
            if all(abs(part - wanted) < 14 for part, wanted in zip(pixels[x, y], colour, strict=True)):  # type: ignore[arg-type]
                return x, y
    return None


@pytest.fixture
def xfce(tmp_path: Path) -> Iterator[tuple[Screen, dict[str, str]]]:
    for program in ("xfce4-panel", "xfwm4", "xdotool"):
        need(program, program)
    with screen("800x600x24") as x, session_bus(tmp_path / "bus", activates=True) as address:
        runtime = tmp_path / "run"
        runtime.mkdir(mode=0o700)
        environment = {
            **plain_environment(), "DISPLAY": x.name, "DBUS_SESSION_BUS_ADDRESS": address, "HOME": str(tmp_path),
            "XDG_RUNTIME_DIR": str(runtime), "MOREGPU_YIELD": "off",
        }  # fmt: skip
        programs = [
            subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for command in (["xfwm4"], ["xfce4-panel", "--disable-wm-check"])
        ]
        try:
            yield x, environment
        finally:
            for program in programs:
                program.kill()
                program.wait()


def test_xfces_panel_shows_the_icon_and_its_menu_pauses(xfce: tuple[Screen, dict[str, str]], tmp_path: Path) -> None:
    x, environment = xfce
    tray = Tray(tmp_path / "tray", environment)
    with LoopbackPool(tmp_path / "pool") as local:
        local.start_coordinator()
        with local.connect() as pool:
            line = pool.invite(InviteRequest(owner="eva")).line
        try:
            tray.start("join", "--yes", given=line)
            tray.until(lambda report: report["mood"] == "idle")
            until(lambda: "the panel shows the icon" in tray.log())
            place = until(lambda: find(look(x, "panel"), GREEN))

            def click(at: tuple[int, int], button: int) -> None:
                command = ["xdotool", "mousemove", str(at[0]), str(at[1]), "click", str(button)]
                subprocess.run(command, env=environment, check=True)

            before = look(x)
            click((place[0] + 8, place[1]), 3)
            until(lambda: _menu_is_open(before, look(x, "menu")))
            keys = ["xdotool", "key", "Down", "Down", "Return"]  # status, Pause
            subprocess.run(keys, env=environment, check=True)
            tray.until(lambda report: report["mood"] == "paused")
            until(lambda: find(look(x, "paused"), AMBER))
        finally:
            tray.end()


def _menu_is_open(before: Image.Image, now: Image.Image) -> bool:
    from PIL import ImageChops

    box = ImageChops.difference(before.crop((0, 40, 800, 540)), now.crop((0, 40, 800, 540))).getbbox()
    return box is not None and box[2] - box[0] > 100 and box[3] - box[1] > 150
