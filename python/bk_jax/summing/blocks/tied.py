"""Tied blocks: one table that is looked up and multiplied by, such as an embedding tied to its head.

With the dense part `D = left^T right` and the lookup part `E` (row `ids[s]` gets `e[s]`),

    ||D + E||^2 = ||D||^2 + ||E||^2 + 2 <D, E>,   <D, E> = sum_{t, s} left[t, ids[s]] (right[t] . e[s])

so the cross term is one Gram matrix and a gather; no table-sized gradient is formed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms, unit_roundoff
from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path, Site
from bk_jax.sharding.partition import Rule, Shards, sharded
from bk_jax.summing.blocks import dense, lookup
from bk_jax.summing.blocks.stored import Stored, merge, to_leaves
from bk_jax.summing.kept import Cut, Kept, Sums, added

LABELS = ("b n t r", "b n t p", "b s", "b s p")


@dataclasses.dataclass(frozen=True)
class Tied:
    """The dense part, oriented so that its rows are the table's, and the lookup part."""

    block: Block
    dense: tuple[jax.Array, jax.Array]  # [B, N, T, rows], [B, N, T, p]
    rows: lookup.Rows

    @property
    def leaves(self) -> tuple[int, ...]:
        """The block's."""
        return self.block.leaves

    def squared_norms(self) -> SquaredNorms:
        """The expanded square of the sum."""
        left, right = self.dense
        own = ops.ghost_norm(left, right)
        rows = ops.embedding_norm(*self.rows)
        cross = ops.tied_cross(left[:, 0], right[:, 0], *self.rows)
        estimate = jnp.maximum(own.estimate + rows.estimate + 2 * cross.estimate, 0)
        upper = own.upper + rows.upper + 2 * cross.upper
        # Rounding of the two additions; what the terms themselves lost is in their bounds.
        scale = own.upper + rows.upper + 2 * jnp.abs(cross.upper)
        return SquaredNorms(estimate, upper + 4 * unit_roundoff(scale.dtype) * scale)

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """A gemm and a scatter."""
        table = _table_sum(*self.arrays, factor)
        return added(
            start, to_leaves(self.block, _lookup_sites(self.block)[0].use.to_weight(table))
        )

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """Of the dense part, then of the lookups."""
        return (*self.dense, *self.rows)

    @property
    def cut(self) -> Cut:
        """A part of the table has its own part of the norm."""
        return Cut(LABELS, ("r", "p"), frozenset({"t", "s"}))

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """A part of the table, and the lookups of its rows."""
        left, right, ids, gradients = arrays
        rows = lookup.Rows(lookup.own_ids(shards, ids, left.shape[3]), gradients)
        return [dataclasses.replace(self, dense=(left, right), rows=rows)]


def _add_tables(
    shards: Shards,
    left: jax.Array,
    right: jax.Array,
    ids: jax.Array,
    gradients: jax.Array,
    factor: jax.Array,
) -> jax.Array:
    """The table's clipped sum; one sum over devices, unless they hold different positions."""
    ids = lookup.own_ids(shards, ids, left.shape[3])
    matrix = ops.clipped_gemm(left, factor, right)[0]
    apart = shards.over("t") != shards.over("s")
    if apart:
        matrix = shards.sum(matrix, "b", "t")
        alone = ops.clipped_scatter(ids, factor, gradients, left.shape[3])
        return matrix + shards.sum(alone, "b", "s")
    matrix = ops.clipped_scatter(ids, factor, gradients, matrix.shape[0], matrix)
    return shards.sum(matrix, "b")


_table_sum = sharded(lambda *arrays: Rule((*LABELS, "b"), ("r p",), scatters=True))(_add_tables)


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """What is kept of a block of dense sites and lookups of one table."""
    lookups = _lookup_sites(block)
    others = tuple(site for site in block.sites if site.use.kind == "dense")
    both = dense.operands(others, book, taps)
    left, right = merge(both.left, both.lead), merge(both.right, both.lead)
    table = lookups[0].use.weight_dims[0]
    _, contracted, free = others[0].use.weight_dims
    rows_are_left = table == (free if others[0].use.swap else contracted)
    operands = (left, right) if rows_are_left else (right, left)
    rows = lookup.rows_of(lookups, book, taps)
    if block.route == "store":
        return Stored(block, lookups[0].use.to_weight(_table_of_each(*operands, *rows)))
    return Tied(block, operands, rows)


_EACH = Rule(LABELS, ("b r p",), frozenset({"t", "s", "r"}), exchange="b")


@sharded(lambda *arrays: _EACH)
def _table_of_each(
    shards: Shards, left: jax.Array, right: jax.Array, ids: jax.Array, gradients: jax.Array
) -> jax.Array:
    """The table's gradient of every example, `[B, rows, p]`: products, and rows added to them."""
    products, _ = ops.per_sample_grad(left, right)
    return lookup.add_to_each(ids, gradients, left.shape[3], products)


def _lookup_sites(block: Block) -> tuple[Site, ...]:
    return tuple(site for site in block.sites if site.use.kind == "lookup")
