"""Layers as plain functions of a dictionary of parameters, for the models written without a library."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Params = dict[str, Any]


def dense(params: Params, x: jax.Array) -> jax.Array:
    return x @ params["kernel"] + params["bias"]


def dense_shapes(d: int, p: int) -> Params:
    return {"kernel": (d, p), "bias": (p,)}


def layer_norm(params: Params, x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 0.1) * params["scale"] + params["shift"]


def layer_norm_shapes(d: int) -> Params:
    return {"scale": (d,), "shift": (d,)}


def rms_norm(scale: jax.Array, x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 0.1) * scale


def causal_bias(length: int, dtype: Any) -> jax.Array:
    """0 where a token may look, a large negative number elsewhere."""
    return jnp.where(jnp.tri(length, dtype=bool), 0, -1e9).astype(dtype)


def attention(q: jax.Array, k: jax.Array, v: jax.Array, bias: Any = 0.0) -> jax.Array:
    """Softmax attention of `[..., tokens, heads, width]`."""
    scores = jnp.einsum("...qhd,...khd->...hqk", q, k) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(scores + bias)
    return jnp.einsum("...hqk,...khd->...qhd", weights, v)


def self_attention(params: Params, x: jax.Array, heads: int = 2, bias: Any = 0.0) -> jax.Array:
    """A fused projection to queries, keys and values, as GPT2 has it."""
    split = jnp.split(dense(params["qkv"], x), 3, axis=-1)
    q, k, v = (part.reshape(*part.shape[:-1], heads, -1) for part in split)
    return dense(params["out"], attention(q, k, v, bias).reshape(x.shape))


def transformer_block(params: Params, x: jax.Array, bias: Any = 0.0) -> jax.Array:
    x = x + self_attention(params["attention"], layer_norm(params["norm1"], x), bias=bias)
    hidden = jax.nn.gelu(dense(params["up"], layer_norm(params["norm2"], x)))
    return x + dense(params["down"], hidden)


def transformer_block_shapes(d: int) -> Params:
    return {
        "attention": {"qkv": dense_shapes(d, 3 * d), "out": dense_shapes(d, d)},
        "norm1": layer_norm_shapes(d),
        "norm2": layer_norm_shapes(d),
        "up": dense_shapes(d, 2 * d),
        "down": dense_shapes(2 * d, d),
    }


TRANSFORMER_BLOCK_KINDS = {
    "*kernel": "dense",
    "*bias": "leaf",
    "*scale": "leaf",
    "*shift": "leaf",
}
