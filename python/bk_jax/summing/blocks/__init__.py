"""Blocks: the kept arrays of one weight, its norms and its clipped sum, by route.

`keep` turns what the book and the taps hold for a block into a `Kept`: it knows the squared norm of
every example's gradient, and the clipped sum for given factors, as gradients of leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path
from bk_jax.summing.blocks import conv, dense, lookup, tied
from bk_jax.summing.blocks.kept import Kept, norms_of, weighted_sum
from bk_jax.summing.norms import Term

_KEEP = {"dense": dense.keep, "conv": conv.keep, "lookup": lookup.keep, "tied": tied.keep}


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """What is kept of a block between the norms and the sums."""
    return _KEEP[block.kind](block, book, taps)


def norms(together: Sequence[Kept]) -> Term:
    """Squared norms `[B]` of one block, or the sum for several that read the same activations."""
    if len(together) == 1:
        return together[0].norms()
    return dense.shared_norms(cast("Sequence[dense.Dense]", together))


__all__ = ["Kept", "keep", "norms", "norms_of", "weighted_sum"]
