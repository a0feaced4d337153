"""Convolutions as dense layers for the tensor cores of a GPU: patches that are copies of pixels.

    a[B, groups, T, width]    patches of the images, for T pixels of the result
    g[B, groups, T, p]        output gradients pixel by pixel (`conv_rows`)

No arithmetic makes a patch: its elements are pixels and zeros, bit for bit (a NaN stays a NaN), so norms
and sums of the dense layer are those of the convolution. A row holds d = kernel pixels x input channels
in the order of the kernel. Rows that are copied have zeros up to a multiple of 16 bytes, which is what
kernels load at a time; zeros change neither norms nor sums.

| window | patches |
|---|---|
| one pixel at a time, none left out | the images as they are |
| as large as its stride, without dilation: pieces of an image | the images in another order |
| up to 64 pixels | a slice of the padded images for each pixel of the kernel |
| any other | none: such a convolution is gathered |
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from bk_jax.ops.conv_patches import MAX_SLICES, Window, by_group, slices, split_groups

VECTOR = 16  # bytes that a kernel for GPUs loads at a time
Sizes = tuple[int, ...]


def has_patches(window: Window) -> bool:
    """Whether patches can be made by copying.

    >>> has_patches(Window((1, 16, 16), stride=(1, 16, 16))), has_patches(Window((1, 16, 16)))
    (True, False)
    """
    return math.prod(window.kernel) <= MAX_SLICES or is_tiled(window)


def is_tiled(window: Window) -> bool:
    """Whether patches lie side by side, as pieces of an image do."""
    dense = all(one == 1 for one in (*window.dilation, *window.input_dilation))
    return dense and window.kernel == window.stride


def is_image(window: Window, sizes: Sizes, out: Sizes) -> bool:
    """Whether the patches of images of `sizes` are the images as they are.

    >>> is_image(Window((1, 1, 1)), (1, 4, 4), (1, 4, 4))
    True
    """
    one_by_one = math.prod((*window.kernel, *window.stride, *window.input_dilation)) == 1
    return one_by_one and not any(window.low) and tuple(sizes) == tuple(out)


def filled_width(width: int, itemsize: int) -> int:
    """Elements of a row that is copied.

    >>> filled_width(147, 2), filled_width(576, 2)
    (152, 576)
    """
    step = max(VECTOR // itemsize, 1)
    return -(-width // step) * step


def dense_patches(x: jax.Array, out: Sizes, window: Window) -> jax.Array:
    """Patches `[B, groups, T, width]` of images `[B, images, D, H, W, C]` for results of size `out`.

    >>> x = jnp.arange(3.0).reshape(1, 1, 1, 1, 3, 1)
    >>> print(dense_patches(x, (1, 1, 2), Window((1, 1, 2)))[0, 0])
    [[0. 1. 0. 0.]
     [1. 2. 0. 0.]]
    """
    merged = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    if is_image(window, x.shape[2:5], out):
        return by_group(split_groups(merged, window.groups), x.shape[0])
    if not has_patches(window):
        raise ValueError(
            f"dense_patches expects a kernel of at most {MAX_SLICES} pixels, or one that is as large as "
            f"its stride, without dilation; got {window}. Use conv_norm, conv_grad and conv_sum."
        )
    found = (_tiles if is_tiled(window) else slices)(merged, out, window)
    more = filled_width(found.shape[-1], x.dtype.itemsize) - found.shape[-1]
    ends = [(0, 0, 0)] * (found.ndim - 1) + [(0, more, 0)]
    return by_group(jax.lax.pad(found, jnp.zeros((), x.dtype), ends), x.shape[0])


def kernel_of_rows(gradient: jax.Array, window: Window, channels: int) -> jax.Array:
    """`[..., groups, width, p]`, a gradient of patches, as one of the kernel, `[..., kernel, cin, O]`.

    `channels` are those of the images.

    >>> kernel_of_rows(jnp.ones((2, 3, 8, 5)), Window((1, 1, 2), groups=3), channels=6).shape
    (2, 1, 1, 2, 2, 15)
    """
    cin = channels // window.groups
    rows = gradient[..., : math.prod(window.kernel) * cin, :]
    *lead, groups, _, p = rows.shape
    split = rows.reshape(*lead, groups, *window.kernel, cin, p)
    last = jnp.moveaxis(split, len(lead), -2)
    return last.reshape(*last.shape[:-2], groups * p)


def _tiles(x: jax.Array, out: Sizes, window: Window) -> jax.Array:
    """`[images, pixels..., groups, kernel pixels * channels]` of pieces side by side."""
    ends = [(*both, 0) for both in window.padding(x.shape[1:4], out)]
    cut = jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *ends, (0, 0, 0)])
    pairs = [size for both in zip(out, window.kernel, strict=True) for size in both]
    pieces = cut.reshape(x.shape[0], *pairs, x.shape[-1])
    ordered = jnp.transpose(pieces, (0, 1, 3, 5, 2, 4, 6, 7))
    flat = ordered.reshape(*ordered.shape[:4], math.prod(window.kernel), x.shape[-1])
    grouped = jnp.moveaxis(split_groups(flat, window.groups), -2, -3)
    return grouped.reshape(*grouped.shape[:-2], grouped.shape[-2] * grouped.shape[-1])
