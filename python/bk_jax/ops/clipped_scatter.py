"""Clipped scatter: the sum of clipped gradients of a lookup table."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops._lookup import checked_ids, without_unread
from bk_jax.ops.numerics import accumulation_dtype


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
      factor: `[B]`. An example with factor 0 is not read: a NaN in it does no harm.
      g: `[B, T, p]`.
      rows: number of rows of the table.
      initial: what to add to, `[rows, p]`; zeros by default. Its memory is reused if possible.

    >>> import jax.numpy as jnp
    >>> out = clipped_scatter(jnp.asarray([[1, 1]]), jnp.asarray([0.5]), jnp.ones((1, 2, 1)), 3)
    >>> print(out.ravel())
    [0. 1. 0.]
    """
    ids = checked_ids("clipped_scatter", ids, g)
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
    scaled = jnp.where(scale != 0, without_unread(ids, g).astype(initial.dtype) * scale, 0)
    flat_ids = jnp.where(ids >= 0, ids, initial.shape[0]).ravel()
    return (initial.at[flat_ids].add(scaled.reshape(flat_ids.size, g.shape[2]), mode="drop"),)
