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

FACTORS = {
    "abadi": lambda norms, clip_norm: jnp.minimum(1, clip_norm / norms),
    "automatic": lambda norms, clip_norm: clip_norm / (norms + 0.01),
}


def clipped_by_vmap(
    loss_fn: Callable[..., jax.Array],
    params: Any,
    batch: Any,
    is_padding: Any,
    *,
    clip_norm: float | Mapping[str, float],
    clipping: str = "abadi",
) -> Any:
    """The usual way to a sum of clipped gradients: form every example's gradient, clip, sum.

    Several clip norms are those of parts of the parameters.
    """

    def grad_of_one(example: Any) -> Any:
        return jax.grad(loss_fn)(params, jax.tree.map(lambda x: x[None], example))

    def clipped_sum(each: Any, clip_norm: float) -> Any:
        norms = jax.vmap(optax.tree.norm)(each)
        factors = jnp.where(is_padding, 0, FACTORS[clipping](norms, clip_norm))
        return jax.tree.map(lambda gradients: jnp.tensordot(factors, gradients, 1), each)

    each = jax.vmap(grad_of_one)(batch)
    if isinstance(clip_norm, Mapping):
        return {name: clipped_sum(each[name], norm) for name, norm in clip_norm.items()}
    return clipped_sum(each, clip_norm)


def with_normal_noise(sums: Any, key: jax.Array, stddev: float) -> Any:
    """Adds `jax.random.normal` to every array."""
    noise = optax.tree.random_like(key, sums, jax.random.normal)
    return jax.tree.map(lambda x, n: x + stddev * n, sums, noise)


def median_times(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, run in turn so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(rounds + 2):  # two rounds to warm up
        for name in list(runs) if index % 2 else reversed(list(runs)):
            start = time.perf_counter()
            jax.block_until_ready(runs[name]())
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def time_ratios(
    runs: Mapping[str, Callable[[], Any]], baseline: str, rounds: int
) -> dict[str, float]:
    """Median time of each over the baseline's, in turn with nothing but the baseline.

    All in one turn, a step that comes after one with gigabytes of temporaries took up to 1.4 times as
    long; the likely reason, not isolated, is the caches and pages that the other one took.
    """
    ratios = {baseline: 1.0}
    for name, run in runs.items():
        if name != baseline:
            pair = median_times({baseline: runs[baseline], name: run}, rounds)
            ratios[name] = pair[name] / pair[baseline]
    return ratios


def custom_calls(compiled: Any) -> dict[str, int]:
    """How often each of bk_jax's custom calls occurs in a compiled program."""
    names = re.findall(r'custom_call_target="(bk_\w+)"', compiled.as_text())
    return {name: names.count(name) for name in sorted(set(names))}
