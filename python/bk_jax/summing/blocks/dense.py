"""Dense blocks: the routes ghost, fused and store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.planning.plan import Block
from bk_jax.program.sites import Path, Site
from bk_jax.sharding.partition import Rule, Shards, partitioned
from bk_jax.summing.blocks.kept import Kept, Stored, join_scans, merge, stack_lengths, to_leaves
from bk_jax.summing.norms import Part, Term, add_up

POSITIONS = frozenset({"t"})
Names = tuple[str, ...]


class Operands(NamedTuple):
    """`left[B, n..., T, rows...]` and `right[B, n..., T, columns...]`: the gradient is `left^T right`.

    Each axis of a weight is a factor of its own and may be cut over devices; merged with the one
    before it, it could not be. `lead` is the number of axes of n.
    """

    left: jax.Array
    right: jax.Array
    lead: int = 1

    @property
    def factors(self) -> tuple[Names, Names, Names]:
        """Of n, rows and columns."""
        first = 2 + self.lead
        counts = (self.lead, self.left.ndim - first, self.right.ndim - first)
        n, m, k = (_names(*both) for both in zip("nmk", counts, strict=True))
        return n, m, k

    @property
    def labels(self) -> tuple[str, str]:
        """Of both arrays."""
        n, m, k = self.factors
        return _joined("b", *n, "t", *m), _joined("b", *n, "t", *k)


def _names(prefix: str, count: int) -> Names:
    return tuple(f"{prefix}{number}" for number in range(count))


def _joined(*factors: str) -> str:
    return " ".join(factors)


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
        left, right, lead = self.operands
        n, m, k = self.operands.factors

        def norms(shards: Shards, left: jax.Array, right: jax.Array) -> list[Part]:
            return [Part(norm(merge(left, lead), merge(right, lead)), (*n, *m, *k))]

        return Term(norms, (left, right), self.operands.labels, POSITIONS)

    def clipped_sum(self, factor: jax.Array) -> dict[int, jax.Array]:
        """One gemm over all examples."""
        left, right, lead = self.operands
        n, m, k = self.operands.factors

        def add(
            shards: Shards, left: jax.Array, factor: jax.Array, right: jax.Array
        ) -> tuple[jax.Array]:
            total = ops.clipped_gemm(merge(left, lead), factor, merge(right, lead))
            return (shards.sum(total.reshape(_gradient_shape(left, right, lead)), "b", "t"),)

        first, last = self.operands.labels
        rule = Rule((first, "b", last), (_joined(*n, *m, *k),), scatters=True)
        (total,) = partitioned(add, rule, left, factor, right)
        return to_leaves(self.block, to_weight(self.block.sites[0], total))


def _gradient_shape(left: jax.Array, right: jax.Array, lead: int) -> tuple[int, ...]:
    """`n..., rows..., columns...`."""
    return (*left.shape[1 : 1 + lead], *left.shape[2 + lead :], *right.shape[2 + lead :])


def shared_norms(layers: Sequence[Dense]) -> Term:
    """Squared norms of layers with the same activations, added up.

    They are one layer whose output gradients stand next to each other: the Gram matrix of the
    activations is made once. Not so for gradients that are cut in different ways over devices.
    """
    pairs = [_activation_and_gradient(layer) for layer in layers]
    lead = pairs[0].lead
    n, m, _ = pairs[0].factors
    names = [_names(f"k{i}_", len(pair.factors[2])) for i, pair in enumerate(pairs)]

    def norms(shards: Shards, *arrays: jax.Array) -> list[Part]:
        activation, *gradients = (merge(array, lead) for array in arrays)
        if len({shards.over(*own) for own in names}) == 1:
            together = jnp.concatenate(gradients, axis=3)
            return [Part(ops.ghost_norm(activation, together), (*n, *m, *names[0]))]
        each = zip(gradients, names, strict=True)
        return [Part(ops.ghost_norm(activation, g), (*n, *m, *own)) for g, own in each]

    labels = (pairs[0].labels[0], *(_joined("b", *n, "t", *own) for own in names))
    return Term(norms, (pairs[0].left, *(pair.right for pair in pairs)), labels, POSITIONS)


def _activation_and_gradient(layer: Dense) -> Operands:
    left, right, lead = layer.operands
    swapped = Operands(right, left, lead)
    return swapped if layer.block.sites[0].use.swap else layer.operands


def keep(block: Block, book: Mapping[Path, Any], taps: Mapping[Path, Any]) -> Kept:
    """The kept arrays of a block of dense sites."""
    both = operands(block.sites, book, taps)
    if block.route == "store":
        return _store(block, both)
    return Dense(block, both, ghost=block.route == "ghost")


def _store(block: Block, both: Operands) -> Stored:
    left, right, lead = both
    n, m, k = both.factors

    def each(shards: Shards, left: jax.Array, right: jax.Array) -> tuple[jax.Array, ...]:
        gradients, squares = ops.per_sample_grad(merge(left, lead), merge(right, lead))
        shape = (left.shape[0], *_gradient_shape(left, right, lead))
        return gradients.reshape(shape), *add_up(shards, squares, (*n, *m, *k))

    results = (_joined("b", *n, *m, *k), "b", "b")
    rule = Rule(both.labels, results, POSITIONS, exchange="b")
    gradients, *squares = partitioned(each, rule, left, right)
    weights = to_weight(block.sites[0], gradients, (left.shape[0],))
    return Stored(block, weights, SquaredNorms(*squares))


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
    own = len(site.use.weight_groups[0])
    a, g = (join_scans(array, site.axes, own) for array in (activation, gradient))
    lead = own + len(stack_lengths(site.axes))
    return Operands(g, a, lead) if site.use.swap else Operands(a, g, lead)


def to_weight(site: Site, gradient: jax.Array, batch: tuple[int, ...] = ()) -> jax.Array:
    """`[batch, n..., rows..., columns...]`, or groups of it, to `[batch, stack..., *weight_shape]`."""
    return site.use.to_weight(gradient, (*batch, *stack_lengths(site.axes)))
