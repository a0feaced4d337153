"""Norms and sums of per-example gradients that exist in memory (leaf taps and stored gradients)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, inflate


def sum_of_squares(gradients: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of per-example gradients `[B, ...]`.

    Axes are reduced one at a time with barriers between them, so that no partial sum is longer than
    the axes together: this is what makes the bound provable whatever order XLA sums in.
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


# Arrays with fewer elements are left to XLA, which fuses their sum with its neighbours.
NATIVE_ELEMENTS = 1 << 16


def weighted_sum(factor: jax.Array, gradients: jax.Array) -> jax.Array:
    """`sum_i factor[i] * gradients[i]`; an example with the factor 0 is not read.

    >>> import jax.numpy as jnp
    >>> print(weighted_sum(jnp.asarray([2.0, 0.0]), jnp.asarray([[1.0, 3.0], [jnp.nan, 1.0]])))
    [2. 6.]
    """
    dtype = accumulation_dtype(gradients.dtype)
    factor = factor.astype(dtype)
    if gradients.size < NATIVE_ELEMENTS:
        return weighted_sum_twin(factor, gradients)[0]
    out = jax.ShapeDtypeStruct(gradients.shape[1:], dtype)
    (total,) = _native.call("bk_weighted_sum", weighted_sum_twin, [out], factor, gradients)
    return total


def weighted_sum_twin(factor: jax.Array, gradients: jax.Array) -> tuple[jax.Array]:
    """The same in plain JAX; XLA's sum over the first of three axes is very slow on a CPU."""
    shape = gradients.shape[1:]
    flat = gradients.reshape(len(gradients), math.prod(shape))
    scaled = flat.astype(factor.dtype) * factor[:, None]
    return (jnp.sum(jnp.where(factor[:, None] != 0, scaled, 0), axis=0).reshape(shape),)
