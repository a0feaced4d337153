"""Dense blocks: the routes ghost, fused and store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.blocks.kept import Kept, Stored, merge_scans, stack_lengths, to_leaves
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.plan import Block
from bk_jax.sites import Path, Site


class Operands(NamedTuple):
    """`left[B, N, T, rows]` and `right[B, N, T, columns]`: the gradient is `left^T right`."""

    left: jax.Array
    right: jax.Array


@dataclasses.dataclass(frozen=True)
class Dense:
    """Activations and output gradients; `ghost` chooses how the norm is taken."""

    block: Block
    operands: Operands
    ghost: bool

    def norms(self) -> SquaredNorms:
        """From Gram matrices, or from the gradient without keeping it."""
        norm = ops.ghost_norm if self.ghost else ops.direct_norm
        return norm(*self.operands)

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """One gemm over all examples."""
        total = ops.clipped_gemm(self.operands.left, factor, self.operands.right)
        return to_leaves(self.block, to_weight(self.block.sites[0], total))


def shared_norms(layers: Sequence[Dense]) -> SquaredNorms:
    """Squared norms of layers with the same activations, added up.

    They are one layer whose output gradients stand next to each other: the Gram matrix of the
    activations is made once.
    """
    pairs = [_activation_and_gradient(layer) for layer in layers]
    activation = pairs[0].left
    return ops.ghost_norm(activation, jnp.concatenate([pair.right for pair in pairs], axis=3))


def _activation_and_gradient(layer: Dense) -> Operands:
    left, right = layer.operands
    return Operands(right, left) if layer.block.sites[0].use.swap else Operands(left, right)


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of dense sites."""
    both = operands(block.sites, book, taps)
    if block.route == "store":
        gradients, squares = ops.per_sample_grad(*both)
        return Stored(block, to_weight(block.sites[0], gradients), squares)
    return Dense(block, both, ghost=block.route == "ghost")


def operands(
    sites: tuple[Site, ...], book: Mapping[Path, Any], taps: Mapping[Path, Any]
) -> Operands:
    """Joins dense sites along the tokens."""
    parts = [_site_operands(site, book[site.path], taps[site.path]) for site in sites]
    if len(parts) == 1:
        return parts[0]
    left = jnp.concatenate([part.left for part in parts], axis=2)
    right = jnp.concatenate([part.right for part in parts], axis=2)
    return Operands(left, right)


def _site_operands(site: Site, activation: jax.Array, gradient: jax.Array) -> Operands:
    a, g = merge_scans(activation, site.axes), merge_scans(gradient, site.axes)
    return Operands(g, a) if site.use.swap else Operands(a, g)


def to_weight(site: Site, gradient: jax.Array) -> jax.Array:
    """`[..., N', rows, columns]` to `[..., stack..., *weight_shape]`."""
    lead, matrix = gradient.shape[:-3], gradient.shape[-2:]
    n = site.use.sizes[0]
    return site.use.to_weight(gradient.reshape(*lead, *stack_lengths(site.axes), n, *matrix))
