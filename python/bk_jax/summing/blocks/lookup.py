"""Lookup blocks: norms by adding up the gradients of equal rows, sums by a scatter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path, Site
from bk_jax.sharding.partition import Rule, Shards, partitioned
from bk_jax.summing.blocks.kept import Kept, Stored, join_scans, merge, stack_lengths, to_leaves
from bk_jax.summing.norms import Part, Term


class Rows(NamedTuple):
    """`ids[B, T]` into the table (-1: none) and the gradients `[B, T, p]` of the rows."""

    ids: jax.Array
    gradients: jax.Array


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Row numbers and gradients of a block of lookups."""

    block: Block
    rows: Rows

    def norms(self) -> Term:
        """Rows that occur more than once in an example add up before squaring."""

        def norms(shards: Shards, ids: jax.Array, gradients: jax.Array) -> list[Part]:
            return [Part(ops.embedding_norm(ids, gradients), ("p",))]

        return Term(norms, self.rows, ("b t", "b t p"), frozenset({"t"}))

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """Scaled gradients scattered into the table."""
        rows = table_rows(self.block)

        def add(
            shards: Shards, ids: jax.Array, factor: jax.Array, gradients: jax.Array
        ) -> tuple[jax.Array]:
            own = rows // shards.count("r")
            total = ops.clipped_scatter(own_ids(shards, ids, own), factor, gradients, own)
            return (shards.sum(total, "b", "t"),)

        rule = Rule(("b t", "b", "b t p"), ("r p",), scatters=True)
        (total,) = partitioned(add, rule, self.rows.ids, factor, self.rows.gradients)
        return to_leaves(self.block, to_weight(self.block.sites[0], total))


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of lookups."""
    rows = rows_of(block.sites, book, taps)
    if block.route == "store":
        return Stored(block, to_weight(block.sites[0], _tables(block, rows)))
    return Lookup(block, rows)


def own_ids(shards: Shards, ids: jax.Array, rows: int) -> jax.Array:
    """Ids within this device's `rows` rows of the table; -1 for those of other devices."""
    if not shards.over("r"):
        return ids
    own = ids - shards.start("r", rows)
    return jnp.where((own >= 0) & (own < rows), own, -1)


def _tables(block: Block, rows: Rows) -> jax.Array:
    """The whole table's gradient of every example, `[B, rows, p]`."""

    def each(shards: Shards, ids: jax.Array, gradients: jax.Array) -> tuple[jax.Array]:
        return (jax.vmap(_one_table(block))(ids, gradients),)

    rule = Rule(("b t", "b t p"), ("b r p",), frozenset({"t", "r"}), exchange="b")
    return partitioned(each, rule, *rows)[0]


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
    tables = sum(axis.stacked for axis in site.axes)
    ids = merge(join_scans(ids, site.axes, 0), tables)[..., 0]  # [B, tables, T]
    gradients = merge(join_scans(gradients, site.axes, 0), tables)
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
