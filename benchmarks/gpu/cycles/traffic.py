"""Traffic: bytes of memory that a product in tiles reads and writes.

Blocks that run at once read the same rows and columns: those are read once for all of them. A later
wave reads them again, unless they stay in the L2 cache, of which half is taken to hold operands.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.gpu.cycles.architectures import Architecture
from benchmarks.gpu.cycles.model import Kernel, Work, blocks_at_once


class Product(NamedTuple):
    """`rows x columns` sums over `length`, and how their operands and results lie in memory.

    Attributes:
      itemsize: bytes of an element of an operand.
      written: bytes for each element of the result.
      is_square: tiles that run at once form a square, not rows of tiles one after the other.
    """

    rows: int
    columns: int
    length: float
    itemsize: int = 2
    written: float = 4.0
    is_square: bool = True


def product_work(kernel: Kernel, gpu: Architecture, product: Product) -> Work:
    """What a launch of it does."""
    down = math.ceil(product.rows / kernel.tile[0])
    across = math.ceil(product.columns / kernel.tile[1])
    read = _read(kernel, gpu, product, (down, across))
    return Work(
        down * across,
        product.length,
        read + product.written * product.rows * product.columns,
        product.written * kernel.tile[0] * kernel.tile[1],
    )


def _read(kernel: Kernel, gpu: Architecture, product: Product, tiles: tuple[int, int]) -> float:
    """All waves, each with the rows and columns of its tiles."""
    down, across = tiles
    high, wide = _wave(kernel, gpu, product, tiles)
    row_bytes = product.length * product.itemsize
    left = min(high * kernel.tile[0], product.rows) * row_bytes
    right = min(wide * kernel.tile[1], product.columns) * row_bytes
    whole = sorted((product.rows * row_bytes, product.columns * row_bytes))
    waves = (down / high) * (across / wide)
    if whole[0] + min(left, right) < gpu.l2_size / 2:  # the smaller operand stays
        return sum(whole)
    return max(sum(whole), waves * (left + right))


def _wave(
    kernel: Kernel, gpu: Architecture, product: Product, tiles: tuple[int, int]
) -> tuple[float, float]:
    """Tiles that run at once, along both sides."""
    down, across = tiles
    at_once = min(gpu.multiprocessors * blocks_at_once(kernel, gpu), down * across)
    if product.is_square:
        high = min(down, max(1.0, math.sqrt(at_once * kernel.tile[1] / kernel.tile[0])))
        return high, min(across, max(1.0, at_once / high))
    wide = min(across, at_once)
    return min(down, max(1.0, at_once / wide)), wide
