"""ConvNeXt: depthwise convolutions of 7 x 7, then a perceptron of every pixel, in scaled branches."""

from __future__ import annotations

from typing import Any

import jax

from benchmarks.steps.step_models.convolutional import bare_conv
from benchmarks.steps.step_models.parts import (
    Params,
    Task,
    Weights,
    cross_entropy,
    dense,
    layer_norm,
)


def _biased(w: Weights, size: int, d: int, p: int) -> Params:
    kernel = w.normal(size, size, d, p, scale=(2 / (size * size * d)) ** 0.5)
    return {"kernel": kernel, "bias": w.constant(0, p)}


def _conv(p: Params, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    return bare_conv(p["kernel"], x, stride, groups) + p["bias"]


def _block_params(w: Weights, d: int) -> Params:
    return {
        "depthwise": _biased(w, 7, 1, d), "norm": w.norm(d), "up": w.dense(d, 4 * d),
        "down": w.dense(4 * d, d), "scale": w.constant(0.1, d),
    }  # fmt: skip


def _block(p: Params, x: jax.Array) -> jax.Array:
    y = layer_norm(p["norm"], _conv(p["depthwise"], x, groups=x.shape[-1]))
    return x + p["scale"] * dense(p["down"], jax.nn.gelu(dense(p["up"], y)))


def _convnext(
    w: Weights, batch: int, size: int, depths: tuple[int, ...], widths: tuple[int, ...]
) -> Task:
    params: dict[str, Any] = {"stem": _biased(w, 4, 3, widths[0]), "stem_norm": w.norm(widths[0])}
    params["stages"], before = [], widths[0]
    for depth, d in zip(depths, widths, strict=True):
        stage = {"blocks": [_block_params(w, d) for _ in range(depth)]}
        if params["stages"]:
            stage |= {"norm": w.norm(before), "halve": _biased(w, 2, before, d)}
        params["stages"].append(stage)
        before = d
    params |= {"norm": w.norm(before), "head": w.dense(before, 1000)}

    def loss(params: Params, batch: Any) -> jax.Array:
        x, labels = batch
        x = layer_norm(params["stem_norm"], _conv(params["stem"], x, 4))
        for stage in params["stages"]:
            if "halve" in stage:
                x = _conv(stage["halve"], layer_norm(stage["norm"], x), 2)
            for p in stage["blocks"]:
                x = _block(p, x)
        x = layer_norm(params["norm"], x.mean((1, 2)))
        return cross_entropy(dense(params["head"], x), labels)

    return Task(loss, params, w.images(batch, size))


def convnext_base(w: Weights, batch: int = 4, size: int = 224) -> Task:
    """ConvNeXt-base."""
    return _convnext(w, batch, size, (3, 3, 27, 3), (128, 256, 512, 1024))
