"""Which piece of a discrete Gaussian a value is in: exact chances, as 128-bit integers.

Values of either sign, `n = k 2^(m - 8) + j`, lie in pieces `k` of 256 to a standard deviation. A piece
is proposed with the weight of its first value, `exp(-(k / 256)^2 / 2)`, which does not depend on `m`.
`survival()` has the chance of piece `k` or a later one, rounded down to a multiple of 2^-128.
"""

from __future__ import annotations

import decimal
import functools
from typing import Any

import numpy as np

PER_DEVIATION = 256  # pieces in a standard deviation: larger ones mean more rejected values
DEVIATIONS = 16  # the farthest value: beyond lies less than 2^-180 of the Gaussian
PIECES = PER_DEVIATION * DEVIATIONS
WORDS = 4  # of 32 bits, for a chance


@functools.cache
def survival() -> tuple[int, ...]:
    """`floor(2^128 P(K >= k))` for `k` in 1, 2, ..., PIECES - 1."""
    context = decimal.Context(prec=80)
    unit = context.divide(decimal.Decimal(-1), decimal.Decimal(2 * PER_DEVIATION**2))
    weights = [context.exp(context.multiply(unit, decimal.Decimal(k * k))) for k in range(PIECES)]
    total = functools.reduce(context.add, weights)
    scale, left, found = context.divide(decimal.Decimal(1 << 128), total), decimal.Decimal(0), []
    for weight in reversed(weights[1:]):
        left = context.add(left, weight)
        found.append(int(context.multiply(left, scale)))
    return tuple(reversed(found))


@functools.cache
def survival_words() -> np.ndarray[Any, Any]:
    """The same as words, `uint32[4, PIECES - 1]`, the most significant first."""
    mask = 0xFFFFFFFF
    rows = [[(chance >> shift) & mask for chance in survival()] for shift in (96, 64, 32, 0)]
    return np.asarray(rows, np.uint32)
