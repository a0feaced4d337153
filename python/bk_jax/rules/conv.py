"""The convolution rule: `conv_general_dilated` whose kernel is a parameter.

Up to three spatial dimensions, any groups, strides, dilations and paddings. The book keeps the input
image, the tap has the shape of the result. Seen as a dense layer, a convolution multiplies patches of
the image, `a[groups, T, d]` with T pixels of the result and d = kernel pixels x input channels per
group, by the kernel, `[groups, d, p]`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.views import View

Dims = tuple[int, ...]
MAX_SLICES = 64  # kernel pixels of which patches are made one by one


@dataclasses.dataclass(frozen=True)
class ConvUse:
    """One convolution; `equation` computes it and everything else is read off its parameters."""

    result_shape: Dims
    weight_shape: Dims
    groups: int
    sizes: tuple[int, int, int, int]  # groups, T, d, p per group
    dtype: Any
    key: tuple[Any, ...]  # what two convolutions of one kernel must share to be added up
    equation: Any = dataclasses.field(compare=False, repr=False)

    kind = "conv"

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal for convolutions whose kernels mean the same."""
        return ("conv", self.key)

    @property
    def tap_shape(self) -> Dims:
        """The tap is added to the result as it is."""
        return self.result_shape

    def record(self, operands: list[Any]) -> jax.Array:
        """The input image of one example."""
        return operands[0]

    def add_tap(self, result: jax.Array, tap: jax.Array) -> jax.Array:
        """Adds a tap of the result's shape."""
        return result + tap

    def patches(self, image: jax.Array) -> jax.Array:
        """The image as a dense layer's activation, `[groups, T, d]`; norms do not mind the order of d.

        Slices of the padded image, one for each kernel pixel: norms from them take 0.1 to 0.7 of the
        time with `lax.conv_general_dilated_patches`, which convolves with an identity matrix. Large
        kernels would be as many slices.
        """
        if len(self._offsets()) > MAX_SLICES:
            return self._convolved_patches(image)
        params = self.equation.params
        numbers = params["dimension_numbers"]
        n, _, d, _ = self.sizes
        batch, feature, *spatial = numbers.lhs_spec
        pixels_first = jnp.transpose(image, (batch, *spatial, feature))
        spread = [dilation - 1 for dilation in params["lhs_dilation"]]
        padding = [(*ends, inner) for ends, inner in zip(params["padding"], spread, strict=True)]
        zero = jnp.zeros((), image.dtype)
        padded = jax.lax.pad(pixels_first, zero, [(0, 0, 0), *padding, (0, 0, 0)])
        slices = [self._slice(padded, offset) for offset in self._offsets()]
        stacked = jnp.stack(slices, axis=-2)  # [images, pixels..., groups, kernel pixels, channels]
        return jnp.moveaxis(stacked, -3, 0).reshape(n, -1, d)

    def _convolved_patches(self, image: jax.Array) -> jax.Array:
        params = self.equation.params
        numbers = params["dimension_numbers"]
        out = jax.lax.conv_general_dilated_patches(
            jnp.transpose(image, numbers.lhs_spec),
            tuple(self.weight_shape[i] for i in numbers.rhs_spec[2:]),
            params["window_strides"],
            params["padding"],
            params["lhs_dilation"],
            params["rhs_dilation"],
            precision=jax.lax.Precision.HIGHEST,
        )  # [images, channels * kernel pixels, pixels...], channels major
        n, _, d, _ = self.sizes
        grouped = out.reshape(out.shape[0], n, d, -1)
        return jnp.transpose(grouped, (1, 0, 3, 2)).reshape(n, -1, d)

    def _offsets(self) -> list[Dims]:
        """Positions of the kernel's pixels in the padded image."""
        params = self.equation.params
        spatial = params["dimension_numbers"].rhs_spec[2:]
        sizes = [range(self.weight_shape[i]) for i in spatial]
        steps = params["rhs_dilation"]
        return [
            tuple(k * step for k, step in zip(at, steps, strict=True))
            for at in itertools.product(*sizes)
        ]

    def _slice(self, padded: jax.Array, offset: Dims) -> jax.Array:
        """What one pixel of the kernel meets: `[images, pixels..., groups, channels]`."""
        params = self.equation.params
        out = [self.result_shape[i] for i in params["dimension_numbers"].out_spec[2:]]
        strides = params["window_strides"]
        last = [
            start + (size - 1) * stride + 1 if size else start
            for start, size, stride in zip(offset, out, strides, strict=True)
        ]
        part = jax.lax.slice(
            padded,
            (0, *offset, 0),
            (padded.shape[0], *last, padded.shape[-1]),
            (1, *strides, 1),
        )
        return part.reshape(*part.shape[:-1], self.groups, -1)

    def output_gradient(self, gradient: jax.Array) -> jax.Array:
        """The gradient of the result as a dense layer's, `[groups, T, p]`."""
        numbers = self.equation.params["dimension_numbers"]
        first = jnp.transpose(gradient, numbers.out_spec)  # [examples, features, pixels...]
        n, _, _, p = self.sizes
        grouped = first.reshape(first.shape[0], n, p, -1)
        return jnp.transpose(grouped, (1, 0, 3, 2)).reshape(n, -1, p)


def rule(
    eqn: Any, operand: int, views: tuple[View, ...]
) -> tuple[ConvUse, tuple[View, ...]] | None:
    """A convolution by a parameter; a parameter as the image is not of this form."""
    params = eqn.params
    if operand != 1 or params["batch_group_count"] != 1:
        return None
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    if len(numbers.rhs_spec) > 5:
        return None  # more than three spatial dimensions have no kernel
    kernel, result = eqn.invars[1].aval, eqn.outvars[0].aval
    features = kernel.shape[numbers.rhs_spec[0]]
    d = math.prod(kernel.shape) // max(features, 1)
    t = math.prod(result.shape) // max(features, 1)
    use = ConvUse(
        result_shape=tuple(result.shape),
        weight_shape=tuple(kernel.shape),
        groups=groups,
        sizes=(groups, t, d, features // groups),
        dtype=result.dtype,
        key=(tuple(numbers.rhs_spec), groups),
        equation=eqn,
    )
    return use, views
