"""Norms and sums of lookups: gradients `g[B, T, p]` that belong to rows `ids[B, T]` of a table."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, row_lengths, unit_roundoff
from bk_jax.ops.sums import sum_of_squares


def embedding_norm(ids: jax.Array, g: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of the table's gradients; rows with id -1 do not count.

    >>> import jax.numpy as jnp
    >>> ids = jnp.asarray([[5, 2, 5]])  # token 5 occurs twice: its gradients add up before squaring
    >>> print(embedding_norm(ids, jnp.asarray([[[1.0], [2.0], [3.0]]])).estimate)
    [20.]
    """
    dtype = accumulation_dtype(g.dtype)
    read = _without_unread(ids, g).astype(dtype)
    norms = sum_of_squares(jax.vmap(_add_equal_rows)(ids, read))
    lengths = row_lengths(read, dtype)
    slack = 2 * (ids.shape[1] + g.shape[2] + 4) * unit_roundoff(dtype) * jnp.sum(lengths, axis=1)
    return SquaredNorms(norms.estimate, jnp.square(jnp.sqrt(norms.upper) + slack))


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


def clipped_scatter(ids: jax.Array, factor: jax.Array, g: jax.Array, rows: int) -> jax.Array:
    """`out[ids[i, t]] += factor[i] * g[i, t]`, shape `[rows, p]`.

    >>> import jax.numpy as jnp
    >>> out = clipped_scatter(jnp.asarray([[1, 1]]), jnp.asarray([0.5]), jnp.ones((1, 2, 1)), 3)
    >>> print(out.ravel())
    [0. 1. 0.]
    """
    dtype = accumulation_dtype(g.dtype)
    scale = factor.astype(dtype)[:, None, None]
    scaled = jnp.where(scale != 0, _without_unread(ids, g).astype(dtype) * scale, 0)
    flat_ids = jnp.where(ids >= 0, ids, rows).ravel()
    out = jnp.zeros((rows, g.shape[2]), dtype)
    return out.at[flat_ids].add(scaled.reshape(-1, g.shape[2]), mode="drop")


def tied_cross(left: jax.Array, right: jax.Array, ids: jax.Array, g: jax.Array) -> SquaredNorms:
    """`<left^T right, E>` per example, where row `ids[s]` of `E` gets `g[s]`; and an upper bound.

    Args:
      left: `[B, T, rows]`.
      right: `[B, T, p]`.
      ids: `[B, S]`, -1 for none.
      g: `[B, S, p]`.
    """
    dtype = accumulation_dtype(left.dtype, g.dtype)
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
