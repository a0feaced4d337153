"""Checks that the lookup operations share: gradients `g[B, T, p]` of rows `ids[B, T]` of a table.

An id outside the table (the rules write -1) belongs to no row and is not read.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def checked_ids(operation: str, ids: jax.Array, g: jax.Array) -> jax.Array:
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


def without_unread(ids: jax.Array, g: jax.Array) -> jax.Array:
    """Gradients, with zeros where there is no id."""
    return jnp.where(ids[..., None] >= 0, g, 0)
