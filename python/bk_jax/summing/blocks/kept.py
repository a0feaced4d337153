"""What all kinds of blocks share: the interface, merged scan axes, and stored gradients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.planning.plan import Block
from bk_jax.program.sites import ScanAxis
from bk_jax.program.views import transpose_view
from bk_jax.sharding.partition import Rule, Shards, partitioned
from bk_jax.summing.norms import Part, Term


class Kept(Protocol):
    """Kept arrays of a block: first its norms are asked for, then its sum."""

    def norms(self) -> Term:
        """Squared norms `[B]` of the block's gradients."""

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """The sum over examples of `factor[i]` times the gradient, for every leaf."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """Per-example gradients `[B, stack..., *weight_shape]`, formed once and summed later."""

    block: Block
    gradients: jax.Array
    squares: SquaredNorms | None = None  # where they were made together with the gradients

    def norms(self) -> Term:
        """Squared norms of what will be added, so there is no other rounding to bound."""
        if self.squares is None:
            return norms_of(self.gradients)
        return Term(lambda _, *both: [Part(SquaredNorms(*both))], self.squares, ("b", "b"))

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """A weighted sum."""
        return to_leaves(self.block, weighted_sum(factor, self.gradients))


def norms_of(gradients: jax.Array) -> Term:
    """Squared norms of per-example gradients `[B, ...]`."""
    axes = _axes(gradients)

    def norms(shards: Shards, gradients: jax.Array) -> list[Part]:
        return [Part(ops.sum_of_squares(gradients), axes)]

    return Term(norms, (gradients,), (" ".join(("b", *axes)),))


def weighted_sum(factor: jax.Array, gradients: jax.Array) -> jax.Array:
    """`ops.weighted_sum` over all devices."""

    def add(shards: Shards, factor: jax.Array, gradients: jax.Array) -> tuple[jax.Array]:
        return (shards.sum(ops.weighted_sum(factor, gradients), "b"),)

    axes = _axes(gradients)
    rule = Rule(("b", " ".join(("b", *axes))), (" ".join(axes),), scatters=True)
    return partitioned(add, rule, factor, gradients)[0]


def _axes(gradients: jax.Array) -> tuple[str, ...]:
    return tuple(f"w{i}" for i in range(gradients.ndim - 1))


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
