"""Tied blocks: one table that is looked up and multiplied by, such as an embedding tied to its head.

With the dense part `D = left^T right` and the lookup part `E` (row `ids[s]` gets `e[s]`),

    ||D + E||^2 = ||D||^2 + ||E||^2 + 2 <D, E>,   <D, E> = sum_{t, s} left[t, ids[s]] (right[t] . e[s])

so the cross term is one Gram matrix and a gather; no table-sized gradient is formed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.blocks import dense, lookup
from bk_jax.blocks.kept import Kept, Stored, to_leaves
from bk_jax.ops.numerics import SquaredNorms, unit_roundoff
from bk_jax.plan import Block
from bk_jax.sites import Path, Site


@dataclasses.dataclass(frozen=True)
class Tied:
    """The dense part, oriented so that its rows are the table's, and the lookup part."""

    block: Block
    dense: dense.Operands
    rows: lookup.Rows

    def norms(self) -> SquaredNorms:
        """The expanded square of the sum."""
        own = ops.ghost_norm(*self.dense)
        rows = ops.embedding_norm(*self.rows)
        cross = ops.tied_cross(self.dense.left[:, 0], self.dense.right[:, 0], *self.rows)
        estimate = jnp.maximum(own.estimate + rows.estimate + 2 * cross.estimate, 0)
        upper = own.upper + rows.upper + 2 * cross.upper
        # Rounding of the two additions; what the terms themselves lost is in their bounds.
        scale = own.upper + rows.upper + 2 * jnp.abs(cross.upper)
        slack = 4 * unit_roundoff(scale.dtype) * scale
        return SquaredNorms(estimate, upper + slack)

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """A gemm and a scatter."""
        return to_leaves(self.block, _table(self.block, self.dense, self.rows, factor))


def _table(
    block: Block, operands: dense.Operands, rows: lookup.Rows, factor: jax.Array
) -> jax.Array:
    matrix = ops.clipped_gemm(operands.left, factor, operands.right)[0]
    matrix = ops.clipped_scatter(rows.ids, factor, rows.gradients, matrix.shape[0], matrix)
    return _lookup_sites(block)[0].use.to_weight(matrix)


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of dense sites and lookups of one table."""
    lookups = _lookup_sites(block)
    others = tuple(site for site in block.sites if site.use.kind == "dense")
    operands = dense.operands(others, book, taps)
    table = lookups[0].use.weight_groups[0]
    _, contracted, free = others[0].use.weight_groups
    rows_are_left = table == (free if others[0].use.swap else contracted)
    if not rows_are_left:
        operands = dense.Operands(operands.right, operands.left)
    rows = lookup.rows_of(lookups, book, taps)
    if block.route == "store":

        def one(*parts: jax.Array) -> jax.Array:
            left, right, ids, gradients = (part[None] for part in parts)
            both = dense.Operands(left, right), lookup.Rows(ids, gradients)
            return _table(block, *both, jnp.ones(1, gradients.dtype))

        return Stored(block, jax.vmap(one)(*operands, *rows))
    return Tied(block, operands, rows)


def _lookup_sites(block: Block) -> tuple[Site, ...]:
    return tuple(site for site in block.sites if site.use.kind == "lookup")
