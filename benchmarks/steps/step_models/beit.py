"""BEiT: a vision transformer with relative positions, scaled branches and no bias for the keys.

Each block has a table of biases for the scores of attention, one row per relative position of two
patches and one each for class to patch, patch to class, class to class.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.steps.step_models.parts import (
    Params,
    Task,
    Weights,
    cross_entropy,
    dense,
    layer_norm,
    matmul,
)
from benchmarks.steps.step_models.transformers import heads_of, patches


def relative_positions(side: int) -> np.ndarray:
    """Rows of the table for every pair of positions: [1 + side^2, 1 + side^2]."""
    rows, columns = np.divmod(np.arange(side * side), side)
    span = 2 * side - 1
    between = (rows[:, None] - rows + side - 1) * span + columns[:, None] - columns + side - 1
    index = np.empty((side * side + 1,) * 2, np.int32)
    index[1:, 1:] = between
    index[0, 1:], index[1:, 0], index[0, 0] = span**2, span**2 + 1, span**2 + 2
    return index


def _block_params(w: Weights, d: int, side: int) -> Params:
    return {
        "norm1": w.norm(d), "qkv": w.normal(d, 3 * d), "query_bias": w.constant(0, d),
        "value_bias": w.constant(0, d), "scale1": w.constant(0.1, d), "out": w.dense(d, d),
        "relative": w.normal((2 * side - 1) ** 2 + 3, heads_of(d)), "norm2": w.norm(d),
        "up": w.dense(d, 4 * d), "down": w.dense(4 * d, d), "scale2": w.constant(0.1, d),
    }  # fmt: skip


def _attention(p: Params, x: jax.Array, heads: int, index: np.ndarray) -> jax.Array:
    batch, length, d = x.shape
    bias = jnp.concatenate([p["query_bias"], jnp.zeros_like(p["query_bias"]), p["value_bias"]])
    split = (matmul(x, p["qkv"]) + bias).reshape(batch, length, 3, heads, d // heads)
    q, k, v = (split[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.swapaxes(-1, -2) / (d // heads) ** 0.5
    scores = scores + p["relative"][index].transpose(2, 0, 1)
    mixed = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3)
    return dense(p["out"], mixed.reshape(batch, length, d))


def beit(w: Weights, batch: int = 4, size: int = 224, depth: int = 24, d: int = 1024) -> Task:
    """BEiT-large: classifies the mean over patches."""
    index = relative_positions(size // 16)
    params = {
        "patch": w.dense(16 * 16 * 3, d), "cls": w.normal(1, 1, d), "norm": w.norm(d),
        "head": w.dense(d, 1000), "blocks": [_block_params(w, d, size // 16) for _ in range(depth)],
    }  # fmt: skip

    def loss(params: Params, batch: Any) -> jax.Array:
        images, labels = batch
        x = dense(params["patch"], patches(images))
        x = jnp.concatenate([jnp.broadcast_to(params["cls"], (x.shape[0], 1, d)), x], 1)
        for p in params["blocks"]:
            x = x + p["scale1"] * _attention(p, layer_norm(p["norm1"], x), heads_of(d), index)
            hidden = jax.nn.gelu(dense(p["up"], layer_norm(p["norm2"], x)))
            x = x + p["scale2"] * dense(p["down"], hidden)
        x = layer_norm(params["norm"], x[:, 1:].mean(1))
        return cross_entropy(dense(params["head"], x), labels)

    return Task(loss, params, w.images(batch, size))
