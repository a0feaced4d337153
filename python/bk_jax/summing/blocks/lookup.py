"""Lookup blocks: norms by adding up the gradients of equal rows, sums by a scatter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path, ScanAxis, Site
from bk_jax.repeated import repeated
from bk_jax.sharding.partition import Rule, Shards, sharded
from bk_jax.summing.blocks.stored import Stored, join_scans, merge, stack_lengths, to_leaves
from bk_jax.summing.kept import Cut, Kept, Sums, added


class Rows(NamedTuple):
    """`ids[B, T]` into the table (-1: none) and the gradients `[B, T, p]` of the rows."""

    ids: jax.Array
    gradients: jax.Array


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Row numbers and gradients of a block of lookups."""

    block: Block
    rows: Rows

    @property
    def leaves(self) -> tuple[int, ...]:
        """The block's."""
        return self.block.leaves

    def squared_norms(self) -> SquaredNorms:
        """Rows that occur more than once in an example add up before squaring."""
        return ops.embedding_norm(*self.rows)

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """Scaled gradients scattered into the table."""
        ids, gradients = self.rows
        table = _scatter(ids, factor, gradients, rows=table_rows(self.block))
        return added(start, to_leaves(self.block, to_weight(self.block.sites[0], table)))

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """Row numbers and gradients."""
        return self.rows

    @property
    def cut(self) -> Cut:
        """A part of the columns has its own part of the norm."""
        return Cut(("b t", "b t p"), ("p",), frozenset({"t"}))

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """All row numbers, and a part of the columns."""
        return [dataclasses.replace(self, rows=Rows(*arrays))]


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """What is kept of a block of lookups."""
    rows = rows_of(block.sites, book, taps)
    if block.route != "store":
        return Lookup(block, rows)
    tables = _table_of_each(*rows, rows=table_rows(block))
    return Stored(block, to_weight(block.sites[0], tables))


@sharded(
    lambda ids, factor, gradients, *, rows: Rule(("b t", "b", "b t p"), ("r p",), scatters=True)
)
def _scatter(
    shards: Shards, ids: jax.Array, factor: jax.Array, gradients: jax.Array, *, rows: int
) -> jax.Array:
    """The sum over examples, `[rows, p]`."""
    own = rows // shards.count("r")
    total = ops.clipped_scatter(own_ids(shards, ids, own), factor, gradients, own)
    return shards.sum(total, "b", "t")


def own_ids(shards: Shards, ids: jax.Array, rows: int) -> jax.Array:
    """Ids within this device's `rows` rows of the table; -1 for those of other devices."""
    if not shards.over("r"):
        return ids
    own = ids - shards.start("r", rows)
    return jnp.where((own >= 0) & (own < rows), own, -1)


_EACH = Rule(("b t", "b t p"), ("b r p",), frozenset({"t", "r"}), exchange="b")


@sharded(lambda ids, gradients, *, rows: _EACH)
def _table_of_each(shards: Shards, ids: jax.Array, gradients: jax.Array, *, rows: int) -> jax.Array:
    """The whole table's gradient of every example, `[B, rows, p]`."""
    return add_to_each(ids, gradients, rows)


def add_to_each(
    ids: jax.Array, gradients: jax.Array, rows: int, initial: jax.Array | None = None
) -> jax.Array:
    """Adds every example's rows to a table of its own, `[B, rows, p]`, where it stands.

    The tables of a batch are one long table.
    """
    batch, _, columns = gradients.shape
    if batch * rows > np.iinfo(ids.dtype).max:
        raise ValueError(
            f"the tables of {batch} examples have {batch * rows} rows, more than {ids.dtype} can "
            "number: take fewer examples at a time (microbatch_size), or another route than 'store'."
        )
    start = None if initial is None else initial.reshape(batch * rows, columns)
    ones = jnp.ones(batch, gradients.dtype)
    tables = ops.clipped_scatter(_in_one_table(ids, rows), ones, gradients, batch * rows, start)
    return tables.reshape(batch, rows, columns)


def _in_one_table(ids: jax.Array, rows: int) -> jax.Array:
    """Ids `[..., tables, T]` into tables of `rows` rows, as ids into all of them, one after another.

    An id outside its own table must not reach the next one, which may be another example's.
    """
    first_row = jnp.arange(ids.shape[-2], dtype=ids.dtype)[:, None] * rows
    return jnp.where((ids >= 0) & (ids < rows), ids + first_row, -1)


def table_rows(block: Block) -> int:
    """Number of rows of all tables of the stack together."""
    count = block.sites[0].use.sizes[2]
    for length in stack_lengths(block.sites[0].axes):
        count *= length
    return count


def rows_of(sites: tuple[Site, ...], book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Rows:
    """Joins lookups along the tokens; tables of a stack become one long table."""
    parts = [
        _site_rows(book[site.path], taps[site.path], axes=site.axes, table=site.use.sizes[2])
        for site in sites
    ]
    if len(parts) == 1:
        return parts[0]
    ids = jnp.concatenate([part.ids for part in parts], axis=1)
    return Rows(ids, jnp.concatenate([part.gradients for part in parts], axis=1))


@repeated("axes", "table")
def _site_rows(
    ids: jax.Array, gradients: jax.Array, *, axes: tuple[ScanAxis, ...], table: int
) -> Rows:
    tables = sum(axis.stacked for axis in axes)
    ids = merge(join_scans(ids, axes, 0), tables)[..., 0]  # [B, tables, T]
    gradients = merge(join_scans(gradients, axes, 0), tables)
    batch, tables, tokens = ids.shape
    flat = (batch, tables * tokens)
    return Rows(
        _in_one_table(ids, table).reshape(flat), gradients.reshape(*flat, gradients.shape[-1])
    )


def to_weight(site: Site, gradient: jax.Array) -> jax.Array:
    """`[..., all rows, p]` to `[..., stack..., *weight_shape]`."""
    lead, p = gradient.shape[:-2], gradient.shape[-1]
    stack = stack_lengths(site.axes)
    return site.use.to_weight(gradient.reshape(*lead, *stack, site.use.sizes[2], p))
