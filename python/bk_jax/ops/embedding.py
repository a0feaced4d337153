"""Norms and sums of lookups: gradients `g[B, T, p]` that belong to rows `ids[B, T]` of a table.

An id outside the table (the rules write -1) belongs to no row: it is not read.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import border
from bk_jax.ops.numerics import (
    SquaredNorms,
    accumulation_dtype,
    common_dtype,
    row_lengths,
    unit_roundoff,
)
from bk_jax.ops.sums import sum_of_squares


def embedding_norm(ids: jax.Array, g: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of the table's gradients; rows with a negative id do not count.

    >>> import jax.numpy as jnp
    >>> ids = jnp.asarray([[5, 2, 5]])  # token 5 occurs twice: its gradients add up before squaring
    >>> print(embedding_norm(ids, jnp.asarray([[[1.0], [2.0], [3.0]]])).estimate)
    [20.]
    """
    ids = _checked_ids("embedding_norm", ids, g)
    out = jax.ShapeDtypeStruct(g.shape[:1], accumulation_dtype(g.dtype))
    call = _native.call("bk_embedding_norm", embedding_norm_twin, [out, out], ids, g)
    return SquaredNorms(*call)


def embedding_norm_twin(ids: jax.Array, g: jax.Array) -> SquaredNorms:
    """The same in plain JAX: sort, segment sum, square."""
    dtype = accumulation_dtype(g.dtype)
    read = _without_unread(ids, g).astype(dtype)
    norms = sum_of_squares(jax.vmap(_add_equal_rows)(ids, read))
    lengths = row_lengths(read, dtype)
    slack = 2 * (ids.shape[1] + g.shape[2] + 4) * unit_roundoff(dtype) * jnp.sum(lengths, axis=1)
    return SquaredNorms(norms.estimate, jnp.square(jnp.sqrt(norms.upper) + slack))


def _checked_ids(operation: str, ids: jax.Array, g: jax.Array) -> jax.Array:
    """The ids as int32."""
    if g.ndim != 3 or ids.shape != g.shape[:2] or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(
            f"{operation} expects integer ids [B, T] and gradients [B, T, p]; got "
            f"{ids.dtype}{list(ids.shape)} and {list(g.shape)}."
        )
    if jnp.iinfo(ids.dtype).max <= jnp.iinfo(jnp.int32).max:
        return ids.astype(jnp.int32)
    inside = jnp.clip(ids, -1, jnp.iinfo(jnp.int32).max).astype(jnp.int32)
    return jnp.where(inside.astype(ids.dtype) == ids, inside, -1)


def _without_unread(ids: jax.Array, g: jax.Array) -> jax.Array:
    return jnp.where(ids[..., None] >= 0, g, 0)


def _add_equal_rows(ids: jax.Array, g: jax.Array) -> jax.Array:
    """`[T, p]` whose first rows are the sums of the gradients of the distinct ids."""
    order = jnp.argsort(ids)
    ordered = ids[order]
    is_new = jnp.concatenate([jnp.zeros(1, bool), ordered[1:] != ordered[:-1]])[: ids.shape[0]]
    return jax.ops.segment_sum(
        g[order], jnp.cumsum(is_new), num_segments=ids.shape[0], indices_are_sorted=True
    )


def clipped_scatter(
    ids: jax.Array,
    factor: jax.Array,
    g: jax.Array,
    rows: int,
    initial: jax.Array | None = None,
) -> jax.Array:
    """`out[ids[i, t]] += factor[i] * g[i, t]`, shape `[rows, p]`.

    Args:
      ids: `[B, T]`.
      factor: `[B]`. An example with the factor 0 is not read: a NaN inside it does no harm.
      g: `[B, T, p]`.
      rows: number of rows of the table.
      initial: what to add to, `[rows, p]`; zeros by default. Its memory is reused if it can be.

    >>> import jax.numpy as jnp
    >>> out = clipped_scatter(jnp.asarray([[1, 1]]), jnp.asarray([0.5]), jnp.ones((1, 2, 1)), 3)
    >>> print(out.ravel())
    [0. 1. 0.]
    """
    ids = _checked_ids("clipped_scatter", ids, g)
    if factor.shape != ids.shape[:1]:
        raise ValueError(f"clipped_scatter expects factor [{ids.shape[0]}], got {factor.shape}.")
    dtype = accumulation_dtype(g.dtype, *([] if initial is None else [initial.dtype]))
    g = g.astype(dtype) if dtype == jnp.float64 else g
    out = jax.ShapeDtypeStruct((rows, g.shape[2]), dtype)
    if initial is None:
        initial = jnp.zeros(out.shape, dtype)
    if initial.shape != out.shape:
        raise ValueError(f"clipped_scatter expects initial {out.shape}, got {initial.shape}.")
    operands = (ids, factor.astype(dtype), g, initial.astype(dtype))
    (sums,) = _native.call(
        "bk_clipped_scatter", clipped_scatter_twin, [out], *operands, aliases={3: 0}
    )
    return sums


def clipped_scatter_twin(
    ids: jax.Array, factor: jax.Array, g: jax.Array, initial: jax.Array
) -> tuple[jax.Array]:
    """The same in plain JAX."""
    scale = factor[:, None, None]
    scaled = jnp.where(scale != 0, _without_unread(ids, g).astype(initial.dtype) * scale, 0)
    flat_ids = jnp.where(ids >= 0, ids, initial.shape[0]).ravel()
    return (initial.at[flat_ids].add(scaled.reshape(flat_ids.size, g.shape[2]), mode="drop"),)


def tied_cross(left: jax.Array, right: jax.Array, ids: jax.Array, g: jax.Array) -> SquaredNorms:
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
    ids = _checked_ids("tied_cross", ids, g)
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
    shapes = {0: border.matrix(left), 1: border.matrix(right)}
    norms = _native.call("bk_tied_cross", tied_cross_twin, [out, out], *operands, shapes=shapes)
    return SquaredNorms(*norms)


def tied_cross_twin(
    left: jax.Array, right: jax.Array, ids: jax.Array, g: jax.Array
) -> SquaredNorms:
    """The same in plain JAX, with the matrix of inner products in memory."""
    dtype = accumulation_dtype(left.dtype, g.dtype)
    ids = jnp.where(ids < left.shape[2], ids, -1)
    picked = jnp.take_along_axis(left, jnp.maximum(ids, 0)[:, None, :], axis=2).astype(dtype)
    picked = jnp.where(ids[:, None, :] >= 0, picked, 0)
    grads = _without_unread(ids, g).astype(dtype)
    gram = jnp.einsum("btp,bsp->bts", right.astype(dtype), grads, preferred_element_type=dtype)
    rows = jax.lax.optimization_barrier(jnp.sum(picked * gram, axis=2))
    cross = jnp.sum(rows, axis=1)
    lengths = [row_lengths(x, dtype) for x in (right, grads)]
    spread = jnp.einsum("bts,bt,bs->b", jnp.abs(picked), *lengths)
    hidden = g.shape[2] * float(jnp.finfo(dtype).tiny) * jnp.sum(jnp.abs(picked) + 1, axis=(1, 2))
    chain = g.shape[2] + left.shape[1] + ids.shape[1] + 8
    slack = 2 * chain * unit_roundoff(dtype) * spread
    return SquaredNorms(cross, cross + slack + hidden)
