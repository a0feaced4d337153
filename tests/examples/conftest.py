"""The examples are scripts: they find each other, and tests find them, on the path."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), *(str(path) for path in EXAMPLES.iterdir() if path.is_dir())]
