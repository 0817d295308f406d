"""Draws what the installers and the desktop show: `python -m assets.draw_icons`.

The same drawing as the live icon (`moregpu_tray.icon.draw`), so that there is one source of every picture; a test
compares what is kept with what is drawn. Files of the installers go to `assets/icons/`, the live icon's to
`moregpu_tray/icon/pictures.msgpack`.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
from PIL import Image

from moregpu_tray.icon.draw import draw
from moregpu_tray.icon.pictures import FILE, entry, every_picture
from moregpu_tray.icon.pictures import SIZES as PANEL_SIZES
from moregpu_tray.icon.protocol import Picture
from moregpu_tray.view import Mood

FOLDER = Path(__file__).parent / "icons"
SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)
PROGRAM = Picture(mood=Mood.WORKING, sixteenths=12)


def main(folder: Path = FOLDER) -> None:
    """Write all pictures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        _program(size).save(folder / f"moregpu-{size}.png", optimize=True)
    sizes = [(size, size) for size in (16, 24, 32, 48, 64, 128, 256)]
    _program(256).save(folder / "moregpu.ico", sizes=sizes, append_images=[_program(side) for side, _ in sizes[:-1]])
    _program(512).save(folder / "moregpu.icns")
    sheet().save(folder / "sheet.png", optimize=True)


def keep_pictures(file: Path = FILE) -> None:
    """Write the live icon's pictures; the same bytes each time."""
    kept: dict[str, bytes] = {}
    for picture in every_picture():
        for size in PANEL_SIZES:
            for dark in (True, False):
                red, green, blue, alpha = draw(picture, size, dark=dark).split()
                pixels = Image.merge("RGBA", (alpha, red, green, blue)).tobytes()
                kept[entry(picture, size, dark)] = zlib.compress(pixels, 9)
    file.write_bytes(msgspec.msgpack.encode(kept))


def _program(size: int) -> Image.Image:
    return draw(PROGRAM, size, dark=False)


def sheet() -> Image.Image:
    """Every mood at every panel size, on dark and light."""
    moods, sizes = list(Mood), (64, 48, 32, 24, 22, 16)
    cell = 72
    image = Image.new("RGB", (cell * len(moods), cell * len(sizes) * 2), (40, 42, 48))
    image.paste((238, 239, 241), (0, cell * len(sizes), cell * len(moods), cell * len(sizes) * 2))
    for column, mood in enumerate(moods):
        sixteenths = {Mood.WORKING: 13, Mood.YIELDING: 2, Mood.IDLE: 13}.get(mood, 0)
        for row, (size, dark) in enumerate([(size, dark) for dark in (True, False) for size in sizes]):
            icon = draw(Picture(mood=mood, sixteenths=sixteenths), size, dark=dark)
            image.paste(icon, (column * cell + (cell - size) // 2, row * cell + (cell - size) // 2), icon)
    return image


if __name__ == "__main__":
    main()
    keep_pictures()
