"""Types inside `shard_map`: the mesh axes along which a value differs from device to device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jax

from bk_jax import _compat


def vary(x: jax.Array, axes: Iterable[str]) -> jax.Array:
    """The same value with a type that differs along these axes."""
    missing = tuple(sorted(set(axes) - _compat.varying(x)))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def vary_together(operands: Sequence[jax.Array]) -> list[jax.Array]:
    """All operands of a custom call differ along the same axes."""
    axes = {axis for x in operands for axis in _compat.varying(x)}
    return [vary(x, axes) for x in operands] if axes else list(operands)
