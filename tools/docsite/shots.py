"""Pictures of five pages as a browser shows them, wide and narrow, light and dark.

`python -m docsite.shots HTML_FOLDER OUT_FOLDER [KEPT_FOLDER]` needs Chromium. The last folder gets
those of docs/pictures.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PAGES = ("index", "notebooks/ten_minutes", "reference/bk_jax", "errors", "pictures")
SIZES = {"wide": (1400, 1600), "phone": (390, 1400)}
KEPT = (
    "index-wide-light",
    "pictures-wide-light",
    "reference-bk_jax-wide-dark",
    "notebooks-ten_minutes-phone-dark",
    "errors-phone-light",
)
COLOURS = 256  # of a kept picture; with 48, blue was teal and amber orange
SETTLED = 3000  # milliseconds: a dark page fades in, and its search box was black on black
LEAST = 500  # Chromium's windows are this wide at least: a narrower page is in a frame, and cut out


def take(page: Path, out: Path, size: tuple[int, int], dark: bool) -> None:
    """One picture of the top of a page."""
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed")
    width, height = size
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={max(width, LEAST)},{height}", f"--screenshot={out}"]
    command += [f"--virtual-time-budget={SETTLED}"]
    command += ["--blink-settings=preferredColorScheme=0"] if dark else []
    with tempfile.TemporaryDirectory() as folder:
        shown = page if width >= LEAST else framed(page, Path(folder, "frame.html"), size)
        subprocess.run([*command, shown.as_uri()], check=True, capture_output=True, timeout=300)
    if width < LEAST:
        Image.open(out).crop((0, 0, width, height)).save(out)


def framed(page: Path, frame: Path, size: tuple[int, int]) -> Path:
    """A page that shows another one as a screen of a given size would."""
    frame.write_text(
        f'<body style="margin:0"><iframe src="{page.as_uri()}" width="{size[0]}" height="{size[1]}" '
        'style="border:0"></iframe>'
    )
    return frame


def reduced(picture: Image.Image) -> Image.Image:
    """The same picture, small enough for a repository, with its rare colours."""
    method = Image.Quantize.MAXCOVERAGE
    return picture.convert("RGB").quantize(COLOURS, method=method, dither=Image.Dither.NONE)


def keep(shots: Path, folder: Path) -> None:
    """Puts the pictures of docs/pictures.md there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        reduced(Image.open(shots / f"{name}.png")).save(folder / f"{name}.png", optimize=True)


def main() -> None:
    html, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        for name, size in SIZES.items():
            for dark in (False, True):
                mode = "dark" if dark else "light"
                path = out / f"{page.replace('/', '-')}-{name}-{mode}.png"
                take(html / f"{page}.html", path, size, dark)
                print(path)
    if len(sys.argv) > 3:
        keep(out, Path(sys.argv[3]).resolve())


if __name__ == "__main__":
    main()
