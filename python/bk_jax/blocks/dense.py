"""Dense blocks: the routes ghost, fused and store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.blocks.kept import Kept, Stored, merge_scans, stack_lengths, to_leaves
from bk_jax.norms import Part, Term, add_up
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.partition import Rule, Shards, partitioned
from bk_jax.plan import Block
from bk_jax.sites import Path, Site

LEFT, RIGHT = "b n t m", "b n t k"
POSITIONS = frozenset({"t"})
STORE = Rule((LEFT, RIGHT), ("b n m k", "b", "b"), POSITIONS, exchange="b")


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

    def norms(self) -> Term:
        """From Gram matrices, or from the gradient without keeping it.

        A part of the rows or columns has its own part of the norm; positions are needed together.
        """
        norm = ops.ghost_norm if self.ghost else ops.direct_norm

        def norms(shards: Shards, left: jax.Array, right: jax.Array) -> list[Part]:
            return [Part(norm(left, right), ("n", "m", "k"))]

        return Term(norms, self.operands, (LEFT, RIGHT), POSITIONS)

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """One gemm over all examples."""

        def add(
            shards: Shards, left: jax.Array, factor: jax.Array, right: jax.Array
        ) -> tuple[jax.Array]:
            return (shards.sum(ops.clipped_gemm(left, factor, right), "b", "t"),)

        rule = Rule((LEFT, "b", RIGHT), ("n m k",), scatters=True)
        (total,) = partitioned(add, rule, self.operands.left, factor, self.operands.right)
        return to_leaves(self.block, to_weight(self.block.sites[0], total))


def shared_norms(layers: Sequence[Dense]) -> Term:
    """Squared norms of layers with the same activations, added up.

    They are one layer whose output gradients stand next to each other: the Gram matrix of the
    activations is made once. Not so for gradients that are cut in different ways over devices.
    """
    pairs = [_activation_and_gradient(layer) for layer in layers]
    names = [f"k{number}" for number in range(len(pairs))]

    def norms(shards: Shards, activation: jax.Array, *gradients: jax.Array) -> list[Part]:
        if len({shards.over(name) for name in names}) == 1:
            together = jnp.concatenate(gradients, axis=3)
            return [Part(ops.ghost_norm(activation, together), ("n", "m", names[0]))]
        each = zip(gradients, names, strict=True)
        return [Part(ops.ghost_norm(activation, g), ("n", "m", name)) for g, name in each]

    labels = (LEFT, *(f"b n t {name}" for name in names))
    return Term(norms, (pairs[0].left, *(pair.right for pair in pairs)), labels, POSITIONS)


def _activation_and_gradient(layer: Dense) -> Operands:
    left, right = layer.operands
    return Operands(right, left) if layer.block.sites[0].use.swap else Operands(left, right)


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of dense sites."""
    both = operands(block.sites, book, taps)
    if block.route == "store":
        gradients, *squares = partitioned(_per_sample, STORE, *both)
        return Stored(block, to_weight(block.sites[0], gradients), SquaredNorms(*squares))
    return Dense(block, both, ghost=block.route == "ghost")


def _per_sample(shards: Shards, left: jax.Array, right: jax.Array) -> tuple[jax.Array, ...]:
    gradients, squares = ops.per_sample_grad(left, right)
    return gradients, *add_up(shards, squares, ("n", "m", "k"))


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
