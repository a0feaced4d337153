"""Convolutions: native norms, gradients and sums against XLA's gradient of the same layer's kernel.

    bazel run //benchmarks/ops:conv_benchmark -- --batch 4 --layers resnet

The baseline is `jax.vjp` of `lax.conv_general_dilated` for the whole batch: what non-private training
computes. Norms and per-example gradients do more than it does. One process, interleaved.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from machine import describe
from report import HEADER, show

from bk_jax import ops


class Layer(NamedTuple):
    """A square image, a k x k kernel, padding k // 2."""

    name: str
    size: int
    cin: int
    cout: int
    k: int
    stride: int


# The distinct layers of ResNet18 and VGG11 at 224 x 224.
LAYERS = [
    Layer("resnet18 stem", 224, 3, 64, 7, 2),
    Layer("resnet18 56", 56, 64, 64, 3, 1),
    Layer("resnet18 56 to 28", 56, 64, 128, 3, 2),
    Layer("resnet18 56 to 28, 1x1", 56, 64, 128, 1, 2),
    Layer("resnet18 28", 28, 128, 128, 3, 1),
    Layer("resnet18 28 to 14", 28, 128, 256, 3, 2),
    Layer("resnet18 28 to 14, 1x1", 28, 128, 256, 1, 2),
    Layer("resnet18 14", 14, 256, 256, 3, 1),
    Layer("resnet18 14 to 7", 14, 256, 512, 3, 2),
    Layer("resnet18 14 to 7, 1x1", 14, 256, 512, 1, 2),
    Layer("resnet18 7", 7, 512, 512, 3, 1),
    Layer("vgg11 224", 224, 3, 64, 3, 1),
    Layer("vgg11 112", 112, 64, 128, 3, 1),
    Layer("vgg11 56", 56, 128, 256, 3, 1),
    Layer("vgg11 56, second", 56, 256, 256, 3, 1),
    Layer("vgg11 28", 28, 256, 512, 3, 1),
    Layer("vgg11 28, second", 28, 512, 512, 3, 1),
    Layer("vgg11 14", 14, 512, 512, 3, 1),
]


def compiled(fun: Callable[..., Any], *arrays: Any) -> Callable[[], Any]:
    program = jax.jit(fun).lower(*arrays).compile()
    return lambda: program(*arrays)


def run(layer: Layer, batch: int, budget: float) -> None:
    """All comparisons of one layer."""
    out = (layer.size - 1) // layer.stride + 1
    low = layer.k // 2
    random = np.random.default_rng(0)
    x = jnp.asarray(random.standard_normal((batch, layer.size, layer.size, layer.cin), np.float32))
    g = jnp.asarray(random.standard_normal((batch, out, out, layer.cout), np.float32))
    kernel = jnp.zeros((layer.k, layer.k, layer.cin, layer.cout))
    window = ops.Window((1, layer.k, layer.k), (1, layer.stride, layer.stride), (0, low, low))

    def conv(kernel: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (layer.stride,) * 2,
            [(low, low)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def canonical(x: jax.Array) -> jax.Array:
        return x[:, None, None]

    xla = compiled(lambda x, g: jax.vjp(lambda k: conv(k, x), kernel)[1](g)[0], x, g)
    norm = compiled(lambda x, g: ops.conv_norm(canonical(x), canonical(g), window), x, g)
    grad = compiled(lambda x, g: ops.conv_grad(canonical(x), canonical(g), window), x, g)
    total = compiled(
        lambda x, g: ops.conv_sum(canonical(x), jnp.ones(batch), canonical(g), window), x, g
    )
    show(f"{layer.name}: A/A", norm, norm, budget)
    show(f"{layer.name}: norm", xla, norm, budget)
    show(f"{layer.name}: gradients and norm", xla, grad, budget)
    show(f"{layer.name}: clipped sum", xla, total, budget)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--budget", type=float, default=2, help="seconds for each comparison")
    parser.add_argument("--layers", default="", help="only layers whose name contains this")
    arguments = parser.parse_args()
    print(f"{describe()}\nbatch {arguments.batch}; baseline: XLA's kernel gradient\n{HEADER}")
    for layer in LAYERS:
        if arguments.layers in layer.name:
            run(layer, arguments.batch, arguments.budget)


if __name__ == "__main__":
    main()
