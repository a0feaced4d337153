"""What is known of a batch beside its gradient. None of it is private."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.sharding.manual import Manual
from bk_jax.summing.clipped_sum import ClippedSum


class Stats(NamedTuple):
    """What is known per example. Not private: for monitoring and tests only.

    >>> import bk_jax, jax.numpy as jnp
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(w * x), return_stats=True)
    >>> _, _, stats = grad_fn(jnp.zeros(1), jnp.asarray([[0.5], [2.0]]))
    >>> print(stats.norms, stats.clipped_fraction)
    [0.5 2. ] 0.5
    """

    losses: jax.Array
    norms: jax.Array
    clip_factors: jax.Array
    clipped_fraction: jax.Array
    nonfinite_count: jax.Array


def mean_loss(losses: jax.Array, is_padding: jax.Array, manual: Manual) -> jax.Array:
    """The mean over real examples of all devices; 0 if there are none."""
    dtype = accumulation_dtype(losses.dtype)
    total = manual.add_up(jnp.sum(jnp.where(is_padding, 0, losses.astype(dtype))))
    count = jnp.maximum(manual.add_up(jnp.sum(~is_padding)), 1)
    return (total / count).astype(losses.dtype)


def make_stats(result: ClippedSum, is_padding: jax.Array, manual: Manual) -> Stats:
    """Norms and factors are `[B]`, or `[B, groups]` when there are several clip groups."""
    norms, factors = result.norms, result.factors
    real = ~is_padding
    count = jnp.maximum(manual.add_up(jnp.sum(real)), 1)
    clipped = jnp.any(factors < 1, axis=1) & real
    nonfinite = ~jnp.all(jnp.isfinite(norms), axis=1) & real
    if norms.shape[1] == 1:
        norms, factors = norms[:, 0], factors[:, 0]
    return Stats(
        losses=result.losses,
        norms=norms,
        clip_factors=factors,
        clipped_fraction=manual.add_up(jnp.sum(clipped)) / count,
        nonfinite_count=manual.add_up(jnp.sum(nonfinite)),
    )
