"""Convolutional networks: ResNets, wide ones too, and VGG, with GroupNorm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.steps.step_models.parts import Params, Task, Weights, cross_entropy, dense


def bare_conv(
    kernel: jax.Array, x: jax.Array, stride: int = 1, groups: int = 1, padding: str = "SAME"
) -> jax.Array:
    """Convolution without a bias."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=numbers, feature_group_count=groups
    )


def group_norm(p: Params, x: jax.Array) -> jax.Array:
    """GroupNorm of 32 groups."""
    n, height, width, channels = x.shape
    grouped = x.reshape(n, height * width, 32, channels // 32)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = jnp.square(grouped - mean).mean((1, 3), keepdims=True)
    x = ((grouped - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return x * p["scale"] + p["bias"]


def conv(p: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """Convolution, then GroupNorm."""
    return group_norm(p, bare_conv(p["kernel"], x, stride))


def max_pool(x: jax.Array, window: int) -> jax.Array:
    size, strides = (1, window, window, 1), (1, 2, 2, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, size, strides, "SAME")


Block = tuple[Params, int]  # parameters and stride
STAGES = (64, 128, 256, 512)
VGG_STAGES = (64, 128, 256, 512, 512)


def _basic(w: Weights, channels: int, width: int, stride: int) -> tuple[Block, int]:
    """Two convolutions of 3 x 3; also how many channels come out."""
    params = {"conv1": w.conv(3, channels, width), "conv2": w.conv(3, width, width)}
    if channels != width:
        params["shortcut"] = w.conv(1, channels, width)
    return (params, stride), width


def _bottleneck(
    w: Weights, channels: int, width: int, stride: int, wide: int = 1
) -> tuple[Block, int]:
    """1 x 1, 3 x 3 with the stride, and 1 x 1 to four times the width; `wide` widens the inside."""
    inside = wide * width
    params = {
        "reduce": w.conv(1, channels, inside),
        "conv": w.conv(3, inside, inside),
        "expand": w.conv(1, inside, 4 * width),
    }
    if channels != 4 * width:
        params["shortcut"] = w.conv(1, channels, 4 * width)
    return (params, stride), 4 * width


def _inside(p: Params, x: jax.Array, stride: int) -> jax.Array:
    """What a block adds to its shortcut."""
    if "conv1" in p:
        return conv(p["conv2"], jax.nn.relu(conv(p["conv1"], x, stride)))
    y = jax.nn.relu(conv(p["conv"], jax.nn.relu(conv(p["reduce"], x)), stride))
    return conv(p["expand"], y)


def _resnet(
    w: Weights, batch: int, size: int, block: Callable[..., Any], repeats: tuple[int, ...]
) -> Task:
    blocks: list[Block] = []
    channels = 64
    for stage, (width, repeat) in enumerate(zip(STAGES, repeats, strict=True)):
        for number in range(repeat):
            stride = 2 if stage > 0 and number == 0 else 1
            made, channels = block(w, channels, width, stride)
            blocks.append(made)
    strides = [stride for _, stride in blocks]
    params = {
        "stem": w.conv(7, 3, 64),
        "blocks": [p for p, _ in blocks],
        "head": w.dense(channels, 1000),
    }

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        x = max_pool(jax.nn.relu(conv(params["stem"], x, 2)), 3)
        for p, stride in zip(params["blocks"], strides, strict=True):
            y = _inside(p, x, stride)
            x = jax.nn.relu(y + (conv(p["shortcut"], x, stride) if "shortcut" in p else x))
        return cross_entropy(dense(params["head"], x.mean((1, 2))), labels)

    return Task(loss, params, w.images(batch, size))


def resnet18(w: Weights, batch: int = 8, size: int = 224) -> Task:
    """ResNet18."""
    return _resnet(w, batch, size, _basic, (2, 2, 2, 2))


def resnet50(w: Weights, batch: int = 8, size: int = 224) -> Task:
    """ResNet50, with the stride in the 3 x 3 convolution."""
    return _resnet(w, batch, size, _bottleneck, (3, 4, 6, 3))


def resnet152(w: Weights, batch: int = 4, size: int = 224) -> Task:
    """ResNet152."""
    return _resnet(w, batch, size, _bottleneck, (3, 8, 36, 3))


def wide_resnet50(w: Weights, batch: int = 4, size: int = 224) -> Task:
    """Wide ResNet50: inside its blocks twice the channels."""
    return _resnet(w, batch, size, partial(_bottleneck, wide=2), (3, 4, 6, 3))


def _vgg(w: Weights, batch: int, size: int, repeats: tuple[int, ...]) -> Task:
    """`repeats` convolutions of 3 x 3 before each pooling, then three dense layers."""
    widths = [
        n for width, many in zip(VGG_STAGES, repeats, strict=True) for n in [width] * many + [0]
    ]
    convs, channels = [], 3
    for width in filter(None, widths):
        convs.append(w.conv(3, channels, width))
        channels = width
    side = size // 32
    params = {
        "convs": convs,
        "dense": [w.dense(512 * side * side, 4096), w.dense(4096, 4096), w.dense(4096, 1000)],
    }

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        convs = iter(params["convs"])
        for width in widths:
            x = jax.nn.relu(conv(next(convs), x)) if width else max_pool(x, 2)
        x = x.reshape(x.shape[0], -1)
        for layer in params["dense"][:-1]:
            x = jax.nn.relu(dense(layer, x))
        return cross_entropy(dense(params["dense"][-1], x), labels)

    return Task(loss, params, w.images(batch, size))


def vgg11(w: Weights, batch: int = 4, size: int = 224) -> Task:
    """VGG11; its first dense layer has 103 million weights."""
    return _vgg(w, batch, size, (1, 1, 2, 2, 2))


def vgg16(w: Weights, batch: int = 4, size: int = 224) -> Task:
    """VGG16."""
    return _vgg(w, batch, size, (2, 2, 3, 3, 3))
