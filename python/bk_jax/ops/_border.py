"""The shapes in which custom calls take arrays: those in which XLA's own operations read them.

An operand of a custom call exists in memory in the shape the call asks for. If a dot or a
convolution reads the same array in another shape, XLA may compute and store it once for each.

On a GPU, rows of 16-bit elements that do not start at multiples of 16 bytes (GPT2's 50257 words) take
kernels twice as long as others. There they get zeros at their ends, which change neither norms nor sums.
All calls of a layer take the same longer rows, so they are written once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import jax

from bk_jax._custom_call import Padded

Shape = tuple[int, ...]
VECTOR = 16  # bytes that a kernel for GPUs loads at a time
# Shorter odd rows are those of small heads (10 or 1000 classes), whose norm and sum take hardly longer
# than it takes to start one more kernel, the copy.
LONG_ROW = 1024


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


def padded_width(width: int, itemsize: int) -> int:
    """The length that rows have on a GPU.

    >>> padded_width(50257, 2), padded_width(768, 2), padded_width(1001, 2), padded_width(50257, 4)
    (50264, 768, 1001, 50257)
    """
    if itemsize != 2 or width < LONG_ROW:
        return width
    step = VECTOR // itemsize
    return -(-width // step) * step


def padded(
    operands: Mapping[int, jax.Array], results: Sequence[jax.ShapeDtypeStruct]
) -> Padded | None:
    """A dense layer's call as it is on a GPU, if rows of these operands are longer there.

    Results of two axes or more are gradients: they end with the widths of the first two operands.
    """
    widths = {n: padded_width(x.shape[-1], x.dtype.itemsize) for n, x in operands.items()}
    longer = {n: width for n, width in widths.items() if width != operands[n].shape[-1]}
    if not longer:
        return None
    last = tuple(widths.values())[:2]
    wide = (
        jax.ShapeDtypeStruct((*one.shape[:-2], *last), one.dtype) if len(one.shape) > 1 else one
        for one in results
    )
    return Padded(tuple(longer.items()), tuple(wide))
