"""Noise of many arrays in one call: what `gaussian` adds to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _native
from bk_jax.ops.chacha import check_key
from bk_jax.ops.gaussian import gaussian

# Arrays of so many elements are not worth a call of their own.
TOGETHER = 1 << 16


def gaussians(
    xs: Sequence[jax.Array], key: jax.Array, stddev: Any, *, streams: Sequence[int] | None = None
) -> list[jax.Array]:
    """`gaussian(x, key, stddev, stream=stream)` for every `x`, bit for bit.

    Args:
      xs: float32 arrays of any shapes. Their buffers become the results' where nothing else needs them.
      key: `uint32[8]`.
      stddev: a scalar.
      streams: one for each array; default: their numbers.

    >>> import jax.numpy as jnp
    >>> key = jnp.arange(8, dtype=jnp.uint32)
    >>> first, second = gaussians([jnp.zeros(3), jnp.zeros(2)], key, 1.0)
    >>> bool((second == gaussian(jnp.zeros(2), key, 1.0, stream=1)).all())
    True
    """
    check_key("gaussians", key)
    streams = tuple(range(len(xs)) if streams is None else streams)
    _check(xs, streams)
    if not xs:
        return []
    outs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs]
    scale = jnp.asarray(stddev, jnp.float32)
    return list(
        _native.call(
            "bk_gaussians", gaussians_twin, outs, key, scale, *xs,
            aliases={2 + i: i for i in range(len(xs))}, streams=streams,
        )
    )  # fmt: skip


def gaussians_twin(
    key: jax.Array, stddev: jax.Array, *xs: jax.Array, streams: tuple[int, ...]
) -> tuple[jax.Array, ...]:
    """One after the other, each a custom call where there is one."""
    each = zip(xs, streams, strict=True)
    return tuple(gaussian(x, key, stddev, stream=stream) for x, stream in each)


def _check(xs: Sequence[jax.Array], streams: Sequence[int]) -> None:
    if len(streams) != len(xs) or len(set(streams)) < len(xs):
        raise ValueError(
            f"gaussians expects one stream for each of {len(xs)} arrays, no two the same: arrays of one "
            f"stream would have the same noise; got {tuple(streams)}."
        )
    for x in xs:
        if x.dtype != jnp.float32:
            raise ValueError(
                f"gaussians expects float32 arrays; got {x.dtype} of shape {x.shape}. Use gaussian."
            )
