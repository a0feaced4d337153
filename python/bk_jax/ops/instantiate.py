"""Per-example gradients of a dense layer: kept (`per_sample_grad`) or only measured (`direct_norm`)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import border
from bk_jax.ops.ghost_norm import ghost_norm
from bk_jax.ops.numerics import (
    SquaredNorms,
    accumulation_dtype,
    common_dtype,
    row_lengths,
    unit_roundoff,
)
from bk_jax.ops.sums import sum_of_squares


class PerSampleGrads(NamedTuple):
    """Gradients `[B, N, M, K]`, and the squared norms of what is in them."""

    gradients: jax.Array
    norms: SquaredNorms


def per_sample_grad(lhs: jax.Array, rhs: jax.Array) -> PerSampleGrads:
    """`lhs[i, n]^T rhs[i, n]` for every example, with its squared norm, in one pass.

    >>> import jax.numpy as jnp
    >>> grads = per_sample_grad(jnp.full((1, 1, 1, 2), 2.0), jnp.full((1, 1, 1, 1), 3.0))
    >>> print(grads.gradients.ravel(), grads.norms.estimate)
    [6. 6.] [72.]
    """
    lhs, rhs = _operands("per_sample_grad", lhs, rhs)
    dtype = accumulation_dtype(lhs.dtype)
    grad = jax.ShapeDtypeStruct((*lhs.shape[:2], lhs.shape[3], rhs.shape[3]), dtype)
    norm = jax.ShapeDtypeStruct(lhs.shape[:1], dtype)
    gradients, *norms = _native.call(
        "bk_per_sample_grad", per_sample_grad_twin, [grad, norm, norm], lhs, rhs,
        shapes=border.rows({0: lhs, 1: rhs}),
    )  # fmt: skip
    return PerSampleGrads(gradients, SquaredNorms(*norms))


def per_sample_grad_twin(lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, ...]:
    """The same in plain JAX."""
    dtype = accumulation_dtype(lhs.dtype, rhs.dtype)
    gradients = jnp.einsum("bntm,bntk->bnmk", lhs, rhs, preferred_element_type=dtype)
    return gradients, *sum_of_squares(gradients)


def direct_norm(lhs: jax.Array, rhs: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of `lhs[i, n]^T rhs[i, n]`, and an upper bound.

    >>> import jax.numpy as jnp
    >>> print(direct_norm(jnp.full((1, 1, 1, 2), 2.0), jnp.full((1, 1, 1, 1), 3.0)).estimate)
    [72.]
    """
    lhs, rhs = _operands("direct_norm", lhs, rhs)
    if lhs.shape[2] == 1:  # the norm of one outer product is a product of norms
        return ghost_norm(lhs, rhs)
    norm = jax.ShapeDtypeStruct(lhs.shape[:1], accumulation_dtype(lhs.dtype))
    shapes = border.rows({0: lhs, 1: rhs})
    norms = _native.call("bk_direct_norm", direct_norm_twin, [norm, norm], lhs, rhs, shapes=shapes)
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


def _operands(name: str, lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, jax.Array]:
    if lhs.ndim != 4 or rhs.ndim != 4 or lhs.shape[:3] != rhs.shape[:3]:
        raise ValueError(
            f"{name} expects [B, N, T, M] and [B, N, T, K] with equal B, N and T; got "
            f"{lhs.shape} and {rhs.shape}."
        )
    dtype = common_dtype(lhs.dtype, rhs.dtype)
    return lhs.astype(dtype), rhs.astype(dtype)
