"""Prints the Python of a document as one program, and a check that the native module was used.

python tools/readme_program.py README.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHECK = """
import importlib.metadata
from bk_jax import _cpu

assert importlib.metadata.version("bk_jax") == bk_jax.__version__
assert "site-packages" in bk_jax.__file__, bk_jax.__file__
assert "bk_ghost_norm" in _cpu.registrations()
bk_jax.diagnose()
"""


def program(text: str) -> str:
    """The blocks of Python in a document, one after the other."""
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, CHECK])


if __name__ == "__main__":
    print(program(Path(sys.argv[1]).read_text()))
