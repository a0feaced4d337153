"""Convolution sum: the sum of clipped gradients of a kernel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._conv import checked, kernel_shape, per_sample, spatial_rank, window_of
from bk_jax.ops.conv_patches import Window
from bk_jax.ops.numerics import accumulation_dtype


def conv_sum(x: jax.Array, factor: jax.Array, g: jax.Array, window: Window) -> jax.Array:
    """The sum over examples of `factor[i]` times the gradient, `[kD, kH, kW, C / groups, O]`.

    An example with factor 0 is not read: a NaN in it does no harm.

    >>> x, g = jnp.ones((2, 1, 1, 4, 4, 3)), jnp.ones((2, 1, 1, 2, 2, 5))
    >>> total = conv_sum(x, jnp.asarray([1.0, 0.5]), g, Window(kernel=(1, 3, 3)))
    >>> print(total.shape, total[0, 0, 0, 0, 0])
    (1, 3, 3, 3, 5) 6.0
    """
    x, g = checked("conv_sum", x, g, window)
    if factor.shape != x.shape[:1]:
        raise ValueError(f"conv_sum expects factor [{x.shape[0]}], got {factor.shape}.")
    dtype = accumulation_dtype(x.dtype)
    spatial, shape = spatial_rank(x, g, window), kernel_shape(x, g, window)
    # XLA's shape of the kernel: noise takes over the sum in place, and a reshape would be a copy.
    out = jax.ShapeDtypeStruct(shape[3 - spatial :], dtype)
    (total,) = _native.call(
        "bk_conv_sum", conv_sum_twin, [out], x, factor.astype(dtype), g,
        shapes=_border.images({0: x, 2: g}, spatial), **window.attributes(),
    )  # fmt: skip
    return total.reshape(shape)


def conv_sum_twin(x: jax.Array, factor: jax.Array, g: jax.Array, **window: Any) -> tuple[jax.Array]:
    """The same in plain JAX: examples with factor 0 are replaced by zeros first.

    As in the custom call, the result has no axes for dimensions that the convolution does not have.
    """
    scale = factor.reshape(-1, *[1] * 5)
    x = jnp.where(scale != 0, x.astype(factor.dtype), 0)
    g = jnp.where(scale != 0, g.astype(factor.dtype) * scale, 0)
    total = per_sample(_merge(x), _merge(g), window)[0]
    return (total.reshape(total.shape[3 - spatial_rank(x, g, window_of(window)) :]),)


def _merge(array: jax.Array) -> jax.Array:
    """All examples as the images of one."""
    return array.reshape(1, array.shape[0] * array.shape[1], *array.shape[2:])
