"""Lookup blocks: norms by adding up the gradients of equal rows, sums by a scatter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.blocks.kept import Kept, Stored, merge_scans, stack_lengths, to_leaves
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.plan import Block
from bk_jax.sites import Path, Site


class Rows(NamedTuple):
    """`ids[B, T]` into the table (-1: none) and the gradients `[B, T, p]` of the rows."""

    ids: jax.Array
    gradients: jax.Array


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Row numbers and gradients of a block of lookups."""

    block: Block
    rows: Rows

    def norms(self) -> SquaredNorms:
        """Rows that occur more than once in an example add up before squaring."""
        return ops.embedding_norm(*self.rows)

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """Scaled gradients scattered into the table."""
        total = ops.clipped_scatter(
            self.rows.ids, factor, self.rows.gradients, table_rows(self.block)
        )
        return to_leaves(self.block, to_weight(self.block.sites[0], total))


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of lookups."""
    rows = rows_of(block.sites, book, taps)
    if block.route == "store":
        return Stored(block, to_weight(block.sites[0], jax.vmap(_one_table(block))(*rows)))
    return Lookup(block, rows)


def _one_table(block: Block) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The whole table's gradient of one example."""

    def scatter(ids: jax.Array, gradients: jax.Array) -> jax.Array:
        one = jnp.ones(1, gradients.dtype)
        return ops.clipped_scatter(ids[None], one, gradients[None], table_rows(block))

    return scatter


def table_rows(block: Block) -> int:
    """Number of rows of all tables of the stack together."""
    count = block.sites[0].use.sizes[2]
    for length in stack_lengths(block.sites[0].axes):
        count *= length
    return count


def rows_of(sites: tuple[Site, ...], book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Rows:
    """Joins lookups along the tokens; tables of a stack become one long table."""
    parts = [_site_rows(site, book[site.path], taps[site.path]) for site in sites]
    ids = jnp.concatenate([part.ids for part in parts], axis=1)
    return Rows(ids, jnp.concatenate([part.gradients for part in parts], axis=1))


def _site_rows(site: Site, ids: jax.Array, gradients: jax.Array) -> Rows:
    ids = merge_scans(ids[..., None, :, None], site.axes)[..., 0]  # [B, tables, T]
    gradients = merge_scans(gradients[..., None, :, :], site.axes)
    batch, tables, tokens = ids.shape
    first_row = jnp.arange(tables, dtype=ids.dtype)[:, None] * site.use.sizes[2]
    ids = jnp.where(ids >= 0, ids + first_row, ids)
    flat = (batch, tables * tokens)
    return Rows(ids.reshape(flat), gradients.reshape(*flat, gradients.shape[-1]))


def to_weight(site: Site, gradient: jax.Array) -> jax.Array:
    """`[..., all rows, p]` to `[..., stack..., *weight_shape]`."""
    lead, p = gradient.shape[:-2], gradient.shape[-1]
    stack = stack_lengths(site.axes)
    return site.use.to_weight(gradient.reshape(*lead, *stack, site.use.sizes[2], p))
