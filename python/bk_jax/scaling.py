"""Scaling: what each example's gradient is multiplied by before it is clipped.

With one positive number `s` per parameter no gradient is formed for it: the squared norm of what is
scaled is `s^2` times that of the gradient, and the sum is linear. Numbers for the rows or the columns
of a matrix multiply its activations or its output gradients: `diag(r) a^T g = (a diag(r))^T g`, and
norm and sum are both of what was multiplied. Any other array needs the gradients example by example:
such a parameter takes the route `"leaf"` (`planning.scaled` decides, `summing.blocks.dense` multiplies).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, inflate
from bk_jax.prefixes import spread

BY_ELEMENT = "scaled element by element before clipping"


class Part(NamedTuple):
    """Parameters whose norms may be taken together: of one clip group, with one number."""

    group: int
    scale: Any = None


@dataclasses.dataclass(frozen=True)
class Scaling:
    """The given numbers and arrays, and which of them each trainable leaf has."""

    values: tuple[Any, ...] = ()
    of_leaf: tuple[int, ...] = ()

    def is_by_element(self, leaf: int) -> bool:
        """Whether a leaf's elements have numbers of their own."""
        return bool(self.values) and np.ndim(self.values[self.of_leaf[leaf]]) > 0

    def array_of(self, leaf: int) -> Any:
        """The array of a leaf whose elements have numbers of their own, else `None`."""
        return self.values[self.of_leaf[leaf]] if self.is_by_element(leaf) else None

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """Of the arrays, for the leaves whose elements have numbers of their own."""
        leaves = filter(self.is_by_element, range(len(self.of_leaf)))
        return {leaf: np.shape(self.array_of(leaf)) for leaf in leaves}

    def parts(self, groups: Sequence[int], count: int) -> tuple[tuple[int, ...], tuple[Part, ...]]:
        """The part of each leaf, and all parts: those of no number first, one for each clip group."""
        numbers: dict[tuple[int, int | None], int] = {(k, None): k for k in range(count)}
        found = [Part(group) for group in range(count)]
        of_leaf = []
        for leaf, group in enumerate(groups):
            has_number = bool(self.values) and not self.is_by_element(leaf)
            key = (group, self.of_leaf[leaf] if has_number else None)
            if key not in numbers:
                numbers[key] = len(found)
                found.append(Part(group, self.values[self.of_leaf[leaf]]))
            of_leaf.append(numbers[key])
        return tuple(of_leaf), tuple(found)

    def each(self, leaf: int, gradients: jax.Array) -> jax.Array:
        """Gradients `[B, *shape]` of a tapped leaf, scaled now if that is by element."""
        return self._times(leaf, gradients) if self.is_by_element(leaf) else gradients

    def total(self, leaf: int, total: jax.Array) -> jax.Array:
        """A leaf's clipped sum, scaled unless its gradients or their operands were."""
        if not self.values or self.is_by_element(leaf):
            return total
        return self._times(leaf, total)

    def _times(self, leaf: int, array: jax.Array) -> jax.Array:
        dtype = accumulation_dtype(array.dtype)
        return array.astype(dtype) * jnp.asarray(self.values[self.of_leaf[leaf]], dtype)


NOT_SCALED = Scaling()


def make_scaling(
    scale: Any,
    loss_scale: Any,
    treedef: Any,
    trainable: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
) -> Scaling:
    """Spreads a number or a prefix tree over the trainable leaves, whose shapes are given.

    Losses that were multiplied by `loss_scale` have gradients that much larger, which is undone too.
    """
    if scale is None and loss_scale is None:
        return NOT_SCALED
    given = 1.0 if scale is None else scale
    numbers = spread("pre_clip_scale", given, treedef)
    values = tuple(jax.tree_util.tree_leaves(given))
    if loss_scale is not None:
        values = tuple(value / loss_scale for value in values)
    of_leaf = tuple(numbers[i] for i in trainable)
    for number, shape in zip(of_leaf, shapes, strict=True):
        _check_shape(np.shape(values[number]), shape)
    return Scaling(values, of_leaf)


def _check_shape(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(given, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"pre_clip_scale has an array of shape {given} for a parameter of shape {shape}; give one "
            "number, or an array that broadcasts to the parameter."
        )


def scaled_norms(norms: SquaredNorms, scale: Any) -> SquaredNorms:
    """The squared norms of what is scaled; the bound covers roundings, and numbers flushed to 0."""
    if scale is None:
        return norms
    factor = jnp.asarray(scale, norms.upper.dtype)
    hidden = 4 * float(jnp.finfo(factor.dtype).tiny) * (1 + jnp.square(factor))
    upper = inflate(norms.upper * factor * factor, 2) + hidden
    return SquaredNorms(
        norms.estimate * jnp.square(factor), jnp.where(norms.upper > 0, upper, norms.upper)
    )
