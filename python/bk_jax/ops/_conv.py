"""What the convolutions share: canonical arrays, their checks, and XLA's own kernel gradient.

Images are `x[B, images, D, H, W, C]`, output gradients `g[B, images, D', H', W', O]`, with missing
spatial dimensions of size 1 in front; the kernel is `[kD, kH, kW, C / groups, O]`. The `images` of
one example share the kernel, and their gradients add up.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.ops.conv_patches import Window
from bk_jax.ops.numerics import accumulation_dtype, common_dtype


def checked(
    operation: str, x: jax.Array, g: jax.Array, window: Window
) -> tuple[jax.Array, jax.Array]:
    """Both in one dtype."""
    if x.ndim != 6 or g.ndim != 6 or x.shape[:2] != g.shape[:2]:
        raise ValueError(
            f"{operation} expects images [B, images, D, H, W, C] and output gradients "
            f"[B, images, D', H', W', O] with equal B and images; got {x.shape} and {g.shape}."
        )
    if x.shape[5] % window.groups or g.shape[5] % window.groups:
        raise ValueError(
            f"{operation} expects channels that {window.groups} groups divide; got {x.shape[5]} and "
            f"{g.shape[5]}."
        )
    dtype = common_dtype(x.dtype, g.dtype)
    return x.astype(dtype), g.astype(dtype)


def spatial_rank(x: jax.Array, g: jax.Array, window: Window) -> int:
    """How many dimensions the images have: leading ones of size 1 do not count."""
    sizes = zip(x.shape[2:5], g.shape[2:5], window.kernel, strict=True)
    missing = [all(int(n) == 1 for n in size) for size in sizes]
    return 3 if not missing[0] else 2 if not missing[1] else 1


def kernel_shape(x: jax.Array, g: jax.Array, window: Window) -> tuple[int, ...]:
    """The shape of the canonical kernel."""
    return (*window.kernel, x.shape[5] // window.groups, g.shape[5])


def per_sample(x: jax.Array, g: jax.Array, window: dict[str, Any]) -> jax.Array:
    """The kernel's gradient for every example, by XLA; `window` holds a call's attributes."""
    dtype = accumulation_dtype(x.dtype)
    if x.shape[0] == 0:
        return jnp.zeros((0, *kernel_shape(x, g, window_of(window))), dtype)
    return jax.vmap(functools.partial(_transpose, window=window_of(window)))(
        x.astype(dtype), g.astype(dtype)
    )


def _transpose(x: jax.Array, g: jax.Array, *, window: Window) -> jax.Array:
    """XLA's gradient of the kernel for the images of one example."""
    padding = window.padding(x.shape[1:4], g.shape[1:4])
    kernel = jax.ShapeDtypeStruct(kernel_shape(x[None], g[None], window), g.dtype)

    def apply(kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            window.stride,
            padding,
            window.input_dilation,
            window.dilation,
            ("NDHWC", "DHWIO", "NDHWC"),
            window.groups,
        )

    (out,) = jax.linear_transpose(apply, kernel)(g)
    return out


def window_of(attributes: dict[str, Any]) -> Window:
    """The window behind a call's attributes."""
    return Window(**{**attributes, "groups": int(attributes["groups"])})
