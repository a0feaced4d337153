"""What is made of data once, and kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def kept(
    path: Path | None, rows: np.ndarray, encode: Callable[[Any], Any], chunk: int
) -> np.ndarray:
    """What `encode` makes of every row by itself, `chunk` rows at once; from the file if it is there."""
    if path is not None and path.exists():
        return np.load(path)
    parts = range(0, max(1, len(rows)), chunk)
    made = np.concatenate([np.asarray(encode(rows[i : i + chunk])) for i in parts])
    if path is not None:
        save(path, made)
    return made


def save(path: Path, array: np.ndarray) -> None:
    """Complete, or not at all: the name comes last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npy")
    np.save(partial, array)
    partial.replace(path)
