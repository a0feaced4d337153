"""Convolution norm: squared norms of a kernel's gradients, without keeping the gradients."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._conv import checked, per_sample, spatial_rank, window_of
from bk_jax.ops.conv_patches import Window, conv_patches, conv_rows
from bk_jax.ops.ghost_norm import ghost_norm_twin
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, unit_roundoff
from bk_jax.ops.sum_of_squares import sum_of_squares

Form = Literal["direct", "pixel_gram"]


def conv_norm(x: jax.Array, g: jax.Array, window: Window, form: Form = "direct") -> SquaredNorms:
    """Squared norms `[B]` of the kernel's gradients, which are not kept.

    The form `"direct"` computes the gradients in blocks and drops them: `2 T d p` flops per example
    with T pixels of the result and d = kernel pixels x input channels. `"pixel_gram"` computes no
    gradient but inner products of pixels: `T^2 (cin + p)` flops if the stride is 1.

    >>> import jax.numpy as jnp
    >>> x, g = jnp.full((1, 1, 1, 1, 2, 1), 2.0), jnp.full((1, 1, 1, 1, 1, 1), 3.0)
    >>> print(conv_norm(x, g, Window((1, 1, 2))).estimate)  # the gradient is [6, 6]
    [72.]
    """
    x, g = checked("conv_norm", x, g, window)
    out = jax.ShapeDtypeStruct(x.shape[:1], accumulation_dtype(x.dtype))
    attributes = {**window.attributes(), "form": form}
    shapes = _border.images({0: x, 1: g}, spatial_rank(x, g, window))
    norms = _native.call(
        "bk_conv_norm", conv_norm_twin, [out, out], x, g, shapes=shapes, **attributes
    )
    return SquaredNorms(*norms)


def conv_norm_twin(x: jax.Array, g: jax.Array, form: Form, **window: Any) -> SquaredNorms:
    """The same in plain JAX: XLA's gradients, formed and dropped, or Gram matrices of patches.

    An entry of a gradient sums over pixels in any order, so the gradient at one kernel offset errs
    by at most `T u |x| |g|` in norm (Cauchy-Schwarz over pixels).
    """
    if form == "pixel_gram":
        shape = window_of(window)
        patches = conv_patches(x, g.shape[2:5], shape)
        return ghost_norm_twin(patches, conv_rows(g, shape.groups))
    dtype = accumulation_dtype(x.dtype)
    norms = sum_of_squares(per_sample(x, g, window))
    lengths = [jnp.sqrt(sum_of_squares(a.astype(dtype)).upper) for a in (x, g)]
    offsets = math.prod(int(k) for k in window["kernel"])
    chain = 2 * (math.prod(g.shape[1:5]) + 4) * math.sqrt(offsets)
    slack = chain * unit_roundoff(dtype) * lengths[0] * lengths[1]
    return SquaredNorms(norms.estimate, jnp.square(jnp.sqrt(norms.upper) + slack))
