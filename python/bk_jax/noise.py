"""Noise: independent Gaussians for every parameter, from one key per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def add_noise(sums: Sequence[jax.Array], key: Any, stddev: Any) -> list[jax.Array]:
    """Adds `N(0, stddev^2)` to every element; each array draws from its own key."""
    noisy = []
    for index, total in enumerate(sums):
        normal = jax.random.normal(jax.random.fold_in(key, index), total.shape, total.dtype)
        noisy.append(total + jnp.asarray(stddev, total.dtype) * normal)
    return noisy
