"""Rounding a gradient to integers whose norm is checked exactly.

    integers = to_grid([gradient], scale, bound_squared)       sum of squares <= bound_squared, always

The check is made in integers, of the very integers that are returned, so it holds whatever rounding,
overflow or mistake came before. Tried in this order: to the nearest integers; towards 0, which makes no
number larger; nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

LARGEST = 1 << 24  # numbers stay below: exact in float32, and of two halves of 12 bits
GROUP = 256  # squares of halves, of at most 24 bits, that add up to at most 32 bits


class Rounded(NamedTuple):
    """Integers like the arrays, and whether they are the gradient's and not zeros."""

    integers: list[jax.Array]
    is_kept: jax.Array


def to_grid(arrays: Sequence[jax.Array], scale: Any, bound_squared: int) -> Rounded:
    """`scale` times the arrays, as int32 with a sum of squares of at most `bound_squared`.

    >>> print(to_grid([jnp.asarray([2.6, 3.4])], 1.0, 18).integers[0])  # 3, 3: exactly 18
    [3 3]
    >>> print(to_grid([jnp.asarray([2.6, 3.4])], 1.0, 17).integers[0])  # towards 0
    [2 3]
    >>> print(to_grid([jnp.asarray([2.6, 3.4])], 1.0, 12).integers[0])
    [0 0]
    """
    if not 0 <= bound_squared <= LARGEST**2:
        raise ValueError(f"bound_squared must be at most 2^48, got {bound_squared}.")
    scaled = [array * jnp.asarray(scale, array.dtype) for array in arrays]
    usable = [jnp.abs(array) < LARGEST - 1 for array in scaled]  # false for NaN
    all_usable = jnp.all(jnp.stack([jnp.all(each) for each in usable]))
    scaled = [jnp.where(ok, array, 0) for ok, array in zip(usable, scaled, strict=True)]
    nearest = [jnp.round(array).astype(jnp.int32) for array in scaled]
    smaller = [jnp.trunc(array).astype(jnp.int32) for array in scaled]
    is_near = fits(nearest, bound_squared)
    is_kept = all_usable & (is_near | fits(smaller, bound_squared))
    chosen = [jnp.where(is_near, *pair) for pair in zip(nearest, smaller, strict=True)]
    return Rounded([jnp.where(is_kept, each, 0) for each in chosen], is_kept)


def fits(arrays: Sequence[jax.Array], bound_squared: int) -> jax.Array:
    """Whether the sum of squares of int32 below 2^24 is at most `bound_squared`, of at most 2^48.

    With `q = 2^12 a + b` it is `2^24 sum a^2 + 2^13 sum a b + sum b^2`; each of these sums has 64 bits,
    and one that is above the bound by itself decides.
    """
    sizes = [jnp.abs(array).astype(jnp.uint32).reshape(-1) for array in arrays]
    upper, lower = [size >> 12 for size in sizes], [size & 0xFFF for size in sizes]
    squares = _total(upper, upper)
    mixed, small = _total(upper, lower), _total(lower, lower)
    alone = (squares[0] == 0) & (squares[1] <= 1 << 24)
    alone &= (mixed[0] < 8) & (small[0] < 1 << 17)
    total = _add((squares[1] >> 8, squares[1] << 24), small)
    total = _add(total, ((mixed[0] << 13) | (mixed[1] >> 19), mixed[1] << 13))
    high, low = jnp.uint32(bound_squared >> 32), jnp.uint32(bound_squared & 0xFFFFFFFF)
    return alone & ((total[0] < high) | ((total[0] == high) & (total[1] <= low)))


Wide = tuple[jax.Array, jax.Array]  # high and low half of 64 bits


def _total(x: Sequence[jax.Array], y: Sequence[jax.Array]) -> Wide:
    """The exact sum of products of numbers below 2^12, over all arrays."""
    zero = jnp.uint32(0)
    total = (zero, zero)
    for a, b in zip(x, y, strict=True):
        products = jnp.pad(a * b, (0, -a.size % GROUP)).reshape(-1, GROUP)
        sums = jnp.sum(products, axis=1, dtype=jnp.uint32)
        found = jax.lax.reduce((jnp.zeros_like(sums), sums), (zero, zero), _add, (0,))
        total = _add(total, tuple(found))
    return total


def _add(x: Any, y: Any) -> Wide:
    low = x[1] + y[1]
    return x[0] + y[0] + (low < x[1]).astype(jnp.uint32), low
