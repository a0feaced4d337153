"""Dense blocks that read the same activations (query, key and value): one norm for all of them.

They are one layer whose output gradients stand next to each other, so the Gram matrix of the
activations is made once. Not so for gradients that are cut in different ways over devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bk_jax import ops
from bk_jax.ops.numerics import SquaredNorms
from bk_jax.sharding.partition import Shards
from bk_jax.summing.blocks.dense import POSITIONS, Dense, Labels, Operands, joined, numbered
from bk_jax.summing.blocks.stored import merge
from bk_jax.summing.kept import Cut, Kept, Pair, Sums


@dataclasses.dataclass(frozen=True)
class Together:
    """Activations that several layers read, and the output gradients of each."""

    leaves: tuple[int, ...]
    lead: int
    activation: jax.Array
    gradients: tuple[jax.Array, ...]
    columns: tuple[Labels, ...]  # labels of the columns of each gradient

    @property
    def pair(self) -> Pair:
        """The activations, and all gradients next to each other."""
        gradients = [merge(gradient, self.lead) for gradient in self.gradients]
        return merge(self.activation, self.lead), jnp.concatenate(gradients, axis=3)

    def squared_norms(self) -> SquaredNorms:
        """Of all layers together."""
        return ops.ghost_norm(*self.pair)

    def clipped_sum(self, factor: jax.Array, start: Sums) -> dict[int, jax.Array]:
        """Sums are made layer by layer."""
        raise TypeError("layers are together for their norms alone")

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """The activations, then the gradients."""
        return (self.activation, *self.gradients)

    @property
    def cut(self) -> Cut:
        """As for one dense layer; all gradients are cut alike, or `on_device` takes them apart."""
        rows = numbered("m", self.activation.ndim - 2 - self.lead)
        n = numbered("n", self.lead)
        labels = (joined("b", *n, "t", *rows), *(joined("b", *n, "t", *k) for k in self.columns))
        return Cut(labels, (*n, *rows, *self.columns[0]), POSITIONS)

    def on_device(self, shards: Shards, arrays: Sequence[jax.Array]) -> Sequence[Kept]:
        """Together, if all gradients are cut by the same devices."""
        activation, *gradients = arrays
        mine = dataclasses.replace(self, activation=activation, gradients=tuple(gradients))
        if len({shards.over(*own) for own in self.columns}) == 1:
            return [mine]
        return [
            dataclasses.replace(mine, gradients=(gradient,), columns=(own,))
            for gradient, own in zip(gradients, self.columns, strict=True)
        ]


def together(layers: Sequence[Kept]) -> Kept:
    """One for the norms of layers that the plan takes together; a single layer is itself."""
    if len(layers) == 1:
        return layers[0]
    pairs = [_activation_and_gradient(layer) for layer in layers if isinstance(layer, Dense)]
    return Together(
        tuple(leaf for layer in layers for leaf in layer.leaves),
        pairs[0].lead,
        pairs[0].left,
        tuple(pair.right for pair in pairs),
        tuple(numbered(f"k{i}_", len(pair.weight_labels[2])) for i, pair in enumerate(pairs)),
    )


def _activation_and_gradient(layer: Dense) -> Operands:
    left, right, lead = layer.operands
    return Operands(right, left, lead) if layer.block.sites[0].use.swap else layer.operands
