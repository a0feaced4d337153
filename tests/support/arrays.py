"""Operands for tests of single operations, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

# Around the widths of vectors and tiles; T, d, p of a dense layer.
ODD_SIZES = [
    (1, 7, 9),
    (2, 3, 17),
    (17, 33, 1),
    (49, 16, 31),
    (3, 513, 7),
]
ZERO_SIZES = [(0, 3, 2), (3, 0, 2)]


def small_integers(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Values in -2..2: sums of their products are exact when accumulated in float32."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


def normals(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Standard normal values."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def double(x: Any) -> np.ndarray:
    """The same values in float64."""
    return np.asarray(x).astype(np.float64)
