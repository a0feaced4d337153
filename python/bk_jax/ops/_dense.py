"""Operands of a dense layer: `[B, N, T, M]` and `[B, N, T, K]`, N weights with T positions each."""

from __future__ import annotations

import jax

from bk_jax.ops.numerics import common_dtype


def dense_operands(name: str, lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both in the one dtype that loses no digits, for the operation `name`."""
    if lhs.ndim != 4 or rhs.ndim != 4 or lhs.shape[:3] != rhs.shape[:3]:
        raise ValueError(
            f"{name} expects [B, N, T, M] and [B, N, T, K] with equal B, N and T; got "
            f"{lhs.shape} and {rhs.shape}."
        )
    dtype = common_dtype(lhs.dtype, rhs.dtype)
    return lhs.astype(dtype), rhs.astype(dtype)
