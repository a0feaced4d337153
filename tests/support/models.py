"""Losses and data that several tests share; data are NumPy arrays, making them compiles nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def mlp_loss(params: Any, batch: Any) -> jax.Array:
    """A two-layer network with biases and a squared error."""
    x, y = batch
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean(jnp.square(hidden @ params["w2"] + params["b2"] - y))


def mlp(dtype: Any = jnp.float32, sizes: tuple[int, int, int] = (5, 7, 3)) -> dict[str, np.ndarray]:
    """Parameters of `mlp_loss`."""
    d, h, p = sizes
    rng = np.random.default_rng(0)
    shapes = {"w1": (d, h), "b1": (h,), "w2": (h, p), "b2": (p,)}
    return {k: (rng.normal(size=s) / np.sqrt(s[0])).astype(dtype) for k, s in shapes.items()}


def mlp_batch(
    size: int, dtype: Any = jnp.float32, sizes: tuple[int, int, int] = (5, 7, 3), tokens: Any = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Examples of `mlp_loss`, of very different gradient norms; `tokens` are axes inside one."""
    d, _, p = sizes
    rng = np.random.default_rng(1)
    scale = np.logspace(-2, 0.5, max(size, 1))[:size].reshape(-1, *[1] * (len(tokens) + 1))
    x, y = (scale * rng.normal(size=(size, *tokens, n)) for n in (d, p))
    return x.astype(dtype), y.astype(dtype)


def linear_loss(w: Any, x: Any) -> jax.Array:
    """The gradient of an example is the example itself."""
    return jnp.sum(x * w)
