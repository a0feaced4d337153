"""Clip factors: from squared norms to the number that scales each example's gradient.

| clipping    | factor for norm n | n = 0 |
|-------------|-------------------|-------|
| "abadi"     | min(R / n, 1)     | 1     |
| "automatic" | R / (n + 0.01)    | R / 0.01 |
| "normalize" | R / n             | 0: there is no direction to keep |
| "indicator" | 1 if n <= R else 0 | 1    |

Every factor is rounded down and every norm up, so `factor * norm <= R` holds despite rounding. The
factor is 0 for a norm that is not finite, for a padding example, and for everything if R = 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops.numerics import inflate, next_down, next_up

CLIPPING_NAMES = ("abadi", "automatic", "normalize", "indicator")
AUTOMATIC_STABILITY = 0.01


def clip_factor(
    sq_norms: jax.Array, clip_norm: jax.Array, is_padding: jax.Array, *, clipping: str = "abadi"
) -> tuple[jax.Array, jax.Array]:
    """Factors `[B]` and norms `[B]` from upper bounds of squared norms `[K, B]`.

    >>> import jax.numpy as jnp
    >>> squares = jnp.asarray([[9.0, 0.04], [16.0, 0.05]])  # two layers, two examples
    >>> factor, norm = clip_factor(squares, 1.0, jnp.zeros(2, bool))
    >>> print([f"{n:.4f}" for n in norm], [f"{f:.4f}" for f in factor])
    ['5.0000', '0.3000'] ['0.2000', '1.0000']
    """
    if clipping not in CLIPPING_NAMES:
        raise ValueError(f"clipping must be one of {CLIPPING_NAMES}, got {clipping!r}.")
    if sq_norms.ndim != 2 or is_padding.shape != sq_norms.shape[1:]:
        raise ValueError(
            "clip_factor expects squared norms [K, B] and is_padding [B]; got "
            f"{sq_norms.shape} and {is_padding.shape}."
        )
    clip_norm = jnp.asarray(clip_norm, sq_norms.dtype)
    out = jax.ShapeDtypeStruct(sq_norms.shape[1:], sq_norms.dtype)
    factor, norm = _native.call(
        "bk_clip_factor", clip_factor_twin, [out, out], sq_norms, clip_norm, is_padding,
        clipping=clipping,
    )  # fmt: skip
    return factor, norm


def clip_factor_twin(
    sq_norms: jax.Array, clip_norm: jax.Array, is_padding: jax.Array, *, clipping: str
) -> tuple[jax.Array, jax.Array]:
    """The same in plain JAX."""
    norm = total_norm(sq_norms)
    return safe_factor(raw_factor(norm, clip_norm, clipping), norm, clip_norm, is_padding), norm


def total_norm(sq_norms: jax.Array) -> jax.Array:
    """The norm whose square is the sum of the given upper bounds, rounded up."""
    total = inflate(jnp.sum(sq_norms, axis=0), sq_norms.shape[0])
    return jnp.where(total == 0, total, next_up(next_up(jnp.sqrt(total))))


def raw_factor(norm: jax.Array, clip_norm: jax.Array, clipping: str) -> jax.Array:
    """The factor of the table in the module's docstring, before rounding."""
    positive = jnp.where(norm > 0, norm, 1)
    if clipping == "abadi":
        return jnp.where(norm <= clip_norm, 1, clip_norm / positive)
    if clipping == "automatic":
        return clip_norm / (norm + AUTOMATIC_STABILITY)
    if clipping == "normalize":
        return jnp.where(norm > 0, clip_norm / positive, 0)
    return jnp.where(norm <= clip_norm, 1, 0).astype(norm.dtype)


def safe_factor(
    factor: jax.Array, norm: jax.Array, clip_norm: jax.Array, is_padding: jax.Array
) -> jax.Array:
    """Bounds a factor so that `factor * norm <= clip_norm`; 0 for padding and non-finite norms.

    Two steps down cover the rounding of the division and of a user's own function.
    """
    positive = jnp.where(norm > 0, norm, 1)
    bound = next_down(next_down(clip_norm / positive))
    unbounded = (norm == 0) | (clip_norm == jnp.inf) | ((factor <= 1) & (norm <= clip_norm))
    factor = jnp.where(unbounded, factor, jnp.minimum(factor, bound))
    keep = jnp.isfinite(norm) & jnp.isfinite(factor) & (factor > 0) & (clip_norm > 0) & ~is_padding
    return jnp.where(keep, factor, 0).astype(norm.dtype)
