"""A small GPT on bytes: ordinary JAX, which knows nothing of privacy.

Learned positions, normalisation before each block, and a head that is the table of bytes again.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BYTES = 256
START = END = 0  # a byte that no text has: before the first one, and after the last
Tree = Any


def init_params(width: int, layers: int, length: int, seed: int = 0) -> Tree:
    """Normal weights, smaller where a block adds to the stream; zero biases."""
    rng = np.random.default_rng(seed)

    def normal(shape: tuple[int, ...], deviation: float) -> np.ndarray:
        return (deviation * rng.normal(size=shape)).astype(np.float32)

    def dense(d: int, p: int, scale: float = 1.0) -> Tree:
        return {"w": normal((d, p), scale / np.sqrt(d)), "b": np.zeros(p, np.float32)}

    def norm() -> Tree:
        return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}

    def layer() -> Tree:
        small = 1 / np.sqrt(2 * layers)
        return {
            "norm1": norm(),
            "qkv": dense(width, 3 * width),
            "out": dense(width, width, small),
            "norm2": norm(),
            "up": dense(width, 4 * width),
            "down": dense(4 * width, width, small),
        }

    return {
        "bytes": normal((BYTES, width), 1 / np.sqrt(width)),
        "positions": normal((length, width), 0.1 / np.sqrt(width)),
        "layers": [layer() for _ in range(layers)],
        "norm": norm(),
    }


def dense(params: Tree, x: jax.Array) -> jax.Array:
    return x @ params["w"] + params["b"]


def normalise(params: Tree, x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * params["scale"] + params["bias"]


def attention(params: Tree, x: jax.Array, heads: int) -> jax.Array:
    """Every position looks at itself and at those before it."""
    batch, length, width = x.shape
    split = dense(params["qkv"], x).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (split[:, :, part] for part in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // heads)
    allowed = np.tril(np.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(allowed, scores, -1e9))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    return dense(params["out"], mixed.reshape(batch, length, width))


def logits_fn(params: Tree, windows: jax.Array, heads: int) -> jax.Array:
    """What each byte of a window may be, given those before it: `[n, length, BYTES]`."""
    before = jnp.pad(windows[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    x = params["bytes"][before] + params["positions"]
    for layer in params["layers"]:
        x = x + attention(layer, normalise(layer["norm1"], x), heads)
        hidden = jax.nn.gelu(dense(layer["up"], normalise(layer["norm2"], x)))
        x = x + dense(layer["down"], hidden)
    return normalise(params["norm"], x) @ params["bytes"].T


def surprises(params: Tree, windows: jax.Array, heads: int) -> tuple[jax.Array, jax.Array]:
    """Of every byte its negative log-likelihood and whether it was the likeliest; 0 after the end."""
    logits = logits_fn(params, windows, heads)
    chosen = jnp.take_along_axis(logits, windows[..., None], axis=-1)[..., 0]
    nats = jax.nn.logsumexp(logits, axis=-1) - chosen
    right = jnp.argmax(logits, axis=-1) == windows
    return jnp.where(windows == END, 0, nats), (windows != END) & right


def losses_fn(params: Tree, windows: jax.Array, heads: int) -> jax.Array:
    """One loss per window: nats per place, so that a window that is cut short counts less."""
    return jnp.mean(surprises(params, windows, heads)[0], axis=1)


@functools.partial(jax.jit, static_argnames="heads")
def quality(params: Tree, windows: jax.Array, heads: int) -> dict[str, jax.Array]:
    """Bits per byte, and the share of bytes that were the likeliest, a few windows at a time."""
    nats, right = jax.lax.map(
        lambda window: jax.tree.map(jnp.sum, surprises(params, window[None], heads)),
        windows,
        batch_size=64,
    )
    count = jnp.sum(windows != END)
    return {
        "bits per byte": jnp.sum(nats) / count / jnp.log(2),
        "next-byte accuracy": jnp.sum(right) / count,
    }


@functools.partial(jax.jit, static_argnames="heads")
def with_next_byte(
    params: Tree, window: jax.Array, place: Any, temperature: Any, key: jax.Array, heads: int
) -> jax.Array:
    """The window with a byte drawn for one place."""
    logits = logits_fn(params, window[None], heads)[0, place].at[END].set(-jnp.inf)
    drawn = jax.random.categorical(jax.random.fold_in(key, place), logits / temperature)
    return window.at[place].set(drawn)


def generate(params: Tree, prompt: str, heads: int, temperature: float = 0.7) -> str:
    """A window that begins with the prompt, byte by byte; always the same one."""
    length, start = len(params["positions"]), prompt.encode()
    window = np.frombuffer(start.ljust(length, bytes([END])), np.uint8).astype(np.int32)
    for place in range(len(start), length):
        window = with_next_byte(params, window, place, temperature, jax.random.key(0), heads)
    return bytes(np.asarray(window, np.uint8)).decode("utf-8", "replace")
