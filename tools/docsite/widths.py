"""Pages of the site that scroll sideways on a phone, as a browser lays them out.

`python -m docsite.widths HTML_FOLDER` names them and ends with an error if there are any. It needs
Chromium. Wide tables, programs and pictures are meant to scroll by themselves, inside of the page.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PHONE = 390
_SCRIPT = """<!doctype html><body style="margin:0">
<iframe width="%(width)d" height="800"></iframe><pre></pre>
<script>
const pages = %(pages)s, wide = {}, frame = document.querySelector("iframe");
let page;
function next() {
  if (!pages.length) { document.querySelector("pre").textContent = JSON.stringify(wide); return; }
  frame.src = page = pages.shift();
}
frame.onload = () => {
  if (!frame.contentWindow.location.href.startsWith("file")) return next();
  const root = frame.contentDocument.documentElement;
  if (root.scrollWidth > root.clientWidth) wide[page] = root.scrollWidth;
  next();
};
next();
</script>"""


def pages_of(folder: Path) -> list[Path]:
    """The pages that people read: not those of source files."""
    found = sorted(folder.rglob("*.html"))
    return [p for p in found if p.relative_to(folder).parts[0] not in ("_static", "code")]


def too_wide(pages: list[Path], width: int = PHONE) -> dict[Path, int]:
    """The pages that need more than a width, with what they need.

    Raises:
      RuntimeError: if the browser did not look at all of them.
    """
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed")
    text = _SCRIPT % {"width": width, "pages": json.dumps([page.as_uri() for page in pages])}
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--allow-file-access-from-files", "--virtual-time-budget=600000", "--dump-dom"]
    with tempfile.TemporaryDirectory() as folder:
        frame = Path(folder, "frame.html")
        frame.write_text(text)
        done = subprocess.run(
            [*command, frame.as_uri()], check=True, capture_output=True, text=True, timeout=600
        )
    found = re.search(r"<pre>(.+)</pre>", done.stdout)
    if not found:
        raise RuntimeError(f"chromium did not look at all {len(pages)} pages: try again")
    wide = json.loads(html.unescape(found[1]))
    return {page: wide[page.as_uri()] for page in pages if page.as_uri() in wide}


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    wide = too_wide(pages_of(folder))
    for page, needed in wide.items():
        print(f"{page.relative_to(folder)} is {needed} pixels wide on a phone of {PHONE}")
    sys.exit(bool(wide))


if __name__ == "__main__":
    main()
