"""Sums of dense layers of equal shapes, which the plan for a GPU takes together: one call for many.

A call has all its sums in memory while the operands of all its layers still are. One by one, sums free
operands as they come. So the sums of a call may take a small part of what is kept of all layers: the
step's peak, when everything is kept and the first sum is made, grows by no more than that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import cast

import jax
import numpy as np

from bk_jax import ops
from bk_jax.ops.ghost_norms import even_parts
from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.planning.equal import Numbers
from bk_jax.summing.blocks.dense import Dense, to_weight
from bk_jax.summing.blocks.stored import to_leaves
from bk_jax.summing.kept import Kept, Sums, added, equal_operands

PART = 16  # the sums of a call may take this part of what is kept


@dataclasses.dataclass(frozen=True)
class Equal:
    """Dense layers whose operands are all alike."""

    layers: tuple[Dense, ...]

    @property
    def leaves(self) -> tuple[int, ...]:
        """Of all layers."""
        return tuple(leaf for layer in self.layers for leaf in layer.leaves)

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """One call for all sums; those that are added to others are made one by one, in place."""
        sums = dict(start)
        if len(self.layers) == 1 or any(leaf in start for leaf in self.leaves):
            for layer in self.layers:
                sums.update(layer.clipped_sum(factor, sums))
        else:
            totals = ops.clipped_gemms(factor, [layer.operands.merged for layer in self.layers])
            for layer, total in zip(self.layers, totals, strict=True):
                whole = total.reshape(layer.operands.gradient_shape)
                weight = to_weight(layer.block.sites[0], whole)
                sums.update(added(sums, to_leaves(layer.block, weight)))
        return {leaf: sums[leaf] for leaf in dict.fromkeys(self.leaves)}


def in_sum_calls(blocks: Sequence[Kept], calls: Numbers) -> list[Kept | Equal]:
    """What has a sum, by the numbers of the plan: single blocks, or several of them together."""
    most = sum(_nbytes(array) for block in blocks for array in block.arrays) // PART
    out: list[Kept | Equal] = []
    for call in calls:
        if len(call) == 1:
            out.append(blocks[call[0]])
        else:
            out += _parts([cast(Dense, blocks[number]) for number in call], most)
    return out


def _parts(layers: Sequence[Dense], most: int) -> list[Equal]:
    """Those whose operands are alike, as many together as there is room for."""
    out = []
    for numbers in equal_operands([layer.operands.merged for layer in layers]):
        each = _sum_bytes(layers[numbers[0]])
        count = max(1, most // max(each, 1))
        for part in even_parts(numbers, count):
            out.append(Equal(tuple(layers[number] for number in part)))
    return out


def _sum_bytes(layer: Dense) -> int:
    dtype = accumulation_dtype(*(array.dtype for array in layer.arrays))
    return math.prod(layer.operands.gradient_shape) * np.dtype(dtype).itemsize


def _nbytes(array: jax.Array) -> int:
    return array.size * array.dtype.itemsize
