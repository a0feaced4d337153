"""Calls: seconds of our operations on dense layers, from kernels of the model.

As the code with a main loop calls them: layers of equal shape share a launch for their norms and one for
their sums; operands of 16 bits whose rows do not begin at multiples of 16 bytes are filled up with zeros
first, once for both, and then take the kernels of aligned rows; zeros are cut off the sum. Short rows
(1000 classes) stay as they are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks.gpu.cycles import noise
from benchmarks.gpu.cycles.architectures import Architecture
from benchmarks.gpu.cycles.model import (
    MEMORY_SHARE,
    Kernel,
    Work,
    blocks_at_once,
    bound,
    seconds,
)
from benchmarks.gpu.cycles.traffic import Product, product_work

ENOUGH_LARGE = 216  # as in custom_calls/cuda/tiling.h and clipped_gemm.cu
ENOUGH_SMALL = 512
MOST_SHARES, LEAST_ROWS = 16, 256
STEP = 16  # positions that a short chunk is cut to
MOST_LAYERS = 32  # of one launch: MOST in python/bk_jax/ops/ghost_norms.py
VECTOR = 8  # elements of 16 bytes
LONG_ROW = 1024  # elements: python/bk_jax/ops/_border.py
ITEM = 2  # bytes of bfloat16
SECTOR = 32  # bytes of the L2 cache that one gathered number takes


class Dense(NamedTuple):
    """Layers of one shape in one launch: B examples of T positions, weight [d, p]."""

    batch: int
    tokens: int
    d: int
    p: int
    layers: int = 1

    @property
    def operand_bytes(self) -> float:
        """Of activations and output gradients."""
        return float(ITEM * self.layers * self.batch * self.tokens * (self.d + self.p))

    @property
    def is_aligned(self) -> bool:
        """Whether all rows begin at multiples of 16 bytes."""
        return self.d % VECTOR == 0 and self.p % VECTOR == 0

    def filled(self) -> Dense:
        """With long rows that begin at multiples of 16 bytes."""
        return self._replace(d=_filled(self.d), p=_filled(self.p))


class Calls(NamedTuple):
    """Kernels of one state of the code on a GPU."""

    kernels: dict[str, Kernel]
    gpu: Architecture

    @property
    def has_main_loop(self) -> bool:
        """Whether there are tiles of two sizes."""
        return "ghost norm, small" in self.kernels

    def kernel(self, key: str, copies: int, rows: int, columns: int, aligned: bool) -> Kernel:
        """The tiles that a launch takes; `custom_calls/cuda/tiling.h`."""
        if not self.has_main_loop:
            return self.kernels[key]
        large = math.ceil(rows / 128) * math.ceil(columns / 128) * copies >= ENOUGH_LARGE
        size = "" if large and min(rows, columns) > 64 else ", small"
        return self.kernels[f"{key}{size}{'' if aligned else ', odd rows'}"]

    def memory(self, nbytes: float) -> float:
        """Seconds of a stream."""
        return nbytes / (MEMORY_SHARE * self.gpu.memory)

    def ghost_norm(self, layer: Dense) -> float:
        """Pairs of tiles of both Gram matrices; four small launches around."""
        kernel = self.kernel(
            "ghost norm", layer.layers * layer.batch, layer.tokens, layer.tokens, layer.is_aligned
        )
        tiles = math.ceil(layer.tokens / kernel.tile[0])
        pairs = layer.layers * layer.batch * tiles * (tiles + 1) // 2
        work = Work(pairs, layer.d + layer.p, layer.operand_bytes)
        again = 0.0 if self.has_main_loop else self.memory(layer.operand_bytes)  # for row norms
        return seconds(kernel, self.gpu, work) + again + 5 * self.gpu.launch

    def direct_norm(self, layer: Dense, written: float = 0.0) -> float:
        """The gradient of every example in tiles, squared; `written` bytes for each element."""
        kernel = self.kernel("product", layer.batch, layer.d, layer.p, layer.is_aligned)
        rows, columns = (math.ceil(size / kernel.tile[0]) for size in (layer.d, layer.p))
        length = _padded(layer.tokens, STEP if self.has_main_loop else int(kernel.depth))
        stored = written * layer.batch * layer.d * layer.p
        work = Work(layer.batch * rows * columns, length, layer.operand_bytes + stored,
                    written * kernel.tile[0] * kernel.tile[1])  # fmt: skip
        return seconds(kernel, self.gpu, work) + 2 * self.gpu.launch

    def clipped_sum(self, layer: Dense) -> float:
        """One product over all examples, in shares if there are few tiles of all layers."""
        shares = self._most_shares(layer)
        copies = layer.layers * shares
        kernel = self.kernel("clipped sum", copies, layer.d, layer.p, layer.is_aligned)
        tiles = math.ceil(layer.d / kernel.tile[0]) * math.ceil(layer.p / kernel.tile[1])
        tiles *= layer.layers
        enough = ENOUGH_LARGE if kernel.tile[0] == 128 else ENOUGH_SMALL
        shares = min(math.ceil(enough / tiles), shares)
        length = layer.batch * _padded(
            layer.tokens, STEP if self.has_main_loop else int(kernel.depth)
        )
        whole = Product(layer.d, layer.p, length, ITEM, is_square=self.has_main_loop)
        work = product_work(kernel, self.gpu, whole)
        parts = work._replace(
            tiles=tiles * shares,
            length=length / shares,
            memory_bytes=layer.layers * work.memory_bytes,
        )
        result = 4.0 * layer.layers * layer.d * layer.p
        added = self.memory((shares + 1) * result) + self.gpu.launch if shares > 1 else 0.0
        return seconds(kernel, self.gpu, parts) + added

    def _most_shares(self, layer: Dense) -> int:
        rows = math.ceil(layer.batch * layer.tokens / LEAST_ROWS)
        return max(1, min(MOST_SHARES, rows))

    def filling(self, layer: Dense) -> float:
        """Long rows that are not aligned are copied with zeros, and their sum without them."""
        widths = [width for width in (layer.d, layer.p) if width != _filled(width)]
        if not self.has_main_loop or not widths:
            return 0.0
        rows = ITEM * layer.batch * layer.tokens
        copied = sum(self.memory(rows * (width + _filled(width))) for width in widths)
        cut = self.memory(2 * 4.0 * layer.d * layer.p)
        return copied + cut + (len(widths) + 1) * self.gpu.launch

    def tied_cross(self, layer: Dense) -> float:
        """Inner products of all rows of the head with those of the lookup, each with a weight.

        Weights are gathered when a tile is done: a sector of the L2 cache for each, of a row as wide as
        the table is long. Lengths of rows are read before, by two small launches; another one follows.
        """
        aligned = layer.d % VECTOR == 0
        pairs = (layer.batch, layer.tokens, layer.tokens)
        kernel = self.kernel("tied cross term", *pairs, aligned)
        tiles = layer.batch * math.ceil(layer.tokens / kernel.tile[0]) ** 2
        nbytes = 2.0 * ITEM * layer.batch * layer.tokens * layer.d
        gathered = SECTOR * math.prod(pairs)
        left = min(gathered, ITEM * layer.batch * layer.tokens * layer.p)
        work = Work(tiles, layer.d, nbytes + left, gathered / tiles)
        return seconds(kernel, self.gpu, work) + self.memory(nbytes) + 3 * self.gpu.launch

    def convolution(self, layer: Dense) -> float:
        """Norm or sum of a convolution as a product of patches, which are gathered: no tensor cores."""
        kernel = self.kernels["convolution"]
        down, across = (math.ceil(size / kernel.tile[0]) for size in (layer.d, layer.p))
        work = Work(layer.batch * down * across, layer.tokens, layer.operand_bytes)
        return seconds(kernel, self.gpu, work) + self.gpu.launch

    def patches(self, images: float, written: float) -> float:
        """Bytes of patches that XLA writes, from images that it reads once."""
        return self.memory(images + written) + self.gpu.launch

    def weighted_sum(self, layer: Dense) -> float:
        """Stored gradients, read once."""
        return self.memory(4.0 * (layer.batch + 1) * layer.d * layer.p) + self.gpu.launch

    def noise(self, parameters: int, launches: int = 1) -> float:
        """ChaCha and normals, or as long as memory takes."""
        kernel, gpu = self.kernels["noise"], self.gpu
        at_once = blocks_at_once(kernel, gpu) * noise.values(kernel) * gpu.multiprocessors
        turn = bound(kernel, gpu).cycles / (gpu.clock * gpu.sustained)
        arithmetic = parameters / at_once * turn
        return max(arithmetic, self.memory(8.0 * parameters)) + launches * gpu.launch


def _filled(width: int) -> int:
    return _padded(width, VECTOR) if width >= LONG_ROW else width


def _padded(size: int, step: int) -> int:
    return math.ceil(size / step) * step


def occupancy(kernel: Kernel, gpu: Architecture) -> str:
    """Registers, shared memory and blocks of a multiprocessor, for people."""
    return (
        f"{kernel.registers} registers, {kernel.shared / 1024:.0f} KB: "
        f"{blocks_at_once(kernel, gpu)} blocks"
    )
