"""In parts: one after the other, so that what a part needs in between exists once.

A part has `size` examples. The last one begins earlier where the batch is no multiple of that: some
examples are in two parts, with the same results, and each counts once in a sum.

XLA for GPUs makes what depends on little long before it is needed, even in the forward pass, and keeps
it: zeros that a loop begins with, patches of an image outside of a loop. So these are made to wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _compat
from bk_jax.sharding.varying import vary

Results = tuple[jax.Array, ...]


def waiting(x: jax.Array, other: jax.Array) -> jax.Array:
    """`x`, bit for bit; XLA does not know that it could be made before `other`.

    Two numbers that are each smaller than the other would make it something else.

    >>> print(waiting(jnp.asarray([1.0, jnp.nan]), jnp.asarray([2.0, 3.0])))
    [ 1. nan]
    """
    if other.size == 0:
        return x
    first, last = (jax.lax.index_in_dim(other.ravel(), i, keepdims=False) for i in (0, -1))
    never = (first < last) & (last < first)
    return jnp.where(never, jnp.ones((), x.dtype), x)


def each_in_parts(
    function: Callable[..., Results], operands: Sequence[jax.Array], size: int
) -> Results:
    """The results of all examples, `[B, ...]`, by a function of at most `size` examples at a time.

    >>> each_in_parts(lambda x: (2 * x,), [jnp.arange(5)], 2)
    (Array([0, 2, 4, 6, 8], dtype=int32),)
    """
    batch = operands[0].shape[0]
    if size >= batch:
        return function(*operands)
    count, size = _even(batch, size)

    def step(made: Results, number: jax.Array) -> tuple[Results, None]:
        start = jnp.minimum(number * size, batch - size)
        found = function(*_part(operands, start, size))
        put = jax.lax.dynamic_update_slice_in_dim
        return tuple(put(a, b, start, 0) for a, b in zip(made, found, strict=True)), None

    room = tuple(_zeros(one, operands) for one in jax.eval_shape(function, *operands))
    made, _ = jax.lax.scan(step, room, jnp.arange(count))
    return made


def sum_in_parts(
    function: Callable[..., jax.Array],
    factor: jax.Array,
    operands: Sequence[jax.Array],
    size: int,
) -> jax.Array:
    """The sum over all parts of `function(None or a sum to add to, factor, *operands)`.

    >>> def add(total, factor, x):
    ...     return jnp.sum(factor * x) + (0 if total is None else total)
    >>> print(sum_in_parts(add, jnp.ones(5), [jnp.arange(5.0)], 2))
    10.0
    """
    batch = operands[0].shape[0]
    if size >= batch:
        return function(None, factor, *operands)
    count, size = _even(batch, size)

    def step(total: jax.Array, number: jax.Array) -> tuple[jax.Array, None]:
        start = jnp.minimum(number * size, batch - size)
        own, *rest = _part([factor, *operands], start, size)
        is_new = start + jnp.arange(size) >= number * size
        return function(total, jnp.where(is_new, own, 0), *rest), None

    one = jax.eval_shape(functools.partial(function, None), factor, *operands)
    total, _ = jax.lax.scan(step, _zeros(one, [*operands, factor]), jnp.arange(count))
    return total


def _even(batch: int, size: int) -> tuple[int, int]:
    """How many parts, and their size: as few as there must be, of about one size."""
    count = -(-batch // size)
    return count, -(-batch // count)


def _part(operands: Sequence[jax.Array], start: jax.Array, size: int) -> list[jax.Array]:
    return [jax.lax.dynamic_slice_in_dim(x, start, size) for x in operands]


def _zeros(like: Any, operands: Sequence[jax.Array]) -> jax.Array:
    """What a loop begins with: it waits for the last operand.

    Inside a `shard_map` it differs along the axes of all that the loop reads.
    """
    axes = {axis for one in operands for axis in _compat.varying(one)}
    return vary(waiting(jnp.zeros(like.shape, like.dtype), operands[-1]), axes)
