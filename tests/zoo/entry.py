"""What a model of the zoo is: a loss of parameters and a batch, and both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

B, T = 7, 5  # examples (no model has a constant of 7 rows, which would be warned about), tokens


@dataclasses.dataclass(frozen=True)
class Entry:
    """`loss(params, batch)` of a library's own model, as for `dp_value_and_grad`."""

    loss: Callable[[Any, Any], Any]
    params: Any
    batch: Any


def ids(vocabulary: int, *shape: int) -> np.ndarray:
    """Tokens."""
    rng = np.random.default_rng(1)
    return rng.integers(0, vocabulary, (B, *(shape or (T,)))).astype(np.int32)


def pixels(*shape: int) -> np.ndarray:
    """Normal values; those of each example are smaller than the last one's."""
    values = np.random.default_rng(2).normal(size=(B, *shape)).astype(np.float32)
    return values * np.geomspace(1.0, 0.3, B, dtype=np.float32).reshape(-1, *[1] * len(shape))


def of_outputs(outputs: Any) -> jax.Array:
    """One number of all numbers that a model returns, each with its own weight."""
    total = jnp.zeros(())
    for leaf in jax.tree.leaves(outputs):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            weights = jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)
            total += jnp.sum(weights * jnp.tanh(leaf)) / leaf.size**0.5
    return total
