"""Notebooks outside of the site: their first cell, which installs bk_jax, and their buttons.

The address of the repository is no part of the text notebooks. `python tools/docs.py --notebooks` writes
it into the .ipynb files, if BK_JAX_REPOSITORY says it. A button for Colab needs it twice: to open the
notebook, and in the cell that installs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

INSTALL = """\
# Where bk_jax is missing, as on Colab, this installs it (pure JAX), with what the notebooks import.
import importlib.util
import os
import subprocess
import sys

REPOSITORY = ""  # such as https://github.com/OWNER/NAME
if importlib.util.find_spec("bk_jax") is None:
    if not REPOSITORY:
        raise RuntimeError("bk_jax is not installed. Write its repository's address into REPOSITORY.")
    package = f"bk_jax[hlo,train] @ git+{REPOSITORY}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", package, "flax"]
    subprocess.run(pip, env=os.environ | {"BK_JAX_NO_NATIVE": "1"}, check=True)"""
CELL = f"```{{code-cell}}\n:tags: [remove-cell]\n\n{INSTALL}\n```"
_GIVEN = re.compile(r'^(\s*"?REPOSITORY = )(\\?")[^"\\]*(\\?")', re.MULTILINE)


def repository() -> str:
    """The address, such as https://github.com/OWNER/NAME, or nothing."""
    return os.environ.get("BK_JAX_REPOSITORY", "").rstrip("/")


def with_address(text: str, address: str) -> str:
    r"""A notebook, or a cell of one, that installs from an address.

    >>> with_address('REPOSITORY = ""  # such as', "https://a/b")
    'REPOSITORY = "https://a/b"  # such as'
    >>> print(with_address('    "REPOSITORY = \\"https://a/b\\"\\n",', ""))
        "REPOSITORY = \"\"\n",
    """
    return _GIVEN.sub(lambda match: f"{match[1]}{match[2]}{address}{match[3]}", text)


def with_buttons(path: Path) -> str:
    """The text of a document; below the title of a notebook stand its buttons."""
    text = path.read_text()
    if path.parent.name != "notebooks":
        return text
    return re.sub(r"^(# .*)$", rf"\1\n\n{_buttons(path)}", text, count=1, flags=re.MULTILINE)


def _buttons(path: Path) -> str:
    """Colab only where it would work: the stored notebook must know where bk_jax is."""
    stored = path.with_suffix(".ipynb")
    links = [f'<a href="../_static/notebooks/{stored.name}" download>Download notebook</a>']
    address = repository()
    if address.startswith("https://github.com/"):
        if address not in stored.read_text():
            raise SystemExit(
                f"{stored.name} would install nothing on Colab: write BK_JAX_REPOSITORY into the "
                "notebooks (python tools/docs.py --notebooks), and commit them."
            )
        place = address.removeprefix("https://github.com/")
        colab = f"https://colab.research.google.com/github/{place}/blob/main/docs/notebooks"
        links.insert(0, f'<a href="{colab}/{stored.name}">Open in Colab</a>')
    return f'<div class="bk-buttons">{"".join(links)}</div>'
