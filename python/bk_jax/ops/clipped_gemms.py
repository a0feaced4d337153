"""Clipped gemms: the sums of clipped gradients of many dense layers of one shape, in one call on a GPU.

On a CPU this is a call of `clipped_gemm` for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from bk_jax import _native
from bk_jax.ops import _border
from bk_jax.ops._precision import tf32
from bk_jax.ops.clipped_gemm import clipped_gemm
from bk_jax.ops.ghost_norms import MOST, Pair, check_alike, even_parts
from bk_jax.ops.numerics import accumulation_dtype, common_dtype


def clipped_gemms(factor: jax.Array, layers: Sequence[Pair]) -> tuple[jax.Array, ...]:
    """`sum_i factor[i] * lhs[i, n]^T rhs[i, n]`, shape `[N, M, K]`, of each layer.

    Args:
      factor: `[B]`. An example with factor 0 is not read.
      layers: operands `[B, N, T, M]` and `[B, N, T, K]` of each; all alike.

    >>> import jax.numpy as jnp
    >>> a, g = jnp.asarray([[[[1.0, 2.0]]]]), jnp.asarray([[[[3.0]]]])
    >>> for total in clipped_gemms(jnp.asarray([0.5]), [(a, g), (2 * a, g)]):
    ...     print(total[0].ravel())
    [1.5 3. ]
    [3. 6.]
    """
    check_alike("clipped_gemms", layers)
    if factor.shape != layers[0][0].shape[:1]:
        raise ValueError(
            f"clipped_gemms expects factor [{layers[0][0].shape[0]}], got {factor.shape}."
        )
    parts = even_parts(layers, MOST)
    return tuple(total for part in parts for total in _of_call(factor, part))


def _of_call(factor: jax.Array, layers: Sequence[Pair]) -> Sequence[jax.Array]:
    first, last = layers[0]
    if len(layers) == 1:
        return (clipped_gemm(first, factor, last),)
    dtype = common_dtype(first.dtype, last.dtype)
    operands = [x.astype(dtype) for layer in layers for x in layer]
    shape = (first.shape[1], first.shape[3], last.shape[3])
    # One weight is a matrix, as in `clipped_gemm`.
    out_shape = shape[1:] if shape[0] == 1 else shape
    outs = [jax.ShapeDtypeStruct(out_shape, accumulation_dtype(dtype))] * len(layers)
    numbered = dict(enumerate(operands, start=1))
    totals = _native.call(
        "bk_clipped_gemms", clipped_gemms_twin, outs, factor.astype(outs[0].dtype), *operands,
        shapes=_border.rows(numbered), padded=_border.padded(numbered, outs),
        **tf32(dtype, unless_named=False),
    )  # fmt: skip
    return [total.reshape(shape) for total in totals]


def clipped_gemms_twin(
    factor: jax.Array, *operands: jax.Array, tf32: int = 0
) -> tuple[jax.Array, ...]:
    """The same as a call for each layer: `lhs_1, rhs_1, lhs_2, rhs_2, ...`."""
    del tf32  # follows JAX's own setting, as there
    pairs = zip(operands[::2], operands[1::2], strict=True)
    totals = (clipped_gemm(lhs, factor, rhs) for lhs, rhs in pairs)
    return tuple(total[0] if len(total) == 1 else total for total in totals)
