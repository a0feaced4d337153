"""Pictures of five pages as a browser shows them, wide and narrow, light and dark.

`python -m docsite.shots HTML_FOLDER OUT_FOLDER` needs Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PAGES = ("index", "notebooks/ten_minutes", "reference/bk_jax", "errors", "pictures")
SIZES = {"wide": (1400, 1600), "phone": (390, 1400)}


def take(page: Path, out: Path, size: tuple[int, int], dark: bool) -> None:
    """One picture of the top of a page."""
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={size[0]},{size[1]}", f"--screenshot={out}"]
    command += ["--blink-settings=preferredColorScheme=0"] if dark else []
    subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=120)


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


if __name__ == "__main__":
    main()
