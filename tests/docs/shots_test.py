"""Pictures of the site: those that are kept show the colours of the page."""

import re

import numpy as np
from PIL import Image
from support.documents import ROOT

from bk_jax import palette
from docsite import shots

NAMES = ("BLUE", "ORANGE", "GREEN", "PURPLE", "SKY", "AMBER", "INK", "PALE")
NEAR = 8  # of 255: not to be seen


def page(path):
    """A grey page with text of many greys, and a small box of each colour of the palette."""
    grey = np.tile(np.linspace(0, 255, 400).astype(np.uint8)[None, :, None], (300, 1, 3))
    for number, name in enumerate(NAMES):
        red, green, blue = bytes.fromhex(getattr(palette, name)[1:])
        left = 40 * number
        grey[100:112, left : left + 12] = red, green, blue
        fade = np.linspace(0, 1, 12)[:, None]
        edge = fade * 255 + (1 - fade) * np.array([red, green, blue])
        grey[100:112, left + 12 : left + 24] = edge.astype(np.uint8)[None]
    Image.fromarray(grey).save(path)
    return grey


def test_kept_pictures_have_the_colours_of_the_page(tmp_path):
    for name in shots.KEPT:
        before = page(tmp_path / f"{name}.png")
    shots.keep(tmp_path, tmp_path / "kept")
    for name in shots.KEPT:
        after = np.asarray(Image.open(tmp_path / "kept" / f"{name}.png").convert("RGB"))
        middles = [(106, 40 * number + 6) for number in range(len(NAMES))]
        for y, x in middles:
            assert np.abs(after[y, x].astype(int) - before[y, x].astype(int)).max() <= NEAR


def test_the_page_of_pictures_shows_what_is_kept():
    text = (ROOT / "docs" / "pictures.md").read_text()
    assert set(re.findall(r"figures/site/(.*?)\.png", text)) == set(shots.KEPT)
