"""Microbatches: a large batch as a scan over small ones, with one gradient's worth of memory."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.sharding.partition import many_devices
from bk_jax.summing.clipped_sum import ClippedSum, Task, clipped_sum


def in_microbatches(
    task: Task, examples: Sequence[jax.Array], is_padding: jax.Array, size: int
) -> ClippedSum:
    """The same clipped sum, computed `size` examples at a time.

    A last microbatch that is not full is filled up with padding, which contributes nothing.
    """
    batch = is_padding.shape[0]
    count = -(-batch // size)
    fill = count * size - batch
    strided = many_devices() and not task.manual
    stacked = [_stack(_fill(x, fill), count, strided) for x in examples]
    filled = jnp.concatenate([is_padding, jnp.ones(fill, bool)]) if fill else is_padding
    padding = _stack(filled, count, strided)

    def step(sums: list[jax.Array], piece: tuple[list[jax.Array], jax.Array]) -> tuple:
        result = clipped_sum(task, *piece, start=sums)
        return result.sums, result._replace(sums=[])

    zeros = [
        task.manual.vary(jnp.zeros(x.shape, accumulation_dtype(x.dtype)), x) for x in task.arrays
    ]
    sums: list[jax.Array]
    rest: ClippedSum
    sums, rest = jax.lax.scan(step, zeros, (stacked, padding))
    flat: ClippedSum = jax.tree_util.tree_map(lambda x: _unstack(x, strided)[:batch], rest)
    return flat._replace(sums=sums)


def _fill(array: jax.Array, fill: int) -> jax.Array:
    """Repeats the first example `fill` times at the end: real data, so nothing odd happens in it."""
    if fill == 0:
        return array
    return jnp.concatenate([array, jnp.repeat(array[:1], fill, axis=0)])


def _stack(array: jax.Array, count: int, strided: bool) -> jax.Array:
    """`[count, size, ...]`; strided, every microbatch has examples of all devices that share the batch.

    A batch in order would be one device's microbatches first, and each would have to be handed round.
    """
    if not strided:
        return array.reshape(count, -1, *array.shape[1:])
    return jnp.swapaxes(array.reshape(-1, count, *array.shape[1:]), 0, 1)


def _unstack(array: jax.Array, strided: bool) -> jax.Array:
    array = jnp.swapaxes(array, 0, 1) if strided else array
    return array.reshape(-1, *array.shape[2:])
