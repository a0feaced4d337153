"""Ghost norm: `||a_i^T g_i||^2` for every example without forming `a_i^T g_i`.

    ||a^T g||^2 = <a a^T, g g^T>      with  a [T, d],  g [T, p]

costs `T^2 (d + p)` instead of `T d p` multiplications and `O(T^2)` memory instead of `O(d p)`. The
native kernel keeps only small tiles of the two Gram matrices.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops.numerics import (
    SquaredNorms,
    accumulation_dtype,
    common_dtype,
    row_lengths,
    unit_roundoff,
)
from bk_jax.repeated import repeated


@repeated(state=lambda: _native.registered("bk_ghost_norm"))
def ghost_norm(a: jax.Array, g: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of the gradients of a dense layer.

    Args:
      a: activations `[B, N, T, d]`.
      g: output gradients `[B, N, T, p]`; each of the `N` slices has its own weight.

    Returns:
      The estimate of `sum_n ||a[i, n]^T g[i, n]||^2` and an upper bound of its exact value.

    >>> import jax.numpy as jnp
    >>> a = jnp.asarray([[[[1.0, 2.0]]]])  # one example, one token, d = 2
    >>> g = jnp.asarray([[[[3.0]]]])  # p = 1: the gradient is [[3], [6]]
    >>> print(ghost_norm(a, g).estimate)
    [45.]
    """
    _check(a, g)
    dtype = common_dtype(a.dtype, g.dtype)
    a, g = a.astype(dtype), g.astype(dtype)
    out = jax.ShapeDtypeStruct((a.shape[0],), accumulation_dtype(dtype))
    both = {0: a, 1: g}
    norms = _native.call(
        "bk_ghost_norm", ghost_norm_twin, [out, out], a, g,
        shapes=_border.rows(both), padded=_border.padded(both, [out, out]),
    )  # fmt: skip
    return SquaredNorms(*norms)


def ghost_norm_twin(a: jax.Array, g: jax.Array) -> SquaredNorms:
    """The same in plain JAX, with both Gram matrices in memory.

    The bound: a Gram entry summed in any order errs by at most `k u |a_t| |a_t'|`, so by
    Cauchy-Schwarz the sum errs by at most `kappa u S^2` with `S = sum_t |a_t| |g_t|` and
    `kappa` = d + p + the length of the outer sum.
    """
    dtype = accumulation_dtype(a.dtype, g.dtype)
    gram_a = jnp.einsum("bntd,bnsd->bnts", a, a, preferred_element_type=dtype)
    gram_g = jnp.einsum("bntp,bnsp->bnts", g, g, preferred_element_type=dtype)
    rows = jnp.sum(gram_a * gram_g, axis=-1)
    estimate = jnp.maximum(jnp.sum(rows, axis=(1, 2)), 0)
    left, right = row_lengths(a, dtype), row_lengths(g, dtype)
    spread = jnp.sum(left * right, axis=-1)
    _, n, t, d = a.shape
    p = g.shape[-1]
    chain = d + p + 2 * t + n + 8
    slack = 2.0 * chain * unit_roundoff(dtype) * jnp.sum(spread * spread, axis=-1)
    return SquaredNorms(estimate, estimate + slack + _hidden(left, right, d, p))


def _hidden(left: jax.Array, right: jax.Array, d: int, p: int) -> jax.Array:
    """What flushing to 0 can hide: entries of one Gram matrix times the other, and products."""
    _, n, t = left.shape
    tiny = float(jnp.finfo(left.dtype).tiny)
    squares_a = jnp.sum(left * left, axis=(1, 2))
    squares_g = jnp.sum(right * right, axis=(1, 2))
    nonzero = jnp.any(left > 0, axis=(1, 2)) & jnp.any(right > 0, axis=(1, 2))
    hidden = (tiny * t * d) * squares_g + (tiny * t * p) * squares_a
    hidden += tiny * (1 + n * t * t)
    return jnp.where(nonzero, hidden, 0)


def _check(a: jax.Array, g: jax.Array) -> None:
    if a.ndim != 4 or g.ndim != 4 or a.shape[:3] != g.shape[:3]:
        raise ValueError(
            "ghost_norm expects activations [B, N, T, d] and output gradients [B, N, T, p] with equal "
            f"B, N and T; got {a.shape} and {g.shape}."
        )
