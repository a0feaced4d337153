"""Rounding: dtypes of accumulation, and the constants of the certified bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class SquaredNorms(NamedTuple):
    """Squared norms per example: the best estimate, and a bound that is never below the truth."""

    estimate: jax.Array
    upper: jax.Array


class SignedBound(NamedTuple):
    """Numbers of either sign: the best estimate, and a bound that is never below the truth."""

    estimate: jax.Array
    upper: jax.Array


def accumulation_dtype(*dtypes: Any) -> Any:
    """float64 when any input is, otherwise float32."""
    return jnp.float64 if any(jnp.dtype(d) == jnp.float64 for d in dtypes) else jnp.float32


def common_dtype(*dtypes: Any) -> Any:
    """The one dtype that operands of a custom call share without losing digits."""
    return jnp.result_type(*dtypes)


def unit_roundoff(dtype: Any) -> float:
    """Half the distance from 1 to the next number."""
    return float(jnp.finfo(dtype).eps) / 2


def inflate(value: jax.Array, operations: int) -> jax.Array:
    """A bound on a sum of non-negative terms that went through at most `operations` roundings.

    Each rounding takes away at most a factor `1 - u`; `1 + 2 k u` covers `(1 - u) ** -k` and the
    rounding of this product for every `k u < 1/4`. It does not cover underflow: the caller must add
    terms that were flushed to 0.
    """
    dtype = value.dtype
    factor = 1.0 + 2.0 * (operations + 2) * unit_roundoff(dtype)
    return value * jnp.asarray(factor, dtype)


def sum_of_norms(norms: Sequence[SquaredNorms]) -> SquaredNorms:
    """A sum of squared norms; the bound covers its roundings."""
    if len(norms) == 1:
        return norms[0]
    dtype = accumulation_dtype(*(n.upper.dtype for n in norms))
    estimate, upper = (
        sum((part.astype(dtype) for part in parts[1:]), parts[0].astype(dtype))
        for parts in zip(*norms, strict=True)
    )
    return SquaredNorms(estimate, inflate(upper, len(norms)))


def row_lengths(rows: jax.Array, dtype: Any) -> jax.Array:
    """Euclidean lengths along the last axis, never below the truth by more than rounding.

    Squares of small numbers are flushed to 0; what that can hide is added back for nonzero rows.
    """
    squares = jnp.sum(jnp.square(rows.astype(dtype)), axis=-1)
    hidden = rows.shape[-1] * float(jnp.finfo(dtype).tiny)
    return jnp.where(jnp.any(rows != 0, axis=-1), jnp.sqrt(squares + hidden), 0)


def next_up(value: jax.Array) -> jax.Array:
    """The next larger number; infinities and NaN stay."""
    return jnp.nextafter(value, jnp.asarray(jnp.inf, value.dtype))


def next_down(value: jax.Array) -> jax.Array:
    """The next smaller number, not below 0."""
    return jnp.maximum(jnp.nextafter(value, jnp.asarray(0, value.dtype)), 0)
