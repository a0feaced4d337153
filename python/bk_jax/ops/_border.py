"""The shapes in which custom calls take arrays: those in which XLA's own operations read them.

An operand of a custom call exists in memory in the shape the call asks for. If a dot or a
convolution reads the same array in another shape, XLA may compute and store it once for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax

Shape = tuple[int, ...]


def matrix(x: jax.Array) -> Shape:
    """All axes except the last merged, as for XLA's dots."""
    return (math.prod(x.shape[:-1]), x.shape[-1])


def rows(operands: Mapping[int, jax.Array]) -> dict[int, Shape]:
    """Shapes for operands `[B, N, T, k]` by their number: matrices if there is one weight."""
    return {number: matrix(x) for number, x in operands.items() if x.shape[1] == 1}


def images(operands: Mapping[int, jax.Array], spatial: int) -> dict[int, Shape]:
    """Shapes for operands `[B, images, D, H, W, C]` of a convolution of 1, 2 or 3 dimensions."""
    return {number: _image(x, spatial) for number, x in operands.items()}


def _image(x: jax.Array, spatial: int) -> Shape:
    return (x.shape[0] * x.shape[1], *x.shape[5 - spatial :])
