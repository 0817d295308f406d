"""Pictures: every mood can be told from every other at every size, and the files in `assets/` are what is drawn."""

from __future__ import annotations

import zlib
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from PIL import Image, ImageChops

from assets.draw_icons import FOLDER, keep_pictures, main
from moregpu_tray.icon.draw import SIZES, draw
from moregpu_tray.icon.pictures import FILE, argb, every_picture
from moregpu_tray.icon.pictures import SIZES as PANEL_SIZES
from moregpu_tray.icon.protocol import STEPS, Picture
from moregpu_tray.view import Mood


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of a pixel, 0–255."""
    histogram = ImageChops.difference(one.convert("RGBA"), other.convert("RGBA")).convert("RGB").histogram()
    return sum((place % 256) * count for place, count in enumerate(histogram)) / (one.width * one.height * 3)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dark", [True, False])
def test_no_two_moods_look_the_same(size: int, dark: bool) -> None:
    pictures = {mood: draw(Picture(mood=mood), size, dark=dark) for mood in Mood}
    for (one, first), (other, second) in combinations(pictures.items(), 2):
        flat = [
            Image.alpha_composite(Image.new("RGBA", (size, size), (90, 90, 90, 255)), icon) for icon in (first, second)
        ]
        assert difference(*flat) > 0.5, (one, other)


def test_the_ring_fills_with_the_duty() -> None:
    def solid(image: Image.Image) -> int:
        return sum(image.getchannel("A").histogram()[250:])

    amounts = [solid(draw(Picture(mood=Mood.WORKING, sixteenths=step), 48)) for step in range(STEPS + 1)]
    assert amounts == sorted(amounts)
    assert amounts[-1] > 1.5 * amounts[0]


@pytest.mark.parametrize("size", SIZES)
def test_corners_are_clear(size: int) -> None:
    icon = draw(Picture(mood=Mood.TROUBLE), size)
    assert icon.size == (size, size)
    assert icon.getpixel((0, 0))[3] == 0  # type: ignore[index]


@pytest.mark.slow
def test_the_pictures_in_assets_are_the_ones_that_are_drawn(tmp_path: Path) -> None:
    main(tmp_path)
    for file in sorted(tmp_path.iterdir()):
        kept = Image.open(FOLDER / file.name)
        assert kept.size == Image.open(file).size
        assert difference(kept, Image.open(file)) < 1.0, f"{file.name}: run python -m assets.draw_icons"


@pytest.mark.slow
def test_the_live_icons_pictures_are_the_ones_that_are_drawn(tmp_path: Path) -> None:
    keep_pictures(tmp_path / "pictures")
    drawn, kept = (msgspec.msgpack.decode(file.read_bytes()) for file in (tmp_path / "pictures", FILE))
    assert list(drawn) == list(kept)
    for name in drawn:
        fresh, old = zlib.decompress(drawn[name]), zlib.decompress(kept[name])
        assert len(fresh) == len(old)
        far = max(abs(one - other) for one, other in zip(fresh, old, strict=True))
        assert far < 40, f"{name}: run python -m assets.draw_icons"


def test_every_picture_that_can_be_asked_for_is_there() -> None:
    for picture in every_picture():
        for dark in (True, False):
            assert [len(pixels) for _, pixels in argb(picture, dark)] == [4 * size * size for size in PANEL_SIZES]
