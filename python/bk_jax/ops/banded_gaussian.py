"""Noise that combines the draws of several keys: `x + sum_k stddev_k * z(key_k)`, in one pass.

The draws are a function of key, stream and position, so none is kept: who needs the noise of an earlier
step makes it again from that step's key. On CPUs and GPUs all draws of a value are made and added while
the array is read and written once, with the same bits. The twin makes one draw after the other by
`gaussian`, in the same order; where that is plain JAX too, XLA may contract products and sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops.chacha import KEY_WORDS
from bk_jax.ops.gaussian import check_part, gaussian
from bk_jax.ops.numerics import accumulation_dtype

NATIVE_DTYPES = ("float32", "float64")


def banded_gaussian(
    x: jax.Array,
    keys: jax.Array,
    stddevs: Any,
    *,
    stream: int = 0,
    start: Sequence[Any] | jax.Array | None = None,
    whole: Sequence[int] | None = None,
) -> jax.Array:
    """`x + (stddevs[0] * z(keys[0]) + stddevs[1] * z(keys[1]) + ...)`, `z` those of `gaussian`.

    Args:
      x: any shape; see `gaussian`.
      keys: `uint32[terms, 8]`.
      stddevs: `[terms]`, of any sign. A draw with 0 is not made; with zeros alone the result is `x`.
      stream: number of the parameter, below 2^32.
      start: where `x` lies in an array of shape `whole`; see `gaussian`.
      whole: shape of that array.

    >>> import jax.numpy as jnp
    >>> keys = jnp.arange(16, dtype=jnp.uint32).reshape(2, 8)
    >>> both = banded_gaussian(jnp.zeros(3), keys, [1.0, -0.5])
    >>> one = gaussian(gaussian(jnp.zeros(3), keys[0], 1.0), keys[1], -0.5)
    >>> bool((both == one).all())
    True
    """
    keys, stddevs = jnp.asarray(keys), jnp.asarray(stddevs)
    _check_terms(keys, stddevs)
    start, whole = check_part("banded_gaussian", x.shape, start, whole)
    if x.dtype.name not in NATIVE_DTYPES:
        options: Any = {"stream": stream, "start": start, "whole": whole}
        return banded_gaussian(x.astype(jnp.float32), keys, stddevs, **options).astype(x.dtype)
    operands = (x, keys, stddevs.astype(accumulation_dtype(x.dtype)), start)
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (result,) = _native.call(
        "bk_banded_gaussian", banded_gaussian_twin, [out], *operands,
        aliases={0: 0}, stream=stream, whole=tuple(whole),
    )  # fmt: skip
    return result


def banded_gaussian_twin(
    x: jax.Array,
    keys: jax.Array,
    stddevs: jax.Array,
    start: jax.Array,
    *,
    stream: int,
    whole: tuple[int, ...],
) -> tuple[jax.Array]:
    """The same in plain JAX, but for each draw, which is a custom call where there is one."""

    def draw(noise: jax.Array, term: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        key, stddev = term
        return gaussian(noise, key, stddev, stream=stream, start=start, whole=whole), None

    noise, _ = jax.lax.scan(draw, jnp.zeros_like(x), (keys, stddevs))
    return (jnp.where(jnp.any(stddevs != 0), x + noise, x),)


def _check_terms(keys: jax.Array, stddevs: jax.Array) -> None:
    terms = stddevs.shape
    if len(terms) != 1 or keys.shape != (*terms, KEY_WORDS):
        raise ValueError(
            f"banded_gaussian expects keys uint32[terms, {KEY_WORDS}] and stddevs [terms]; got "
            f"{list(keys.shape)} and {list(terms)}."
        )
    if keys.dtype != jnp.uint32:
        raise ValueError(f"banded_gaussian expects keys of uint32, got {keys.dtype}.")
