"""Clipped gemm: a dense layer's sum of clipped gradients, `sum_i c_i a_i^T g_i`, as one gemm."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._precision import tf32
from bk_jax.ops.numerics import accumulation_dtype, common_dtype
from bk_jax.repeated import repeated


@repeated(state=lambda: _native.registered("bk_clipped_gemm"))
def clipped_gemm(
    lhs: jax.Array, factor: jax.Array, rhs: jax.Array, initial: jax.Array | None = None
) -> jax.Array:
    """`out[n] = initial[n] + sum_i factor[i] * lhs[i, n]^T rhs[i, n]`, shape `[N, M, K]`.

    Args:
      lhs: `[B, N, T, M]`.
      factor: `[B]`. An example with factor 0 is not read: a NaN in it does no harm.
      rhs: `[B, N, T, K]`.
      initial: `[N, M, K]`, zeros by default. The sum is added to it in place if nothing else needs
        it, so accumulating over microbatches makes no copy.

    >>> import jax.numpy as jnp
    >>> a = jnp.asarray([[[[1.0, 2.0]]], [[[jnp.nan, 0.0]]]])
    >>> g = jnp.asarray([[[[3.0]]], [[[1.0]]]])
    >>> print(clipped_gemm(a, jnp.asarray([0.5, 0.0]), g)[0])
    [[1.5]
     [3. ]]
    """
    if lhs.ndim != 4 or rhs.ndim != 4 or lhs.shape[:3] != rhs.shape[:3]:
        raise ValueError(
            "clipped_gemm expects lhs [B, N, T, M] and rhs [B, N, T, K] with equal B, N and T; got "
            f"{lhs.shape} and {rhs.shape}."
        )
    if factor.shape != lhs.shape[:1]:
        raise ValueError(f"clipped_gemm expects factor [{lhs.shape[0]}], got {factor.shape}.")
    dtype = common_dtype(lhs.dtype, rhs.dtype)
    out_dtype = accumulation_dtype(dtype)
    shape = (lhs.shape[1], lhs.shape[3], rhs.shape[3])
    # One weight is a matrix for XLA: where a later call takes over the result in place (noise, a
    # scatter), a reshape of it would be a copy.
    one = shape[0] == 1
    out = jax.ShapeDtypeStruct(shape[1:] if one else shape, out_dtype)
    operands = (lhs.astype(dtype), factor.astype(out_dtype), rhs.astype(dtype))
    both = {0: operands[0], 2: operands[2]}
    shapes = _border.rows(both)
    precision = tf32(dtype, unless_named=False)
    if initial is None:
        (result,) = _native.call(
            "bk_clipped_gemm", clipped_gemm_twin, [out], *operands,
            shapes=shapes, padded=_border.padded(both, [out]), **precision,
        )  # fmt: skip
        return result.reshape(shape)
    if initial.shape != shape:
        raise ValueError(f"clipped_gemm expects initial {shape}, got {initial.shape}.")
    start = initial.astype(out_dtype).reshape(out.shape)
    (result,) = _native.call(
        # Not padded: the sum would be copied, and again.
        "bk_clipped_gemm_add", clipped_gemm_add_twin, [out], *operands, start,
        aliases={3: 0}, shapes=shapes, **precision,
    )  # fmt: skip
    return result.reshape(shape)


def clipped_gemm_twin(
    lhs: jax.Array, factor: jax.Array, rhs: jax.Array, *, tf32: int = 0
) -> tuple[jax.Array]:
    """The same in plain JAX: examples with factor 0 are replaced by zeros first.

    As in the custom call, the result is `[M, K]` when there is one weight. XLA's products follow JAX's
    own setting, which is where `tf32` comes from.
    """
    del tf32
    dtype = accumulation_dtype(lhs.dtype, rhs.dtype)
    scale = factor.reshape(-1, 1, 1, 1)
    lhs = jnp.where(scale != 0, lhs, 0).astype(dtype)
    rhs = jnp.where(scale != 0, rhs.astype(dtype) * scale, 0)
    total = jnp.einsum("bntm,bntk->nmk", lhs, rhs, preferred_element_type=dtype)
    return (total[0] if len(total) == 1 else total,)


def clipped_gemm_add_twin(
    lhs: jax.Array, factor: jax.Array, rhs: jax.Array, initial: jax.Array, *, tf32: int = 0
) -> tuple[jax.Array]:
    """The same, added to `initial`."""
    del tf32
    return (initial + clipped_gemm_twin(lhs, factor, rhs)[0],)
