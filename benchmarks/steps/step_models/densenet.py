"""DenseNet: every layer reads what all layers of its block before it wrote; with GroupNorm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.steps.step_models.convolutional import bare_conv, conv, group_norm, max_pool
from benchmarks.steps.step_models.parts import Params, Task, Weights, cross_entropy, dense

GROWTH = 32  # channels that a layer adds
REDUCED = 128  # between its two convolutions


def _first_norm(w: Weights, size: int, d: int, p: int) -> Params:
    """A convolution whose norm comes before it, so of d channels."""
    kernel = w.normal(size, size, d, p, scale=(2 / (size * size * d)) ** 0.5)
    return {"kernel": kernel, **w.norm(d)}


def _normed_conv(p: Params, x: jax.Array) -> jax.Array:
    return bare_conv(p["kernel"], jax.nn.relu(group_norm(p, x)))


def _halved(x: jax.Array) -> jax.Array:
    """The mean of every 2 x 2 pixels."""
    sums = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return sums / 4


def _densenet(w: Weights, batch: int, size: int, blocks: tuple[int, ...]) -> Task:
    params: dict[str, Any] = {"stem": w.conv(7, 3, 64), "blocks": [], "transitions": []}
    channels = 64
    for number, layers in enumerate(blocks):
        if number > 0:
            params["transitions"].append(_first_norm(w, 1, channels, channels // 2))
            channels //= 2
        inputs = range(channels, channels + GROWTH * layers, GROWTH)
        params["blocks"].append(
            [(_first_norm(w, 1, d, REDUCED), _first_norm(w, 3, REDUCED, GROWTH)) for d in inputs]
        )
        channels += GROWTH * layers
    params |= {"norm": w.norm(channels), "head": w.dense(channels, 1000)}

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        x = max_pool(jax.nn.relu(conv(params["stem"], x, 2)), 3)
        for number, block in enumerate(params["blocks"]):
            if number > 0:
                x = _halved(_normed_conv(params["transitions"][number - 1], x))
            for reduce, grow in block:
                x = jnp.concatenate([x, _normed_conv(grow, _normed_conv(reduce, x))], -1)
        x = jax.nn.relu(group_norm(params["norm"], x)).mean((1, 2))
        return cross_entropy(dense(params["head"], x), labels)

    return Task(loss, params, w.images(batch, size))


def densenet121(w: Weights, batch: int = 4, size: int = 224) -> Task:
    """DenseNet121."""
    return _densenet(w, batch, size, (6, 12, 24, 16))
