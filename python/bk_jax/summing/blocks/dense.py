"""Dense blocks: the routes ghost, fused and store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype
from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path, Site
from bk_jax.sharding.partition import Rule, Shards, is_cut, sharded
from bk_jax.summing.blocks.stored import Stored, join_scans, merge, stack_lengths, to_leaves
from bk_jax.summing.kept import Cut, Kept, Pair, Sums, added
from bk_jax.summing.norms import add_up

POSITIONS = frozenset({"t"})
Labels = tuple[str, ...]


class Operands(NamedTuple):
    """`left[B, n..., T, rows...]` and `right[B, n..., T, columns...]`: the gradient is `left^T right`.

    Each axis of a weight has a label of its own and may be cut over devices; merged with the one
    before it, it could not be. `lead` is the number of axes of n.
    """

    left: jax.Array
    right: jax.Array
    lead: int = 1

    @property
    def weight_labels(self) -> tuple[Labels, Labels, Labels]:
        """Of n, rows and columns."""
        first = 2 + self.lead
        counts = (self.lead, self.left.ndim - first, self.right.ndim - first)
        n, m, k = (numbered(*both) for both in zip("nmk", counts, strict=True))
        return n, m, k

    @property
    def labels(self) -> tuple[str, str]:
        """Of both arrays."""
        n, m, k = self.weight_labels
        return joined("b", *n, "t", *m), joined("b", *n, "t", *k)

    @property
    def gradient_labels(self) -> str:
        """Of the gradient `[n..., rows..., columns...]`."""
        n, m, k = self.weight_labels
        return joined(*n, *m, *k)

    @property
    def gradient_shape(self) -> tuple[int, ...]:
        """`n..., rows..., columns...`."""
        first = 2 + self.lead
        return (
            *self.left.shape[1 : first - 1],
            *self.left.shape[first:],
            *self.right.shape[first:],
        )

    @property
    def merged(self) -> tuple[jax.Array, jax.Array]:
        """`[B, N, T, rows]` and `[B, N, T, columns]`."""
        return merge(self.left, self.lead), merge(self.right, self.lead)


def numbered(prefix: str, count: int) -> Labels:
    """Labels of axes that belong together."""
    return tuple(f"{prefix}{number}" for number in range(count))


def joined(*labels: str) -> str:
    """The labels of one array."""
    return " ".join(labels)


@dataclasses.dataclass(frozen=True)
class Dense:
    """Activations and output gradients; the route chooses how the norm is taken."""

    block: Block
    operands: Operands

    @property
    def leaves(self) -> tuple[int, ...]:
        """The block's."""
        return self.block.leaves

    @property
    def pair(self) -> Pair:
        """Both operands, of four axes each."""
        return self.operands.merged

    def squared_norms(self) -> SquaredNorms:
        """From Gram matrices, or from the gradient without keeping it."""
        norm = ops.ghost_norm if self.block.route == "ghost" else ops.direct_norm
        return norm(*self.pair)

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """One gemm over all examples; it adds to what there is, if a leaf is the gradient as it is."""
        if self.leaves[0] in start and self._adds_to(start[self.leaves[0]]):
            return {self.leaves[0]: self._added_to(start[self.leaves[0]], factor)}
        left, right, lead = self.operands
        total = _gradient_sum(left, factor, right, lead=lead)
        return added(start, to_leaves(self.block, to_weight(self.block.sites[0], total)))

    def _adds_to(self, start: jax.Array) -> bool:
        """Whether the gemm can add to a leaf's sum where it stands."""
        alike = start.dtype == accumulation_dtype(*(array.dtype for array in self.arrays))
        return alike and is_whole(self.block) and not is_cut()

    def _added_to(self, start: jax.Array, factor: jax.Array) -> jax.Array:
        left, right = self.operands.merged
        shape = (left.shape[1], left.shape[3], right.shape[3])
        return ops.clipped_gemm(left, factor, right, start.reshape(shape)).reshape(start.shape)

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """Both operands."""
        return self.operands[:2]

    @property
    def cut(self) -> Cut:
        """A part of the rows or columns has its own part of the norm; positions are needed together."""
        n, m, k = self.operands.weight_labels
        return Cut(self.operands.labels, (*n, *m, *k), POSITIONS)

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """Parts of both."""
        left, right = arrays
        return [dataclasses.replace(self, operands=Operands(left, right, self.operands.lead))]


