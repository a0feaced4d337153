"""Transformers: GPT2 with its tied head, RoBERTa with a classifier of sentences, ViT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.steps.step_models.parts import (
    Params,
    Task,
    Weights,
    cross_entropy,
    dense,
    layer_norm,
    matmul,
)

Pin = Callable[[jax.Array], jax.Array]  # what people do to activations on several devices


def left_to_xla(x: jax.Array) -> jax.Array:
    return x


def block_params(w: Weights, d: int) -> Params:
    return {
        "norm1": w.norm(d), "qkv": w.dense(d, 3 * d), "out": w.dense(d, d),
        "norm2": w.norm(d), "up": w.dense(d, 4 * d), "down": w.dense(4 * d, d),
    }  # fmt: skip


def _attention(p: Params, x: jax.Array, heads: int, mask: jax.Array | None) -> jax.Array:
    batch, length, d = x.shape
    split = dense(p["qkv"], x).reshape(batch, length, 3, heads, d // heads)
    q, k, v = (split[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.swapaxes(-1, -2) / (d // heads) ** 0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    mixed = (jax.nn.softmax(scores, -1) @ v).transpose(0, 2, 1, 3)
    return dense(p["out"], mixed.reshape(batch, length, d))


def _blocks(
    blocks: Sequence[Params], x: jax.Array, heads: int, mask: Any = None, pin: Pin = left_to_xla
) -> jax.Array:
    for p in blocks:
        x = pin(x + _attention(p, layer_norm(p["norm1"], x), heads, mask))
        x = pin(x + dense(p["down"], jax.nn.gelu(dense(p["up"], layer_norm(p["norm2"], x)))))
    return x


def heads_of(d: int) -> int:
    """Heads of 64, as all published sizes have."""
    return max(1, d // 64)


def gpt2(
    w: Weights,
    batch: int = 8,
    length: int = 100,
    depth: int = 12,
    d: int = 768,
    words: int = 50257,
    pin: Pin = left_to_xla,
) -> Task:
    """GPT2 with its output head tied to the token embedding."""
    params = {
        "token": w.normal(words, d), "position": w.normal(1024, d), "norm": w.norm(d),
        "blocks": [block_params(w, d) for _ in range(depth)],
    }  # fmt: skip

    def loss(params: Params, ids: jax.Array) -> jax.Array:
        causal = jnp.tril(jnp.ones((length, length), bool))
        x = pin(params["token"][ids] + params["position"][jnp.arange(length)])
        x = layer_norm(params["norm"], _blocks(params["blocks"], x, heads_of(d), causal, pin))
        return cross_entropy(matmul(x[:, :-1], params["token"].T), ids[:, 1:])

    return Task(loss, params, w.ids(batch, length, below=words))


def roberta(
    w: Weights,
    batch: int = 4,
    length: int = 256,
    depth: int = 12,
    d: int = 768,
    words: int = 50265,
) -> Task:
    """RoBERTa with a classifier of sentences."""
    params = {
        "token": w.normal(words, d), "position": w.normal(514, d), "type": w.normal(1, d),
        "norm": w.norm(d), "blocks": [block_params(w, d) for _ in range(depth)],
        "pooler": w.dense(d, d), "head": w.dense(d, 2),
    }  # fmt: skip

    def loss(params: Params, batch: Any) -> jax.Array:
        ids, labels = batch
        x = params["token"][ids] + params["position"][jnp.arange(length)]
        x = layer_norm(params["norm"], x + params["type"][jnp.zeros(length, int)])
        x = _blocks(params["blocks"], x, heads_of(d))
        return cross_entropy(
            dense(params["head"], jnp.tanh(dense(params["pooler"], x[:, 0]))), labels
        )

    return Task(loss, params, (w.ids(batch, length, below=words), w.labels(batch, 2)))


def patches(images: jax.Array) -> jax.Array:
    """Images [n, size, size, 3] cut into squares of 16 pixels: [n, squares, 768]."""
    n, size = images.shape[:2]
    side = size // 16
    cut = images.reshape(n, side, 16, side, 16, 3).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(n, side * side, 16 * 16 * 3)


def vit(w: Weights, batch: int = 4, size: int = 224, depth: int = 12, d: int = 768) -> Task:
    """ViT with patches of 16 pixels."""
    params = {
        "patch": w.dense(16 * 16 * 3, d), "cls": w.normal(1, 1, d), "norm": w.norm(d),
        "position": w.normal(1, (size // 16) ** 2 + 1, d), "head": w.dense(d, 1000),
        "blocks": [block_params(w, d) for _ in range(depth)],
    }  # fmt: skip

    def loss(params: Params, batch: Any) -> jax.Array:
        images, labels = batch
        x = dense(params["patch"], patches(images))
        first = jnp.broadcast_to(params["cls"], (x.shape[0], 1, d))
        x = jnp.concatenate([first, x], 1) + params["position"]
        x = layer_norm(params["norm"], _blocks(params["blocks"], x, heads_of(d)))
        return cross_entropy(dense(params["head"], x[:, 0]), labels)

    return Task(loss, params, w.images(batch, size))
