"""Convolutions: native norms, gradients and sums against XLA's gradient of the same layer's kernel.

    bazel run //benchmarks/ops:conv_benchmark -- --batch 4 --layers resnet
    bazel run //benchmarks/ops:conv_benchmark -- --only forms

The baseline is `jax.vjp` of `lax.conv_general_dilated` for the whole batch: what non-private training
computes. Norms and per-example gradients do more than it does. `--only forms` compares the ways to a
norm with each other instead: baseline is the direct form. One process, interleaved.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.ops.machine import describe
from benchmarks.ops.report import HEADER, show
from bk_jax import ops


class Layer(NamedTuple):
    """A square image, a k x k kernel, padding k // 2."""

    name: str
    size: int
    cin: int
    cout: int
    k: int
    stride: int
    groups: int = 1


# The distinct layers of ResNet18 and VGG11 at 224 x 224, two 1 x 1 layers of ResNet50, and two depthwise
# ones of MobileNet.
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
    Layer("resnet50 14, 1x1", 14, 1024, 256, 1, 1),
    Layer("resnet50 7, 1x1", 7, 512, 2048, 1, 1),
    Layer("mobilenet 56, depthwise", 56, 128, 128, 3, 1, groups=128),
    Layer("mobilenet 14, depthwise", 14, 512, 512, 3, 1, groups=512),
]


def compiled(fun: Callable[..., Any], *arrays: Any) -> Callable[[], Any]:
    program = jax.jit(fun).lower(*arrays).compile()
    return lambda: program(*arrays)


class Operands(NamedTuple):
    """Images and output gradients in canonical form, and the window."""

    x: jax.Array
    g: jax.Array
    window: ops.Window


def operands(layer: Layer, batch: int) -> Operands:
    out = (layer.size - 1) // layer.stride + 1
    low = layer.k // 2
    random = np.random.default_rng(0)
    sizes = ((layer.size, layer.cin), (out, layer.cout))
    x, g = (random.standard_normal((batch, 1, 1, n, n, c), np.float32) for n, c in sizes)
    window = ops.Window(
        (1, layer.k, layer.k), (1, layer.stride, layer.stride), (0, low, low), groups=layer.groups
    )
    return Operands(jnp.asarray(x), jnp.asarray(g), window)


def run_forms(layer: Layer, batch: int, budget: float) -> None:
    """The ways to a norm."""
    x, g, window = operands(layer, batch)

    def from_patches(x: jax.Array, g: jax.Array) -> Any:
        patches = ops.conv_patches(x, g.shape[2:5], window)
        return ops.ghost_norm(patches, ops.conv_rows(g, window.groups))

    direct = compiled(lambda x, g: ops.conv_norm(x, g, window), x, g)
    gram = compiled(lambda x, g: ops.conv_norm(x, g, window, "pixel_gram"), x, g)
    show(f"{layer.name}: direct, A/A", direct, direct, budget)
    show(f"{layer.name}: pixel Gram", direct, gram, budget)
    show(f"{layer.name}: ghost norm of patches", direct, compiled(from_patches, x, g), budget)


def run(layer: Layer, batch: int, budget: float) -> None:
    """Everything of one layer against XLA."""
    x, g, window = operands(layer, batch)
    kernel = jnp.zeros((layer.k, layer.k, layer.cin // layer.groups, layer.cout))

    def conv(kernel: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (layer.stride,) * 2,
            [(layer.k // 2,) * 2] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=layer.groups,
        )

    def gradient(x: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(lambda k: conv(k, x[:, 0, 0]), kernel)[1](g[:, 0, 0])[0]

    xla = compiled(gradient, x, g)
    norm = compiled(lambda x, g: ops.conv_norm(x, g, window), x, g)
    gram = compiled(lambda x, g: ops.conv_norm(x, g, window, "pixel_gram"), x, g)
    grad = compiled(lambda x, g: ops.conv_grad(x, g, window), x, g)
    total = compiled(lambda x, g: ops.conv_sum(x, jnp.ones(batch), g, window), x, g)
    show(f"{layer.name}: A/A", norm, norm, budget)
    show(f"{layer.name}: norm", xla, norm, budget)
    if layer.size <= 28 and layer.groups == 1:
        show(f"{layer.name}: norm, pixel Gram", xla, gram, budget)
    show(f"{layer.name}: gradients and norm", xla, grad, budget)
    show(f"{layer.name}: clipped sum", xla, total, budget)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--budget", type=float, default=2, help="seconds for each comparison")
    parser.add_argument("--layers", default="", help="only layers whose name contains this")
    parser.add_argument("--only", choices=["forms"], help="compare the ways to a norm")
    arguments = parser.parse_args()
    forms = arguments.only == "forms"
    baseline = "the direct norm" if forms else "XLA's kernel gradient"
    print(f"{describe()}\nbatch {arguments.batch}; baseline: {baseline}\n{HEADER}")
    for layer in LAYERS:
        if arguments.layers in layer.name and not (forms and (layer.size > 28 or layer.groups > 1)):
            (run_forms if forms else run)(layer, arguments.batch, arguments.budget)


if __name__ == "__main__":
    main()