def _sum_rule(left: jax.Array, factor: jax.Array, right: jax.Array, *, lead: int) -> Rule:
    both = Operands(left, right, lead)
    first, last = both.labels
    return Rule((first, "b", last), (both.gradient_labels,), scatters=True)


@sharded(_sum_rule)
def _gradient_sum(
    shards: Shards, left: jax.Array, factor: jax.Array, right: jax.Array, *, lead: int
) -> jax.Array:
    """The sum over examples of `factor[i] left[i]^T right[i]`, `[n..., rows..., columns...]`."""
    both = Operands(left, right, lead)
    first, last = both.merged
    total = ops.clipped_gemm(first, factor, last)
    return shards.sum(total.reshape(both.gradient_shape), "b", "t")


def _each_rule(left: jax.Array, right: jax.Array, *, lead: int) -> Rule:
    both = Operands(left, right, lead)
    results = (joined("b", both.gradient_labels), "b", "b")
    return Rule(both.labels, results, POSITIONS, exchange="b")


@sharded(_each_rule)
def _gradient_of_each(
    shards: Shards, left: jax.Array, right: jax.Array, *, lead: int
) -> tuple[jax.Array, ...]:
    """`left[i]^T right[i]` of every example, `[B, n..., rows..., columns...]`, and the squared norms."""
    both = Operands(left, right, lead)
    gradients, squares = ops.per_sample_grad(*both.merged)
    shape = (left.shape[0], *both.gradient_shape)
    return gradients.reshape(shape), *add_up(shards, squares, both.gradient_labels.split())


def keep(
    block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any], scale: Any = None
) -> Kept:
    """What is kept of a block of dense sites; a scale is for the rows or columns of its one leaf."""
    both = operands(block.sites, book, taps)
    if scale is not None:
        both = _scaled(block.sites[0], both, scale)
    if block.route != "store":
        return Dense(block, both)
    left, right, lead = both
    gradients, *squares = _gradient_of_each(left, right, lead=lead)
    weights = to_weight(block.sites[0], gradients, (left.shape[0],))
    return Stored(block, weights, SquaredNorms(*squares))


def _scaled(site: Site, both: Operands, scale: Any) -> Operands:
    """The operands of the scaled gradient: one of them times the scale, in the accumulation dtype.

    Norm and sum are of these operands, so their rounding is no error of the norm.
    """
    left, right, lead = both
    dtype = accumulation_dtype(left.dtype, right.dtype)
    stack = stack_lengths(site.axes)
    ndim = len(stack) + len(site.use.weight_shape)
    spread = jnp.asarray(scale, dtype).reshape((1,) * (ndim - jnp.ndim(scale)) + jnp.shape(scale))
    spread = site.use.from_weight(spread, len(stack))
    end = left.ndim - 2  # of the axes n and rows
    n, rows, columns = spread.shape[:lead], spread.shape[lead:end], spread.shape[end:]
    if any(size > 1 for size in columns):
        return Operands(left, right.astype(dtype) * spread.reshape(*n, 1, *columns), lead)
    return Operands(left.astype(dtype) * spread.reshape(*n, 1, *rows), right, lead)


def operands(
    sites: tuple[Site, ...], book: Mapping[Path, Any], taps: Mapping[Path, Any]
) -> Operands:
    """Joins dense sites along the tokens."""
    parts = [_site_operands(site, book[site.path], taps[site.path]) for site in sites]
    if len(parts) == 1:
        return parts[0]
    lead = parts[0].lead
    left = jnp.concatenate([part.left for part in parts], axis=1 + lead)
    right = jnp.concatenate([part.right for part in parts], axis=1 + lead)
    return Operands(left, right, lead)


def _site_operands(site: Site, activation: jax.Array, gradient: jax.Array) -> Operands:
    own = len(site.use.weight_dims[0])
    a, g = (join_scans(array, site.axes, own) for array in (activation, gradient))
    lead = own + len(stack_lengths(site.axes))
    return Operands(g, a, lead) if site.use.swap else Operands(a, g, lead)


def is_whole(block: Block) -> bool:
    """Whether the one leaf of a block has its elements in the order of `[n, rows, columns]`."""
    site = block.sites[0]
    return site.use.in_order and len(site.views) == 1 and not site.views[0].maps


def to_weight(site: Site, gradient: jax.Array, batch: tuple[int, ...] = ()) -> jax.Array:
    """`[batch, n..., rows..., columns...]`, or groups of it, to `[batch, stack..., *weight_shape]`."""
    return site.use.to_weight(gradient, (*batch, *stack_lengths(site.axes)))
