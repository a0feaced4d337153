"""Sum of squares: squared norms of per-example gradients that exist in memory."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, inflate
from bk_jax.repeated import repeated


@repeated()
def sum_of_squares(gradients: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of per-example gradients `[B, ...]`.

    Axes are reduced one at a time with barriers between them, so that no partial sum is longer than
    the axes together. This makes the bound provable whatever order XLA sums in.
    """
    dtype = accumulation_dtype(gradients.dtype)
    shape = gradients.shape[1:]
    squares = jnp.square(gradients.astype(dtype))
    if math.prod(shape) <= 2048:
        total = jnp.sum(squares.reshape(len(gradients), math.prod(shape)), axis=1)
        return _certified(total, gradients, math.prod(shape))
    for _ in shape:
        squares = jax.lax.optimization_barrier(jnp.sum(squares, axis=-1))
    return _certified(squares, gradients, sum(shape))


def _certified(total: jax.Array, gradients: jax.Array, operations: int) -> SquaredNorms:
    """Adds the rounding of the sum, and what squares lose by underflow."""
    elements = math.prod(gradients.shape[1:])
    axes = tuple(range(1, gradients.ndim))
    lost = jnp.where(jnp.any(gradients != 0, axis=axes), elements * jnp.finfo(total.dtype).tiny, 0)
    return SquaredNorms(total, inflate(total, operations) + lost.astype(total.dtype))
