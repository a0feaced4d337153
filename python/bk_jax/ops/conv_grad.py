"""Convolution gradient: the gradient of a kernel for each example, with its norm."""

from __future__ import annotations

from typing import Any

import jax

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._conv import checked, kernel_shape, per_sample, spatial_rank
from bk_jax.ops.conv_patches import Window
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype
from bk_jax.ops.sum_of_squares import sum_of_squares


def conv_grad(x: jax.Array, g: jax.Array, window: Window) -> tuple[jax.Array, SquaredNorms]:
    """The kernel's gradients `[B, kD, kH, kW, C / groups, O]` and their squared norms `[B]`.

    The bound is on the norms of the returned arrays.

    >>> import jax.numpy as jnp
    >>> x, g = jnp.ones((2, 1, 1, 4, 4, 3)), jnp.ones((2, 1, 1, 2, 2, 5))
    >>> grads, norms = conv_grad(x, g, Window(kernel=(1, 3, 3)))
    >>> grads.shape, norms.estimate.shape
    ((2, 1, 3, 3, 3, 5), (2,))
    """
    x, g = checked("conv_grad", x, g, window)
    dtype = accumulation_dtype(x.dtype)
    grad = jax.ShapeDtypeStruct((x.shape[0], *kernel_shape(x, g, window)), dtype)
    out = jax.ShapeDtypeStruct(x.shape[:1], dtype)
    grads, *norms = _native.call(
        "bk_conv_grad", conv_grad_twin, [grad, out, out], x, g,
        shapes=_border.images({0: x, 1: g}, spatial_rank(x, g, window)), **window.attributes(),
    )  # fmt: skip
    return grads, SquaredNorms(*norms)


def conv_grad_twin(
    x: jax.Array, g: jax.Array, **window: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same in plain JAX."""
    grads = per_sample(x, g, window)
    return (grads, *sum_of_squares(grads))
