"""Discrete Gaussian noise: integers `n` with chances proportional to `exp(-n^2 / (2 * 4^bits))`.

The standard deviation is `2^bits`. A value is a function of key, stream and position alone, made by
integer arithmetic and comparisons of random words, so it is the same on every machine and for any way
to cut an array. Rejection sampling, one ChaCha block of 16 words for each attempt (after Karney, 2016):

| words | decide |
|---|---|
| 0 to 3 | the piece `k`, by `_gaussian_pieces` |
| 4 | the sign, and the place `j` in the piece: `n = k 2^a + j`, `a = bits - 8` |
| 5, 6 | whether `U1 < g`, where `g = j (2n - j) / 2^(2 bits + 1)` |
| 7, 8 | the same for `U2` |
| 9 to 11, 12 to 14 | `V1` and `V2`: whether `V2 < V1` |

`n` is accepted with chance `exp(-g)`, which is what the weight of `n` lacks from that of its piece. No
exponential is computed: the length `L` of the longest run with `U_i < g` for `i <= L` and
`V1 > V2 > ... > V_L` is at least `i` with chance `g^i / i!`, so it is even with chance `exp(-g)` (von
Neumann). Runs of 2 and more, one in a million, take a further block for each step. A zero with the sign
minus is rejected, so that 0 does not count twice.

What is not exact: pieces beyond 16 deviations (2^-180), chances of pieces in multiples of 2^-128, ties
of `V` in 96 bits. Together the distribution of a value is within 2^-100 of the discrete Gaussian, in
total variation; `docs/numerics.md` adds that up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax.ops._gaussian_pieces import PIECES, survival_words
from bk_jax.ops.chacha import GRID, chacha_blocks, check_key
from bk_jax.ops.gaussian import check_part, multiply_wide

LEAST_BITS, MOST_BITS = 8, 24
CHUNK = 1 << 15  # values at a time: their blocks take 2 MB
RETRIED = 256  # values at a time that are tried again; one in 650 is rejected
STEP_SHIFT, TRY_SHIFT = 8, 16  # the domain word also holds the step of a long run, and the attempt


def discrete_gaussian(
    x: jax.Array,
    key: jax.Array,
    *,
    bits: int,
    stream: int = 0,
    start: Sequence[Any] | jax.Array | None = None,
    whole: Sequence[int] | None = None,
) -> jax.Array:
    """`x + n` modulo 2^32, with independent discrete Gaussian `n` of standard deviation `2^bits`.

    Args:
      x: int32, any shape.
      key: `uint32[8]`.
      bits: from 8 to 24.
      stream: number of the parameter, below 2^32; streams are independent.
      start: where `x` lies in an array of shape `whole`; see `gaussian`.
      whole: shape of that array.

    >>> import jax.numpy as jnp
    >>> key = jnp.arange(8, dtype=jnp.uint32)
    >>> noise = discrete_gaussian(jnp.zeros((2, 3), jnp.int32), key, bits=8)
    >>> row = discrete_gaussian(jnp.zeros((1, 3), jnp.int32), key, bits=8, start=[1, 0], whole=[2, 3])
    >>> bool((row[0] == noise[1]).all())
    True
    """
    check_key("discrete_gaussian", key)
    start, whole = check_part("discrete_gaussian", x.shape, start, whole)
    if x.dtype != jnp.int32 or not LEAST_BITS <= bits <= MOST_BITS:
        raise ValueError(
            f"discrete_gaussian expects int32 and {LEAST_BITS} <= bits <= {MOST_BITS}, got {x.dtype} "
            f"and bits={bits}."
        )
    place = Place(*positions(x.shape, start, tuple(whole)), _full(stream, x.shape))
    return x + _noise(key, place, bits)


def discrete_gaussians(
    arrays: Sequence[jax.Array], key: jax.Array, *, bits: int
) -> list[jax.Array]:
    """The same for many arrays, in one program; array number `i` draws from stream `i`.

    >>> import jax.numpy as jnp
    >>> key, zeros = jnp.arange(8, dtype=jnp.uint32), jnp.zeros(3, jnp.int32)
    >>> noise = discrete_gaussians([zeros, zeros], key, bits=8)
    >>> bool((noise[1] == discrete_gaussian(zeros, key, bits=8, stream=1)).all())
    True
    """
    check_key("discrete_gaussians", key)
    if not arrays:
        return []
    wholes = [
        Place(*positions(x.shape, jnp.zeros(x.ndim, jnp.int32), x.shape), _full(i, x.shape))
        for i, x in enumerate(arrays)
    ]
    flat = [jax.tree_util.tree_map(jnp.ravel, place) for place in wholes]
    noise = _noise(key, Place(*map(jnp.concatenate, zip(*flat, strict=True))), bits)
    ends = np.cumsum([x.size for x in arrays])[:-1]
    parts = jnp.split(noise, ends)
    return [x + part.reshape(x.shape) for x, part in zip(arrays, parts, strict=True)]


class Place(NamedTuple):
    """Where values stand: the position in 64 bits, and the stream."""

    high: jax.Array
    low: jax.Array
    stream: jax.Array


def _full(stream: int, shape: Sequence[int]) -> jax.Array:
    return jnp.full(tuple(shape), stream, jnp.uint32)


@functools.partial(jax.jit, static_argnums=2)
def _noise(key: jax.Array, place: Place, bits: int) -> jax.Array:
    """The noise at each place, a chunk at a time."""
    shape = place.low.shape
    size = math.prod(shape)
    draw = functools.partial(_values, key, bits)
    if size == 0:
        return jnp.zeros(shape, jnp.int32)
    flat = jax.tree_util.tree_map(jnp.ravel, place)
    if size <= CHUNK:
        return draw(flat).reshape(shape)
    cut = [jnp.pad(part, (0, -size % CHUNK)).reshape(-1, CHUNK) for part in flat]
    return jax.lax.map(draw, Place(*cut)).reshape(-1)[:size].reshape(shape)


def positions(
    size: Sequence[int], start: jax.Array, whole: Sequence[int]
) -> tuple[jax.Array, jax.Array]:
    """Where each element of a part lies in the whole array, as high and low halves of 64 bits."""
    high = low = jnp.zeros(tuple(size), jnp.uint32)
    for axis in range(len(size)):
        stride = math.prod(whole[axis + 1 :])
        at = jax.lax.broadcasted_iota(jnp.uint32, tuple(size), axis) + start[axis].astype(
            jnp.uint32
        )
        product_high, product_low = multiply_wide(at, stride & 0xFFFFFFFF)
        low = low + product_low
        carry = (low < product_low).astype(jnp.uint32)
        high = high + product_high + at * jnp.uint32(stride >> 32) + carry
    return high, low


class _Tried(NamedTuple):
    """What came of an attempt at each value."""

    value: jax.Array
    accepted: jax.Array


def _values(key: jax.Array, bits: int, place: Place) -> jax.Array:
    """The noise at these places: attempts at all, then at those that were rejected."""
    attempt = functools.partial(_attempt, key, bits)
    number = jnp.zeros_like(place.low)
    size, few = number.size, min(RETRIED, number.size)

    def again(state: tuple[_Tried, jax.Array]) -> tuple[_Tried, jax.Array]:
        so_far, tries = state
        (chosen,) = jnp.nonzero(~so_far.accepted, size=few, fill_value=size)
        *there, numbers = (
            each.at[chosen].get(mode="fill", fill_value=0) for each in (*place, tries)
        )
        numbers = numbers + 1
        found = attempt(Place(*there), numbers)
        put = [old.at[chosen].set(new, mode="drop") for old, new in zip(so_far, found, strict=True)]
        return _Tried(*put), tries.at[chosen].set(numbers, mode="drop")

    state = (attempt(place, number), number)
    (done, _) = jax.lax.while_loop(lambda state: ~jnp.all(state[0].accepted), again, state)
    return done.value


def _attempt(key: jax.Array, bits: int, place: Place, number: jax.Array) -> _Tried:
    """Attempt `number` at the values of these places."""

    def block(step: int | jax.Array) -> jax.Array:
        tag = GRID | (jnp.asarray(step, jnp.uint32) << STEP_SHIFT) | (number << TRY_SHIFT)
        return chacha_blocks(key, place.low, place.high, stream=place.stream, domain=tag)

    words = block(0)
    inside = bits - LEAST_BITS
    piece = _piece(words[:4])
    beyond = (words[4] >> 1) & jnp.uint32((1 << inside) - 1)
    size = (piece << inside) | beyond
    short = _product(beyond, 2 * size - beyond)
    is_negative = words[4] & 1 == 1
    length = _run_length(words, block, short, bits)
    accepted = (length % 2 == 0) & ~(is_negative & (size == 0))
    value = size.astype(jnp.int32)
    return _Tried(jnp.where(is_negative, -value, value), accepted)


def _piece(words: jax.Array) -> jax.Array:
    """How many of the chances are above the number that four words are; a tie asks the later words."""
    table = jnp.asarray(survival_words())[:, ::-1]  # ascending
    above = table.shape[1] - jnp.searchsorted(table[0], words[0], side="right")
    equal = table[0, jnp.clip(table.shape[1] - 1 - above, 0)] == words[0]
    exact = functools.partial(_count_above, table)
    return jax.lax.cond(jnp.any(equal), exact, lambda _: above.astype(jnp.uint32), words)


def _count_above(table: jax.Array, words: jax.Array) -> jax.Array:
    """Binary search for the first chance that is above, by all four words."""

    def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, last = ends  # the answer is in first, ..., last
        middle = (first + last) // 2
        above = _less(words, table[:, jnp.minimum(middle, PIECES - 2)])
        going = first < last
        return jnp.where(going & ~above, middle + 1, first), jnp.where(going & above, middle, last)

    begin = jnp.zeros(words.shape[1:], jnp.uint32)
    first, _ = jax.lax.fori_loop(0, 13, halve, (begin, begin + (PIECES - 1)))
    return jnp.uint32(PIECES - 1) - first


def _run_length(words: jax.Array, block: Any, short: tuple[jax.Array, jax.Array], bits: int) -> Any:
    """The length of the run of each value; those of 2 and more are followed block by block."""
    one = _below(words[5:7], short, bits)
    two = one & _below(words[7:9], short, bits) & _less(words[12:15], words[9:12])
    length = one.astype(jnp.uint32) + two

    def longer(state: tuple[Any, ...]) -> tuple[Any, ...]:
        step, going, length, last = state
        more = block(step)
        going = going & _below(more[:2], short, bits) & _less(more[2:5], last)
        return step + 1, going, length + going, more[2:5]

    state = (jnp.uint32(1), two, length, words[12:15])
    return jax.lax.while_loop(lambda state: jnp.any(state[1]), longer, state)[2]


def _below(words: jax.Array, numerator: tuple[jax.Array, jax.Array], bits: int) -> jax.Array:
    """Whether `U < numerator / 2^(2 bits + 1)`, by as many bits of two words as that has."""
    width = 2 * bits + 1
    upper = words[0] & jnp.uint32((1 << max(width - 32, 0)) - 1)
    lower = words[1] & jnp.uint32((1 << min(width, 32)) - 1)
    return _less(jnp.stack([upper, lower]), jnp.stack(numerator))


def _product(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """High and low half of the 64-bit product."""
    x0, x1, y0, y1 = x & 0xFFFF, x >> 16, y & 0xFFFF, y >> 16
    middle = (x0 * y0 >> 16) + (x0 * y1 & 0xFFFF) + (x1 * y0 & 0xFFFF)
    high = x1 * y1 + (x0 * y1 >> 16) + (x1 * y0 >> 16) + (middle >> 16)
    return high, (middle << 16) | (x0 * y0 & 0xFFFF)


def _less(x: jax.Array, y: jax.Array) -> jax.Array:
    """Whether numbers of several words, the most significant first, are less than others."""
    less = jnp.zeros(jnp.broadcast_shapes(x.shape, y.shape)[1:], jnp.bool_)
    for a, b in zip(x[::-1], y[::-1], strict=True):
        less = (a < b) | ((a == b) & less)
    return less
