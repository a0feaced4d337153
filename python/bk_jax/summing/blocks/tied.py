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
from bk_jax.ops.numerics import SquaredNorms, unit_roundoff
from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path, Site
from bk_jax.sharding.partition import WHOLE, Rule, Shards, partitioned
from bk_jax.summing.blocks import dense, lookup
from bk_jax.summing.blocks.kept import Kept, Stored, merge, to_leaves
from bk_jax.summing.norms import Part, Term

LABELS = ("b n t r", "b n t p", "b s", "b s p")


@dataclasses.dataclass(frozen=True)
class Tied:
    """The dense part, oriented so that its rows are the table's, and the lookup part."""

    block: Block
    dense: tuple[jax.Array, jax.Array]  # [B, N, T, rows], [B, N, T, p]
    rows: lookup.Rows

    def norms(self) -> Term:
        """The expanded square of the sum; a part of the table has its own part of it."""
        whole = frozenset({"t", "s"})
        return Term(_norms, (*self.dense, *self.rows), LABELS, whole)

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """A gemm and a scatter."""
        rule = Rule((*LABELS, "b"), ("r p",), scatters=True)
        (table,) = partitioned(_sum, rule, *self.dense, *self.rows, factor)
        return to_leaves(self.block, _lookup_sites(self.block)[0].use.to_weight(table))


def _norms(
    shards: Shards, left: jax.Array, right: jax.Array, ids: jax.Array, gradients: jax.Array
) -> list[Part]:
    ids = lookup.own_ids(shards, ids, left.shape[3])
    own = ops.ghost_norm(left, right)
    rows = ops.embedding_norm(ids, gradients)
    cross = ops.tied_cross(left[:, 0], right[:, 0], ids, gradients)
    estimate = jnp.maximum(own.estimate + rows.estimate + 2 * cross.estimate, 0)
    upper = own.upper + rows.upper + 2 * cross.upper
    # Rounding of the two additions; what the terms themselves lost is in their bounds.
    scale = own.upper + rows.upper + 2 * jnp.abs(cross.upper)
    slack = 4 * unit_roundoff(scale.dtype) * scale
    return [Part(SquaredNorms(estimate, upper + slack), ("r", "p"))]


def _sum(
    shards: Shards,
    left: jax.Array,
    right: jax.Array,
    ids: jax.Array,
    gradients: jax.Array,
    factor: jax.Array,
) -> tuple[jax.Array]:
    """The table's clipped sum; one sum over devices, unless they hold different positions."""
    ids = lookup.own_ids(shards, ids, left.shape[3])
    matrix = ops.clipped_gemm(left, factor, right)[0]
    apart = shards.over("t") != shards.over("s")
    if apart:
        matrix = shards.sum(matrix, "b", "t")
        alone = ops.clipped_scatter(ids, factor, gradients, left.shape[3])
        return (matrix + shards.sum(alone, "b", "s"),)
    matrix = ops.clipped_scatter(ids, factor, gradients, matrix.shape[0], matrix)
    return (shards.sum(matrix, "b"),)


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of dense sites and lookups of one table."""
    lookups = _lookup_sites(block)
    others = tuple(site for site in block.sites if site.use.kind == "dense")
    both = dense.operands(others, book, taps)
    left, right = merge(both.left, both.lead), merge(both.right, both.lead)
    table = lookups[0].use.weight_groups[0]
    _, contracted, free = others[0].use.weight_groups
    rows_are_left = table == (free if others[0].use.swap else contracted)
    operands = (left, right) if rows_are_left else (right, left)
    rows = lookup.rows_of(lookups, book, taps)
    if block.route == "store":
        return Stored(block, lookups[0].use.to_weight(_tables(operands, rows)))
    return Tied(block, operands, rows)


def _tables(operands: tuple[jax.Array, jax.Array], rows: lookup.Rows) -> jax.Array:
    """The table's gradient of every example, `[B, rows, p]`."""

    def one(*parts: jax.Array) -> jax.Array:
        left, right, ids, gradients = (part[None] for part in parts)
        factor = jnp.ones(1, gradients.dtype)
        return _sum(WHOLE, left, right, ids, gradients, factor)[0]

    def each(shards: Shards, *parts: jax.Array) -> tuple[jax.Array]:
        return (jax.vmap(one)(*parts),)

    rule = Rule(LABELS, ("b r p",), frozenset({"t", "s", "r"}), exchange="b")
    return partitioned(each, rule, *operands, *rows)[0]


def _lookup_sites(block: Block) -> tuple[Site, ...]:
    return tuple(site for site in block.sites if site.use.kind == "lookup")
