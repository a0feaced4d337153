"""Per-example gradients of a dense layer: kept (`per_sample_grad`) or only measured (`direct_norm`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, row_lengths, unit_roundoff
from bk_jax.ops.sums import sum_of_squares


def per_sample_grad(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
    """`lhs[i, n]^T rhs[i, n]` for every example: `[B, N, M, K]`.

    >>> import jax.numpy as jnp
    >>> print(per_sample_grad(jnp.full((1, 1, 1, 2), 2.0), jnp.full((1, 1, 1, 1), 3.0)).ravel())
    [6. 6.]
    """
    dtype = accumulation_dtype(lhs.dtype, rhs.dtype)
    return jnp.einsum("bntm,bntk->bnmk", lhs, rhs, preferred_element_type=dtype)


def direct_norm(lhs: jax.Array, rhs: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of `lhs[i, n]^T rhs[i, n]`, and an upper bound.

    The computed product errs by at most `T u S` in norm, `S = sum_t |lhs_t| |rhs_t|`.

    >>> import jax.numpy as jnp
    >>> print(direct_norm(jnp.full((1, 1, 1, 2), 2.0), jnp.full((1, 1, 1, 1), 3.0)).estimate)
    [72.]
    """
    dtype = accumulation_dtype(lhs.dtype, rhs.dtype)
    norms = sum_of_squares(per_sample_grad(lhs, rhs))
    left, right = (row_lengths(x, dtype) for x in (lhs, rhs))
    spread = jnp.sum(left * right, axis=(1, 2))
    chain = 2 * (lhs.shape[2] + 4)
    slack = chain * unit_roundoff(dtype) * spread
    return SquaredNorms(norms.estimate, jnp.square(jnp.sqrt(norms.upper) + slack))
