"""The convolution rule: `conv_general_dilated` whose kernel is a parameter.

Up to three spatial dimensions, any groups, strides, dilations and paddings. The book keeps the input
image, the tap has the shape of the result. Seen as a dense layer, a convolution multiplies patches of
the image, `a[groups, T, d]` with T pixels of the result and d = kernel pixels x input channels per
group, by the kernel, `[groups, d, p]`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax

from bk_jax.ops.conv_patches import Window
from bk_jax.program.views import View

Dims = tuple[int, ...]


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

    @property
    def kept_d(self) -> float:
        """Elements of the image for each pixel of the result, and group."""
        groups, t, _, _ = self.sizes
        return math.prod(self.equation.invars[0].aval.shape) / max(groups * t, 1)

    @property
    def window(self) -> Window:
        """Where pixels meet, in the canonical form of `ops`."""
        params = self.equation.params
        spatial = params["dimension_numbers"].rhs_spec[2:]
        return Window(
            kernel=triple([self.weight_shape[i] for i in spatial]),
            stride=triple(params["window_strides"]),
            low=triple([low for low, _ in params["padding"]], missing=0),
            input_dilation=triple(params["lhs_dilation"]),
            dilation=triple(params["rhs_dilation"]),
            groups=self.groups,
        )

    @property
    def pixel_sizes(self) -> tuple[Dims, Dims]:
        """Canonical sizes of the image and of the result."""
        numbers = self.equation.params["dimension_numbers"]
        image, result = self.equation.invars[0].aval.shape, self.result_shape
        return (
            triple([image[i] for i in numbers.lhs_spec[2:]]),
            triple([result[i] for i in numbers.out_spec[2:]]),
        )

    @property
    def pixel_channels(self) -> int:
        """Channels that the Gram matrices of pixels add up for one pair of output pixels.

        Those of a group, once for every phase of the image (every stride-th pixel) that it meets.
        """
        params = self.equation.params
        spatial = params["dimension_numbers"].rhs_spec
        sizes = (self.weight_shape[i] for i in spatial[2:])
        steps = zip(sizes, params["rhs_dilation"], params["window_strides"], strict=True)
        phases = [len({k * dilation % stride for k in range(n)}) for n, dilation, stride in steps]
        return math.prod(phases) * self.weight_shape[spatial[1]]

    def record(self, operands: list[Any]) -> jax.Array:
        """The input image of one example."""
        return operands[0]

    def add_tap(self, result: jax.Array, tap: jax.Array) -> jax.Array:
        """Adds a tap of the result's shape."""
        return result + tap


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


def triple(sizes: Sequence[int], missing: int = 1) -> tuple[int, int, int]:
    """Missing spatial dimensions are put in front.

    >>> triple((5, 7))
    (1, 5, 7)
    """
    d, h, w = (*[missing] * (3 - len(sizes)), *(int(size) for size in sizes))
    return d, h, w
