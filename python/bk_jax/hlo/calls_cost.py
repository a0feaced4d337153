"""Flops of our custom calls from the shapes that they are given, as in `bk_jax.planning.cost`.

Activations and output gradients come as `[B, N, T, d]` or, for one weight, as matrices `[B T, d]`; the
number of examples is then that of the norms or factors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from bk_jax.hlo.model import Instruction, Shape

Shapes = Sequence[Shape]


def call_flops(call: Instruction, operands: Shapes) -> int:
    """Flops of one of our calls; 0 for one that is not known or has unexpected operands.

    >>> norms = Shape("tuple", parts=(Shape("f32", (4,)), Shape("f32", (4,))))
    >>> call = Instruction("n", "custom-call", norms, target="bk_ghost_norm")
    >>> call_flops(call, [Shape("f32", (32, 16)), Shape("f32", (32, 64))])  # B = 4, T = 8
    23040
    """
    model = _MODELS.get(call.target)
    try:
        return model(call, operands) if model else 0
    except (IndexError, ValueError, ZeroDivisionError):
        return 0


def _sizes(a: Shape, g: Shape, examples: int) -> tuple[int, int, int, int]:
    """N, T, d and p."""
    n, t = (a.dims[1], a.dims[2]) if len(a.dims) == 4 else (1, a.dims[0] // examples)
    return n, t, a.dims[-1], g.dims[-1]


def _ghost_norm(call: Instruction, operands: Shapes) -> int:
    examples = call.shape.arrays[0].dims[0]
    n, t, d, p = _sizes(operands[0], operands[1], examples)
    return examples * n * t * (t + 1) * (d + p)


def _gradient(call: Instruction, operands: Shapes) -> int:
    """The gradient of every example, and its square."""
    examples = call.shape.arrays[-1].dims[0]
    n, t, d, p = _sizes(operands[0], operands[1], examples)
    return examples * n * d * p * (2 * t + 2)


def _clipped_gemm(call: Instruction, operands: Shapes) -> int:
    n, t, d, p = _sizes(operands[0], operands[2], operands[1].dims[0])
    return 2 * operands[1].dims[0] * n * t * d * p


def _conv_norm(call: Instruction, operands: Shapes) -> int:
    x, g = operands
    examples, pixels = g.dims[0], math.prod(g.dims[1:5])
    groups, channels = _numbers(call, "groups")[0], x.dims[-1]
    if "pixel_gram" in call.config:
        return examples * pixels * (pixels + 1) * (channels + g.dims[-1])
    weights = math.prod(_numbers(call, "kernel")) * (channels // groups) * g.dims[-1]
    return examples * weights * (2 * pixels + 2)


def _conv_grad(call: Instruction, operands: Shapes) -> int:
    pixels = math.prod(operands[1].dims[1:5])
    return (2 * pixels + 2) * call.shape.arrays[0].size


def _conv_sum(call: Instruction, operands: Shapes) -> int:
    return 2 * math.prod(operands[2].dims[:5]) * call.shape.size


def _tied_cross(call: Instruction, operands: Shapes) -> int:
    left, _, ids, g = operands
    examples, s, p = ids.dims[0], ids.dims[1], g.dims[-1]
    t = math.prod(left.dims[:-1]) // examples
    return 2 * examples * t * s * (p + 1)


def _twice(operand: int) -> Callable[[Instruction, Shapes], int]:
    """A multiplication and an addition for every element of an operand."""
    return lambda call, operands: 2 * operands[operand].size


def _numbers(call: Instruction, name: str) -> list[int]:
    """An integer attribute, or several."""
    value = call.attributes.get(name, "")
    if splat := re.match(r"dense<(-?\d+)> : tensor<(\d+)x", value):
        return [int(splat.group(1))] * int(splat.group(2))
    value = re.sub(r"^array<i\d+:| : .*$", "", value)
    return [int(digits) for digits in re.findall(r"-?\d+", value)]


_MODELS: dict[str, Callable[[Instruction, Shapes], int]] = {
    "bk_ghost_norm": _ghost_norm,
    "bk_direct_norm": _gradient,
    "bk_per_sample_grad": _gradient,
    "bk_clipped_gemm": _clipped_gemm,
    "bk_clipped_gemm_add": _clipped_gemm,
    "bk_conv_norm": _conv_norm,
    "bk_conv_grad": _conv_grad,
    "bk_conv_sum": _conv_sum,
    "bk_embedding_norm": _twice(1),
    "bk_clipped_scatter": _twice(2),
    "bk_tied_cross": _tied_cross,
    "bk_weighted_sum": _twice(1),
    "bk_clip_factor": _twice(0),
    "bk_gaussian": _twice(0),
}
