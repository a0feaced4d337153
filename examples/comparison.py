"""To compare training steps: the usual private gradient, times taken in turn, custom calls."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax


def vmap_grad(
    loss_fn: Callable[..., jax.Array],
    params: Any,
    batch: Any,
    is_padding: Any,
    key: jax.Array,
    *,
    clip_norm: float,
    noise_multiplier: float,
    normalize_by: float,
) -> Any:
    """The usual way to a private gradient: form every example's gradient, clip, sum, add noise."""

    def grad_of_one(example: Any) -> Any:
        return jax.grad(loss_fn)(params, jax.tree.map(lambda x: x[None], example))

    def noisy_sum(gradients: jax.Array, noise: jax.Array) -> jax.Array:
        return (jnp.tensordot(factors, gradients, 1) + scale * noise) / normalize_by

    each = jax.vmap(grad_of_one)(batch)
    norms = jax.vmap(optax.tree.norm)(each)
    factors = jnp.where(is_padding, 0, jnp.minimum(1, clip_norm / norms))
    scale = noise_multiplier * clip_norm
    return jax.tree.map(noisy_sum, each, optax.tree.random_like(key, params, jax.random.normal))


def median_times(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, run in turn so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(rounds + 2):  # two rounds to warm up
        for name in list(runs) if index % 2 else reversed(list(runs)):
            start = time.perf_counter()
            jax.block_until_ready(runs[name]())
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def custom_calls(compiled: Any) -> dict[str, int]:
    """How often each of bk_jax's custom calls occurs in a compiled program."""
    names = re.findall(r'custom_call_target="(bk_\w+)"', compiled.as_text())
    return {name: names.count(name) for name in sorted(set(names))}
