"""Flops of our custom calls from their operand shapes, as in `bk_jax.planning.cost`.

Activations and output gradients come as `[B, N, T, d]` or, for one weight, as matrices `[B T, d]`.
Those of a convolution come as `[B images, spatial..., channels]` with one to three spatial axes;
the number of examples is then that of the norms or factors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bk_jax.hlo.model import Instruction, Shape

Shapes = Sequence[Shape]
MOST = 1 << 31  # of a number in an attribute, as the calls themselves check


def call_flops(call: Instruction, operands: Shapes) -> int:
    """Flops of one of our calls; 0 if the call is unknown or has unexpected operands.

    >>> norms = Shape("tuple", parts=(Shape("f32", (4,)), Shape("f32", (4,))))
    >>> call = Instruction("n", "custom-call", norms, target="bk_ghost_norm")
    >>> call_flops(call, [Shape("f32", (32, 16)), Shape("f32", (32, 64))])  # B = 4, T = 8
    23040
    """
    model = _MODELS.get(call.target)
    try:
        return model(call, operands) if model else 0
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return 0


def _sizes(a: Shape, g: Shape, examples: int) -> tuple[int, int, int, int]:
    """N, T, d and p."""
    n, t = (a.dims[1], a.dims[2]) if len(a.dims) == 4 else (1, a.dims[0] // examples)
    return n, t, a.dims[-1], g.dims[-1]


def _ghost_norm(call: Instruction, operands: Shapes) -> int:
    examples = call.shape.arrays[0].dims[0]
    n, t, d, p = _sizes(operands[0], operands[1], examples)
    return examples * n * t * (t + 1) * (d + p)


def _ghost_norms(call: Instruction, operands: Shapes) -> int:
    """Of pairs of operands, all alike."""
    return len(operands) // 2 * _ghost_norm(call, operands)


def _gradient(call: Instruction, operands: Shapes) -> int:
    """The gradient of every example, and its square."""
    examples = call.shape.arrays[0].dims[0]  # a workspace comes last on a GPU
    n, t, d, p = _sizes(operands[0], operands[1], examples)
    return examples * n * d * p * (2 * t + 2)


def _clipped_gemm(call: Instruction, operands: Shapes) -> int:
    n, t, d, p = _sizes(operands[0], operands[2], operands[1].dims[0])
    return 2 * operands[1].dims[0] * n * t * d * p


def _clipped_gemms(call: Instruction, operands: Shapes) -> int:
    """Factors first, then pairs of operands, all alike."""
    factor, lhs, rhs = operands[:3]
    return len(operands) // 2 * _clipped_gemm(call, [lhs, factor, rhs])


class _Conv(NamedTuple):
    """Sizes of a convolution."""

    examples: int
    pixels: int  # of the results of one example
    weights: int
    pixel_channels: int  # that a pair of pixels multiplies in both Gram matrices


def _conv(call: Instruction, x: Shape, g: Shape, examples: int) -> _Conv:
    kernel, stride, dilation = (_numbers(call, n) for n in ("kernel", "stride", "dilation"))
    (groups,) = _numbers(call, "groups")
    channels, outputs = x.dims[-1], g.dims[-1]
    pixels = math.prod(g.dims[:-1]) // examples
    weights = math.prod(kernel) * (channels // groups) * outputs
    # The kernel meets this many phases of the image; a phase is every stride-th pixel.
    phases = [min(k, s // math.gcd(s, d)) for k, s, d in zip(kernel, stride, dilation, strict=True)]
    return _Conv(examples, pixels, weights, math.prod(phases) * channels + outputs)


def _conv_norm(call: Instruction, operands: Shapes) -> int:
    x, g = operands
    conv = _conv(call, x, g, call.shape.arrays[0].dims[0])
    if call.attributes["form"] == '"pixel_gram"':
        return conv.examples * conv.pixels * (conv.pixels + 1) * conv.pixel_channels
    return conv.examples * conv.weights * (2 * conv.pixels + 2)


def _conv_grad(call: Instruction, operands: Shapes) -> int:
    x, g = operands
    conv = _conv(call, x, g, call.shape.arrays[0].dims[0])
    return conv.examples * conv.weights * (2 * conv.pixels + 2)


def _conv_sum(call: Instruction, operands: Shapes) -> int:
    x, factor, g = operands
    conv = _conv(call, x, g, factor.dims[0])
    return 2 * conv.examples * conv.pixels * conv.weights


def _tied_cross(call: Instruction, operands: Shapes) -> int:
    left, _, ids, g = operands
    examples, s, p = ids.dims[0], ids.dims[1], g.dims[-1]
    t = math.prod(left.dims[:-1]) // examples
    return 2 * examples * t * s * (p + 1)


def _banded_gaussian(call: Instruction, operands: Shapes) -> int:
    x, _, stddevs, _ = operands
    return x.size * (2 * stddevs.size + 1)


def _twice(operand: int) -> Callable[[Instruction, Shapes], int]:
    """One multiplication and one addition for every element of an operand."""
    return lambda call, operands: 2 * operands[operand].size


def _twice_from(first: int) -> Callable[[Instruction, Shapes], int]:
    """The same for an operand and all that follow."""
    return lambda call, operands: 2 * sum(operand.size for operand in operands[first:])


def _numbers(call: Instruction, name: str) -> list[int]:
    """One positive integer, as `2 : i64`, or three, as `dense<[1, 3, 3]> : tensor<3xi64>`."""
    value, _, kind = call.attributes[name].partition(" : ")
    numbers = [int(digits) for digits in re.findall(r"(?<!i)-?\b\d+", value)]
    if len(numbers) == 1 and kind.startswith("tensor<3x"):
        numbers *= 3
    if len(numbers) not in (1, 3) or not all(0 < number < MOST for number in numbers):
        raise ValueError
    return numbers


_MODELS: dict[str, Callable[[Instruction, Shapes], int]] = {
    "bk_ghost_norm": _ghost_norm,
    "bk_ghost_norms": _ghost_norms,
    "bk_direct_norm": _gradient,
    "bk_per_sample_grad": _gradient,
    "bk_clipped_gemm": _clipped_gemm,
    "bk_clipped_gemm_add": _clipped_gemm,
    "bk_clipped_gemms": _clipped_gemms,
    "bk_conv_norm": _conv_norm,
    "bk_conv_grad": _conv_grad,
    "bk_conv_sum": _conv_sum,
    "bk_embedding_norm": _twice(1),
    "bk_clipped_scatter": _twice(2),
    "bk_tied_cross": _tied_cross,
    "bk_squared_norms": _twice_from(0),
    "bk_weighted_sum": _twice_from(1),
    "bk_clip_factor": _twice(0),
    "bk_gaussian": _twice(0),
    "bk_gaussians": _twice_from(2),
    "bk_banded_gaussian": _banded_gaussian,
    "bk_noisy_update": _twice_from(2),
}
