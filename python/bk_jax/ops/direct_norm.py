"""Direct norm: `||a_i^T g_i||^2` from the gradient itself, computed in tiles that are dropped.

Cheaper than the ghost norm where a layer has many positions for its number of weights.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._dense import dense_operands
from bk_jax.ops.ghost_norm import ghost_norm
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, row_lengths, unit_roundoff
from bk_jax.ops.per_sample_grad import per_sample_grad_twin


def direct_norm(lhs: jax.Array, rhs: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of `lhs[i, n]^T rhs[i, n]`, and an upper bound.

    >>> import jax.numpy as jnp
    >>> print(direct_norm(jnp.full((1, 1, 1, 2), 2.0), jnp.full((1, 1, 1, 1), 3.0)).estimate)
    [72.]
    """
    lhs, rhs = dense_operands("direct_norm", lhs, rhs)
    if lhs.shape[2] == 1:  # the norm of one outer product is a product of norms
        return ghost_norm(lhs, rhs)
    norm = jax.ShapeDtypeStruct(lhs.shape[:1], accumulation_dtype(lhs.dtype))
    both = {0: lhs, 1: rhs}
    norms = _native.call(
        "bk_direct_norm", direct_norm_twin, [norm, norm], lhs, rhs,
        shapes=_border.rows(both), padded=_border.padded(both, [norm, norm]),
    )  # fmt: skip
    return SquaredNorms(*norms)


def direct_norm_twin(lhs: jax.Array, rhs: jax.Array) -> SquaredNorms:
    """The same in plain JAX, with the gradients in memory.

    The computed product errs by at most `T u S` in norm, `S = sum_t |lhs_t| |rhs_t|`.
    """
    dtype = accumulation_dtype(lhs.dtype, rhs.dtype)
    _, estimate, upper = per_sample_grad_twin(lhs, rhs)
    left, right = (row_lengths(x, dtype) for x in (lhs, rhs))
    spread = jnp.sum(left * right, axis=(1, 2))
    chain = 2 * (lhs.shape[2] + 4)
    slack = chain * unit_roundoff(dtype) * spread
    return SquaredNorms(estimate, jnp.square(jnp.sqrt(upper) + slack))
