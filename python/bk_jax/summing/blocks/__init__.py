"""Blocks: what is kept of the gradient of one weight, its norms and its clipped sum, by route.

`keep` turns what the book and the taps hold for a block into a `Kept`: it knows the squared norm of
every example's gradient, and the clipped sum for given factors, as gradients of leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path
from bk_jax.summing.blocks import conv, dense, lookup, tied
from bk_jax.summing.blocks.equal import in_sum_calls
from bk_jax.summing.blocks.stored import Tapped
from bk_jax.summing.blocks.together import together
from bk_jax.summing.kept import Kept

_KEEP = {"dense": dense.keep, "conv": conv.keep, "lookup": lookup.keep, "tied": tied.keep}


def keep(
    block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any], scale: Any = None
) -> Kept:
    """What is kept of a block between the norms and the sums.

    A dense block may have an array of scales, for the rows or for the columns of its leaf.
    """
    if scale is not None:
        return dense.keep(block, book, taps, scale)
    return _KEEP[block.kind](block, book, taps)


__all__ = ["Kept", "Tapped", "in_sum_calls", "keep", "together"]
