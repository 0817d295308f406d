"""The pictures of the console: a simulated pool at a fixed moment, drawn to SVG, by headless Chromium to PNG.

python assets/screens/make.py
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from moregpu_tui.options import Options, Settings  # noqa: E402
from tests.tui.stage import Stage, press, settled  # noqa: E402

PICTURES: dict[str, tuple[list[str], int]] = {
    "overview": ([], 14),
    "fleet": ([], 240),
    "workers": (["2", "j", "j"], 14),
    "job": (["3", "enter"], 14),
    "submit": (["c"], 14),
    "function": (["3", "slash", *"sweep", "enter", "enter"], 14),
    "access": (["7"], 14),
    "events": (["6"], 14),
}
SIZE = (150, 42)


async def draw(keys: list[str], workers: int) -> str:
    """One screen as SVG."""
    stage = Stage(workers, seconds=150)
    app = stage.console(Options(demo=True), Settings(glyphs="unicode", zone="utc", motion="full"))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await press(app, *keys)
        if not keys:
            await asyncio.sleep(9)  # the beam goes half round
        if keys == ["c"]:
            await asyncio.sleep(1)  # the plan is asked for when nobody types
        app.second()
        await settled(app)
        await pilot.pause()
        return app.export_screenshot(title="moregpu-tui")


def main() -> None:
    """Draw all, or those that are named."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("chromium is missing: apt-get install chromium")
    for name in sys.argv[1:] or PICTURES:
        svg = asyncio.run(draw(*PICTURES[name]))
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "screen.svg"
            page.write_text(svg)
            width, height = int(SIZE[0] * 12.2) + 20, int(SIZE[1] * 24.4) + 52
            subprocess.run(
                [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={HERE / (name + '.png')}",
                 f"--window-size={width},{height}", page.as_uri()],
                check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        print(HERE / f"{name}.png")


if __name__ == "__main__":
    main()
