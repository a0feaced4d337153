"""Sum of squares: squared norms of per-example gradients that exist in memory, one array or many."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, inflate
from bk_jax.repeated import repeated


def sum_of_squares(*gradients: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of per-example gradients `[B, ...]`, added up over arrays of one dtype.

    >>> import jax.numpy as jnp
    >>> bias, scale = jnp.asarray([[1.0, 2.0], [0.0, 0.0]]), jnp.asarray([[2.0], [3.0]])
    >>> print(sum_of_squares(bias, scale).estimate)
    [9. 9.]
    """
    dtype = accumulation_dtype(gradients[0].dtype)
    out = jax.ShapeDtypeStruct((len(gradients[0]),), dtype)
    found = _native.call("bk_squared_norms", sum_of_squares_twin, [out, out], *gradients)
    return SquaredNorms(*found)


def sum_of_squares_twin(*gradients: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same in plain JAX."""
    parts = [_of_one(array) for array in gradients]
    estimate, upper = (sum(each[1:], each[0]) for each in zip(*parts, strict=True))
    return estimate, inflate(upper, len(parts)) if len(parts) > 1 else upper


@repeated()
def _of_one(gradients: jax.Array) -> SquaredNorms:
    """Axes are reduced one at a time with barriers between them.

    No partial sum is longer than the axes together, which makes the bound provable whatever order XLA
    sums in.
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
