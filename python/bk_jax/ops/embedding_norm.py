"""Embedding norm: squared norms of the gradients of a lookup table."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops._lookup import checked_ids, without_unread
from bk_jax.ops.numerics import SquaredNorms, accumulation_dtype, row_lengths, unit_roundoff
from bk_jax.ops.sum_of_squares import sum_of_squares
from bk_jax.repeated import repeated


@repeated(state=lambda: _native.registered("bk_embedding_norm"))
def embedding_norm(ids: jax.Array, g: jax.Array) -> SquaredNorms:
    """Squared norms `[B]` of the table's gradients; rows with a negative id do not count.

    >>> import jax.numpy as jnp
    >>> ids = jnp.asarray([[5, 2, 5]])  # token 5 occurs twice: its gradients add up before squaring
    >>> print(embedding_norm(ids, jnp.asarray([[[1.0], [2.0], [3.0]]])).estimate)
    [20.]
    """
    ids = checked_ids("embedding_norm", ids, g)
    out = jax.ShapeDtypeStruct(g.shape[:1], accumulation_dtype(g.dtype))
    call = _native.call("bk_embedding_norm", embedding_norm_twin, [out, out], ids, g)
    return SquaredNorms(*call)


def embedding_norm_twin(ids: jax.Array, g: jax.Array) -> SquaredNorms:
    """The same in plain JAX: sort, segment sum, square."""
    dtype = accumulation_dtype(g.dtype)
    read = without_unread(ids, g).astype(dtype)
    norms = sum_of_squares(jax.vmap(_add_equal_rows)(ids, read))
    lengths = row_lengths(read, dtype)
    slack = 2 * (ids.shape[1] + g.shape[2] + 4) * unit_roundoff(dtype) * jnp.sum(lengths, axis=1)
    return SquaredNorms(norms.estimate, jnp.square(jnp.sqrt(norms.upper) + slack))


def _add_equal_rows(ids: jax.Array, g: jax.Array) -> jax.Array:
    """`[T, p]` whose first rows are the sums of the gradients of the distinct ids."""
    order = jnp.argsort(ids)
    ordered = ids[order]
    is_new = jnp.concatenate([jnp.zeros(1, bool), ordered[1:] != ordered[:-1]])[: ids.shape[0]]
    return jax.ops.segment_sum(
        g[order], jnp.cumsum(is_new), num_segments=ids.shape[0], indices_are_sorted=True
    )
