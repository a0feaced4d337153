"""Convolutions as dense layers: patches of the images, and output gradients pixel by pixel.

Canonical arrays as in `ops._conv`. A convolution multiplies patches `a[B, groups, T, d]` by its
kernel. T counts the result pixels of all images, and d = kernel pixels x input channels of a group.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Triple = tuple[int, int, int]
MAX_SLICES = 64  # kernel pixels up to which patches are made one by one


@dataclasses.dataclass(frozen=True)
class Window:
    """Where pixels meet: output pixel t and kernel offset k, in the dilated input.

    That is at `t * stride + k * dilation - low`.

    >>> Window(kernel=(1, 3, 3), low=(0, 1, 1)).stride
    (1, 1, 1)
    """

    kernel: Triple
    stride: Triple = (1, 1, 1)
    low: Triple = (0, 0, 0)
    input_dilation: Triple = (1, 1, 1)
    dilation: Triple = (1, 1, 1)
    groups: int = 1

    def attributes(self) -> dict[str, Any]:
        """As attributes of the custom calls."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "groups"]
        return {**{name: getattr(self, name) for name in names}, "groups": np.int64(self.groups)}

    def padding(self, sizes: tuple[int, ...], out: tuple[int, ...]) -> list[tuple[int, int]]:
        """Padding on both sides, for images of `sizes` and results of size `out`."""
        every = zip(
            sizes, out, self.kernel, self.stride, self.low, self.input_dilation, self.dilation,
            strict=True,
        )  # fmt: skip
        return [
            (low, (t - 1) * stride + (k - 1) * dil + 1 - low - max((n - 1) * spread + 1, 0))
            for n, t, k, stride, low, spread, dil in every
        ]


def conv_patches(x: jax.Array, out: tuple[int, ...], window: Window) -> jax.Array:
    """Patches `[B, groups, T, d]` for results of size `out`; the order of d does not affect norms.

    They are slices of the padded images, one for each kernel pixel. Norms from them take 0.1x to
    0.7x the time of `lax.conv_general_dilated_patches`, which convolves with an identity matrix.
    Large kernels would need as many slices.

    >>> x = jnp.arange(3.0).reshape(1, 1, 1, 1, 3, 1)
    >>> print(conv_patches(x, (1, 1, 2), Window((1, 1, 2)))[0, 0])
    [[0. 1.]
     [1. 2.]]
    """
    merged = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    make = slices if math.prod(window.kernel) <= MAX_SLICES else _convolved
    return by_group(make(merged, out, window), x.shape[0])


def conv_rows(g: jax.Array, groups: int) -> jax.Array:
    """Output gradients `[B, groups, T, p]`.

    >>> conv_rows(jnp.ones((2, 1, 1, 4, 4, 6)), groups=2).shape
    (2, 2, 16, 3)
    """
    return by_group(split_groups(g, groups), g.shape[0])


def split_groups(pixels: jax.Array, groups: int) -> jax.Array:
    """`[..., groups * k]` to `[..., groups, k]`.

    >>> split_groups(jnp.ones((2, 6)), groups=3).shape
    (2, 3, 2)
    """
    return pixels.reshape(*pixels.shape[:-1], groups, pixels.shape[-1] // groups)


def by_group(pixels: jax.Array, batch: int) -> jax.Array:
    """`[..., groups, k]` of all examples to `[B, groups, T, k]`.

    >>> by_group(jnp.ones((2, 4, 3, 5)), batch=2).shape
    (2, 3, 4, 5)
    """
    *lead, groups, k = pixels.shape
    t = math.prod(lead) // max(batch, 1)
    return jnp.moveaxis(pixels.reshape(batch, t, groups, k), 2, 1)


def slices(x: jax.Array, out: tuple[int, ...], window: Window) -> jax.Array:
    """`[images, pixels..., groups, kernel pixels * channels]`."""
    spread = [dilation - 1 for dilation in window.input_dilation]
    padding = [
        (*ends, inner)
        for ends, inner in zip(window.padding(x.shape[1:4], out), spread, strict=True)
    ]
    padded = jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *padding, (0, 0, 0)])
    found = []
    for at in itertools.product(*(range(k) for k in window.kernel)):
        first = [k * step for k, step in zip(at, window.dilation, strict=True)]
        last = [
            start + (size - 1) * stride + 1 if size else start
            for start, size, stride in zip(first, out, window.stride, strict=True)
        ]
        part = jax.lax.slice(
            padded,
            (0, *first, 0),
            (padded.shape[0], *last, padded.shape[-1]),
            (1, *window.stride, 1),
        )
        found.append(split_groups(part, window.groups))
    stacked = jnp.stack(found, axis=-2)
    return stacked.reshape(*stacked.shape[:-2], stacked.shape[-2] * stacked.shape[-1])


def _convolved(x: jax.Array, out: tuple[int, ...], window: Window) -> jax.Array:
    """The same by a convolution."""
    found = jax.lax.conv_general_dilated_patches(
        x,
        window.kernel,
        window.stride,
        window.padding(x.shape[1:4], out),
        window.input_dilation,
        window.dilation,
        dimension_numbers=("NDHWC", "DHWIO", "NDHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )  # [images, pixels..., channels * kernel pixels], channels major
    return split_groups(found, window.groups)
