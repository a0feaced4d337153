"""Language models as they are trained today: Llama 3 with 1.2, 8 and 70 billion parameters.

Rotary positions, groups of heads that share keys and values, gated layers; the smallest has a tied head.
Layers are one scan over stacked parameters, computed again in the backward pass. Attention goes by
blocks of queries, so that no array has two axes of tokens.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.steps.step_models.parts import Params, Task, Weights, cross_entropy, matmul
from benchmarks.steps.step_models.transformers import Pin, left_to_xla


def _layer_params(w: Weights, depth: int, d: int, hidden: int, keys: int) -> Params:
    return {
        "norm1": w.constant(1, depth, d), "query": w.normal(depth, d, d),
        "key": w.normal(depth, d, keys), "value": w.normal(depth, d, keys),
        "out": w.normal(depth, d, d), "norm2": w.constant(1, depth, d),
        "gate": w.normal(depth, d, hidden), "up": w.normal(depth, d, hidden),
        "down": w.normal(depth, hidden, d),
    }  # fmt: skip


def _rms_norm(scale: jax.Array, x: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * scale


def _rotated(x: jax.Array) -> jax.Array:
    """Rotary positions: x is [B, T, heads, k]."""
    _, length, _, k = x.shape
    angles = np.outer(np.arange(length), 500000.0 ** (-np.arange(0, k, 2) / k))[:, None]
    cos, sin = (jnp.asarray(f(angles), x.dtype) for f in (np.cos, np.sin))
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array, block: int) -> jax.Array:
    """Causal, `block` queries at a time: q is [B, T, groups, heads, k], the others [B, T, groups, k]."""
    length = q.shape[1]

    @jax.checkpoint
    def mixed(start: jax.Array, some: jax.Array) -> jax.Array:
        scores = jnp.einsum("btghk,bsgk->bghts", some, k) / some.shape[-1] ** 0.5
        seen = start + jnp.arange(some.shape[1])[:, None] >= jnp.arange(length)
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), -1)
        return jnp.einsum("bghts,bsgk->btghk", weights, v)

    starts = jnp.arange(0, length, block)
    blocks = jnp.stack(jnp.split(q, length // block, 1))
    done = lax.map(lambda pair: mixed(*pair), (starts, blocks))
    return jnp.moveaxis(done, 0, 1).reshape(q.shape)


def llama(
    w: Weights,
    batch: int = 1,
    length: int = 4096,
    depth: int = 16,
    d: int = 2048,
    hidden: int = 8192,
    groups: int = 8,
    words: int = 128256,
    block: int = 512,
    head: int = 64,
    tied: bool = True,
    pin: Pin = left_to_xla,
) -> Task:
    """Heads of `head` features; `groups` of them share keys and values; `pin` holds examples."""
    params = {
        "token": w.normal(words, d), "norm": w.constant(1, d),
        "layers": _layer_params(w, depth, d, hidden, groups * head),
        **({} if tied else {"head": w.normal(d, words)}),
    }  # fmt: skip

    def layer(x: jax.Array, p: Params) -> tuple[jax.Array, None]:
        n, size, _ = x.shape
        y = _rms_norm(p["norm1"], x)
        q = _rotated(matmul(y, p["query"]).reshape(n, size, -1, head))
        k = _rotated(matmul(y, p["key"]).reshape(n, size, groups, head))
        v = matmul(y, p["value"]).reshape(n, size, groups, head)
        mixed = _attention(q.reshape(n, size, groups, -1, head), k, v, min(block, size))
        x = x + matmul(mixed.reshape(x.shape), p["out"])
        y = _rms_norm(p["norm2"], x)
        gated = jax.nn.silu(matmul(y, p["gate"])) * matmul(y, p["up"])
        return pin(x + matmul(gated, p["down"])), None

    def loss(params: Params, ids: Any) -> jax.Array:
        x, _ = lax.scan(jax.checkpoint(layer), pin(params["token"][ids]), params["layers"])
        x = _rms_norm(params["norm"], x)
        table = params["token"].T if tied else params["head"]
        return cross_entropy(matmul(x[:, :-1], table), ids[:, 1:])

    return Task(loss, params, w.ids(batch, length, below=words))


llama_8b = partial(llama, depth=32, d=4096, hidden=14336, head=128, tied=False)
llama_70b = partial(llama, depth=80, d=8192, hidden=28672, head=128, tied=False)
