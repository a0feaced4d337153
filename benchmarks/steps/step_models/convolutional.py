"""Convolutional networks: ResNet18, ResNet50 and VGG11, with GroupNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.steps.step_models.parts import Params, Task, Weights, cross_entropy, dense


def _conv(p: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """Convolution and GroupNorm of 32 groups."""
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(
        x, p["kernel"], (stride, stride), "SAME", dimension_numbers=numbers
    )
    n, height, width, channels = x.shape
    grouped = x.reshape(n, height * width, 32, channels // 32)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = jnp.square(grouped - mean).mean((1, 3), keepdims=True)
    x = ((grouped - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)
    return x * p["scale"] + p["bias"]


def _max_pool(x: jax.Array, window: int) -> jax.Array:
    size, strides = (1, window, window, 1), (1, 2, 2, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, size, strides, "SAME")


Block = tuple[Params, int]  # parameters and stride
STAGES = (64, 128, 256, 512)


def _basic(w: Weights, channels: int, width: int, stride: int) -> tuple[Block, int]:
    """Two convolutions of 3 x 3; also how many channels come out."""
    params = {"conv1": w.conv(3, channels, width), "conv2": w.conv(3, width, width)}
    if channels != width:
        params["shortcut"] = w.conv(1, channels, width)
    return (params, stride), width


def _bottleneck(w: Weights, channels: int, width: int, stride: int) -> tuple[Block, int]:
    """1 x 1, 3 x 3 with the stride, and 1 x 1 to four times the width."""
    params = {
        "reduce": w.conv(1, channels, width),
        "conv": w.conv(3, width, width),
        "expand": w.conv(1, width, 4 * width),
    }
    if channels != 4 * width:
        params["shortcut"] = w.conv(1, channels, 4 * width)
    return (params, stride), 4 * width


def _inside(p: Params, x: jax.Array, stride: int) -> jax.Array:
    """What a block adds to its shortcut."""
    if "conv1" in p:
        return _conv(p["conv2"], jax.nn.relu(_conv(p["conv1"], x, stride)))
    y = jax.nn.relu(_conv(p["conv"], jax.nn.relu(_conv(p["reduce"], x)), stride))
    return _conv(p["expand"], y)


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
        x = _max_pool(jax.nn.relu(_conv(params["stem"], x, 2)), 3)
        for p, stride in zip(params["blocks"], strides, strict=True):
            y = _inside(p, x, stride)
            x = jax.nn.relu(y + (_conv(p["shortcut"], x, stride) if "shortcut" in p else x))
        return cross_entropy(dense(params["head"], x.mean((1, 2))), labels)

    return Task(loss, params, w.images(batch, size))


def resnet18(w: Weights, batch: int = 8, size: int = 224) -> Task:
    """ResNet18."""
    return _resnet(w, batch, size, _basic, (2, 2, 2, 2))


def resnet50(w: Weights, batch: int = 8, size: int = 224) -> Task:
    """ResNet50, with the stride in the 3 x 3 convolution."""
    return _resnet(w, batch, size, _bottleneck, (3, 4, 6, 3))


def vgg11(w: Weights, batch: int = 4, size: int = 224) -> Task:
    """VGG11; its first dense layer has 103 million weights."""
    widths = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)  # 0: pooling
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
            x = jax.nn.relu(_conv(next(convs), x)) if width else _max_pool(x, 2)
        x = x.reshape(x.shape[0], -1)
        for layer in params["dense"][:-1]:
            x = jax.nn.relu(dense(layer, x))
        return cross_entropy(dense(params["dense"][-1], x), labels)

    return Task(loss, params, w.images(batch, size))
