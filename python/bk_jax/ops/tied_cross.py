"""Tied cross term: the inner product of a table's two gradients, as a lookup and as a product.

It is signed, so its bound is an upper bound on its value, not on its magnitude.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._lookup import checked_ids, without_unread
from bk_jax.ops.numerics import (
    SignedBound,
    accumulation_dtype,
    common_dtype,
    row_lengths,
    unit_roundoff,
)


def tied_cross(left: jax.Array, right: jax.Array, ids: jax.Array, g: jax.Array) -> SignedBound:
    """`<left^T right, E>` per example, where row `ids[s]` of `E` gets `g[s]`; and an upper bound.

    Args:
      left: `[B, T, rows]`.
      right: `[B, T, p]`.
      ids: `[B, S]`, -1 for none.
      g: `[B, S, p]`.

    >>> import jax.numpy as jnp
    >>> one = jnp.ones((1, 1, 1))
    >>> print(tied_cross(jnp.asarray([[[2.0, 7.0]]]), 3 * one, jnp.asarray([[1]]), 5 * one).estimate)
    [105.]
    """
    ids = checked_ids("tied_cross", ids, g)
    batch, _, p = g.shape
    right_shape = (batch, left.shape[1], p) if left.ndim == 3 else None
    if left.ndim != 3 or left.shape[0] != batch or right.shape != right_shape:
        raise ValueError(
            "tied_cross expects left [B, T, rows], right [B, T, p] and gradients [B, S, p]; got "
            f"{left.shape}, {right.shape} and {g.shape}."
        )
    dtype = common_dtype(left.dtype, right.dtype, g.dtype)
    out = jax.ShapeDtypeStruct((batch,), accumulation_dtype(dtype))
    operands = (left.astype(dtype), right.astype(dtype), ids, g.astype(dtype))
    shapes = {0: _border.matrix(left), 1: _border.matrix(right)}
    # Rows are longer where the norm's and the sum's are, or both arrays would be kept for all three.
    longer = _border.padded({0: operands[0]}, [out, out])
    norms = _native.call(
        "bk_tied_cross", tied_cross_twin, [out, out], *operands, shapes=shapes, padded=longer
    )
    return SignedBound(*norms)


def tied_cross_twin(left: jax.Array, right: jax.Array, ids: jax.Array, g: jax.Array) -> SignedBound:
    """The same in plain JAX, with the matrix of inner products in memory."""
    dtype = accumulation_dtype(left.dtype, g.dtype)
    ids = jnp.where(ids < left.shape[2], ids, -1)
    picked = jnp.take_along_axis(left, jnp.maximum(ids, 0)[:, None, :], axis=2).astype(dtype)
    picked = jnp.where(ids[:, None, :] >= 0, picked, 0)
    grads = without_unread(ids, g).astype(dtype)
    gram = jnp.einsum("btp,bsp->bts", right.astype(dtype), grads, preferred_element_type=dtype)
    rows = jax.lax.optimization_barrier(jnp.sum(picked * gram, axis=2))
    cross = jnp.sum(rows, axis=1)
    lengths = [row_lengths(x, dtype) for x in (right, grads)]
    spread = jnp.einsum("bts,bt,bs->b", jnp.abs(picked), *lengths)
    hidden = g.shape[2] * float(jnp.finfo(dtype).tiny) * jnp.sum(jnp.abs(picked) + 1, axis=(1, 2))
    chain = g.shape[2] + left.shape[1] + ids.shape[1] + 8
    slack = 2 * chain * unit_roundoff(dtype) * spread
    return SignedBound(cross, cross + slack + hidden)
