"""Weighted sum: clipped sums of per-example gradients that exist in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.repeated import repeated

# A single array with fewer elements is left to XLA, which fuses its sum with its neighbours.
NATIVE_ELEMENTS = 1 << 16


def weighted_sum(factor: jax.Array, gradients: jax.Array) -> jax.Array:
    """`sum_i factor[i] * gradients[i]`; an example with factor 0 is not read.

    >>> import jax.numpy as jnp
    >>> print(weighted_sum(jnp.asarray([2.0, 0.0]), jnp.asarray([[1.0, 3.0], [jnp.nan, 1.0]])))
    [2. 6.]
    """
    return weighted_sums(factor, [gradients])[0]


def weighted_sums(factor: jax.Array, gradients: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """The same for many arrays of one dtype, in one call.

    One example is scaled by XLA, together with the sum that its gradient is added to.

    >>> factor, gradients = jnp.asarray([1.0, 0.5]), [jnp.ones((2, 3)), jnp.ones((2, 1))]
    >>> print(*weighted_sums(factor, gradients))
    [1.5 1.5 1.5] [1.5]
    """
    dtype = accumulation_dtype(gradients[0].dtype)
    operands = (factor.astype(dtype), *gradients)
    is_small = len(gradients) == 1 and gradients[0].size < NATIVE_ELEMENTS
    if is_small or len(factor) == 1:
        return weighted_sum_twin(*operands)
    outs = [jax.ShapeDtypeStruct(each.shape[1:], dtype) for each in gradients]
    return _native.call("bk_weighted_sum", weighted_sum_twin, outs, *operands)


def weighted_sum_twin(factor: jax.Array, *gradients: jax.Array) -> tuple[jax.Array, ...]:
    """The same in plain JAX."""
    return tuple(_of_one(factor, each) for each in gradients)


@repeated()
def _of_one(factor: jax.Array, gradients: jax.Array) -> jax.Array:
    """XLA's sum over the first of three axes is very slow on a CPU."""
    shape = gradients.shape[1:]
    flat = gradients.reshape(len(gradients), math.prod(shape))
    scaled = flat.astype(factor.dtype) * factor[:, None]
    return jnp.sum(jnp.where(factor[:, None] != 0, scaled, 0), axis=0).reshape(shape)
