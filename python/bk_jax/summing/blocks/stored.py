"""What all kinds of blocks share: gradients that exist in memory, and merged scan axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.planning.plan import Block
from bk_jax.program.sites import ScanAxis
from bk_jax.program.views import transpose_view
from bk_jax.sharding.partition import Rule, Shards, sharded
from bk_jax.summing.kept import Cut, Kept, Sums, added


@dataclasses.dataclass(frozen=True)
class Tapped:
    """Per-example gradients `[B, *shape]` of leaves, from taps on the leaves themselves.

    On one device the biases and scales of a network are one of these: two calls for all of them. On
    many, each has one of its own, because each may be cut in a way of its own.
    """

    leaves: tuple[int, ...]
    gradients: tuple[jax.Array, ...]

    def squared_norms(self) -> SquaredNorms:
        """Of what will be added, so there is no other rounding to bound."""
        return ops.sum_of_squares(*self.gradients)

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """Weighted sums."""
        return added(start, dict(zip(self.leaves, self._sums(factor), strict=True)))

    def _sums(self, factor: jax.Array) -> Sequence[jax.Array]:
        if len(self.leaves) == 1:
            return [weighted_sum(factor, self.gradients[0])]
        return ops.weighted_sums(factor, self.gradients)

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """The gradients."""
        return self.gradients

    @property
    def cut(self) -> Cut:
        """In any way: an element has its own part of the norm."""
        (gradients,) = self.gradients
        axes = _axes(gradients)
        return Cut((" ".join(("b", *axes)),), axes)

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """A part of the gradients."""
        return [dataclasses.replace(self, gradients=tuple(arrays))]


@dataclasses.dataclass(frozen=True)
class Stored:
    """Per-example gradients `[B, stack..., *weight_shape]` of a block, formed once and summed later."""

    block: Block
    gradients: jax.Array
    squares: SquaredNorms | None = None  # where they were made together with the gradients

    @property
    def leaves(self) -> tuple[int, ...]:
        """The block's."""
        return self.block.leaves

    def squared_norms(self) -> SquaredNorms:
        """Of what will be added."""
        return self.squares or ops.sum_of_squares(self.gradients)

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """A weighted sum."""
        return added(start, to_leaves(self.block, weighted_sum(factor, self.gradients)))

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """The gradients, or their squared norms where they are known."""
        return self.squares or (self.gradients,)

    @property
    def cut(self) -> Cut:
        """Squared norms that are known are whole already."""
        return Cut(("b", "b")) if self.squares else Tapped((), (self.gradients,)).cut

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """A part of the gradients, or the squared norms of this device's examples."""
        if self.squares:
            return [Known(self.leaves, SquaredNorms(*arrays))]
        return [Tapped(self.leaves, tuple(arrays))]


@dataclasses.dataclass(frozen=True)
class Known:
    """Squared norms that are known already, without the gradients."""

    leaves: tuple[int, ...]
    squares: SquaredNorms

    def squared_norms(self) -> SquaredNorms:
        """They are there."""
        return self.squares

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """Whoever has the gradients adds them up."""
        raise TypeError("squared norms alone have no sum")

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """Estimates and bounds."""
        return self.squares

    @property
    def cut(self) -> Cut:
        """Each device has those of its own examples."""
        return Cut(("b", "b"))

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """Those of this device's examples."""
        return [Known(self.leaves, SquaredNorms(*arrays))]


def _axes(gradients: jax.Array) -> tuple[str, ...]:
    return tuple(f"w{i}" for i in range(gradients.ndim - 1))


def _weighted_sum_rule(factor: jax.Array, gradients: jax.Array) -> Rule:
    axes = _axes(gradients)
    return Rule(("b", " ".join(("b", *axes))), (" ".join(axes),), scatters=True)


@sharded(_weighted_sum_rule)
def weighted_sum(shards: Shards, factor: jax.Array, gradients: jax.Array) -> jax.Array:
    """`ops.weighted_sum` over all devices."""
    return shards.sum(ops.weighted_sum(factor, gradients), "b")


def to_leaves(block: Block, weight_gradient: jax.Array) -> dict[int, jax.Array]:
    """Carries `[stack..., *weight_shape]` back to every leaf of the block."""
    out: dict[int, jax.Array] = {}
    for view in block.sites[0].views:
        part = transpose_view(view, weight_gradient)
        out[view.leaf] = out[view.leaf] + part if view.leaf in out else part
    return out


def stack_lengths(axes: Sequence[ScanAxis]) -> tuple[int, ...]:
    """Lengths of the scans that give each step its own weight."""
    return tuple(axis.length for axis in axes if axis.stacked)


def join_scans(array: jax.Array, axes: Sequence[ScanAxis], lead: int) -> jax.Array:
    """`[B, scans..., n..., T, k...]` to `[B, stack..., n..., T', k...]`: shared scans join T.

    `lead` is the number of axes of n.
    """
    stacked = [1 + i for i, axis in enumerate(axes) if axis.stacked]
    shared = [1 + i for i, axis in enumerate(axes) if not axis.stacked]
    t_axis = 1 + len(axes) + lead
    weights, last = [*stacked, *range(t_axis - lead, t_axis)], range(t_axis + 1, array.ndim)
    sizes = array.shape
    ordered = jnp.transpose(array, (0, *weights, *shared, t_axis, *last))
    t = math.prod(sizes[i] for i in (*shared, t_axis))
    return ordered.reshape(sizes[0], *(sizes[i] for i in weights), t, *sizes[t_axis + 1 :])


def merge(array: jax.Array, lead: int) -> jax.Array:
    """`[B, n..., T, k...]` to `[B, N, T, k]`; `lead` is the number of axes of n."""
    sizes = array.shape
    n, k = math.prod(sizes[1 : 1 + lead]), math.prod(sizes[2 + lead :])
    return array.reshape(sizes[0], n, sizes[1 + lead], k)
