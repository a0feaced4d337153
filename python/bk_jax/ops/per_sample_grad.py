"""Per-sample gradient: the gradient of a dense layer for each example, with its norm."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._dense import dense_operands
from bk_jax.ops._precision import tf32
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype
from bk_jax.ops.sum_of_squares import sum_of_squares


class PerSampleGrads(NamedTuple):
    """Gradients `[B, N, M, K]`, and their squared norms."""

    gradients: jax.Array
    norms: SquaredNorms


def per_sample_grad(lhs: jax.Array, rhs: jax.Array) -> PerSampleGrads:
    """`lhs[i, n]^T rhs[i, n]` for every example, with its squared norm, in one pass.

    >>> import jax.numpy as jnp
    >>> grads = per_sample_grad(jnp.full((1, 1, 1, 2), 2.0), jnp.full((1, 1, 1, 1), 3.0))
    >>> print(grads.gradients.ravel(), grads.norms.estimate)
    [6. 6.] [72.]
    """
    lhs, rhs = dense_operands("per_sample_grad", lhs, rhs)
    dtype = accumulation_dtype(lhs.dtype)
    grad = jax.ShapeDtypeStruct((*lhs.shape[:2], lhs.shape[3], rhs.shape[3]), dtype)
    norm = jax.ShapeDtypeStruct(lhs.shape[:1], dtype)
    both, results = {0: lhs, 1: rhs}, [grad, norm, norm]
    gradients, *norms = _native.call(
        "bk_per_sample_grad", per_sample_grad_twin, results, lhs, rhs,
        shapes=_border.rows(both), padded=_border.padded(both, results),
        **tf32(lhs.dtype, unless_named=True),
    )  # fmt: skip
    return PerSampleGrads(gradients, SquaredNorms(*norms))


def per_sample_grad_twin(lhs: jax.Array, rhs: jax.Array, *, tf32: int = 0) -> tuple[jax.Array, ...]:
    """The same in plain JAX, whose products follow JAX's own setting, as `tf32` does."""
    del tf32
    dtype = accumulation_dtype(lhs.dtype, rhs.dtype)
    gradients = jnp.einsum("bntm,bntk->bnmk", lhs, rhs, preferred_element_type=dtype)
    return gradients, *sum_of_squares(gradients)
