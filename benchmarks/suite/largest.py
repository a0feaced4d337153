"""The largest batch that fits a memory limit, from a few compilations.

Memory is nearly a line in the batch, so the first guess comes from two small batches; a bracket around
it is halved until what is left is below a hundredth: bisection that starts close.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

LARGEST = 1 << 20  # above this nobody cares
FIRST = (1, 8)  # batches of the first guess


def largest_batch(memory: Callable[[int], int], limit: float, tolerance: float = 0.01) -> int:
    """The largest batch with `memory(batch) <= limit`, too small by at most `tolerance`; 0 if none.

    >>> largest_batch(lambda batch: 100 + 7 * batch, 1000, tolerance=0)
    128
    """
    memory = cache(memory)
    if memory(FIRST[0]) > limit:
        return 0
    guess = _guess(memory(FIRST[0]), memory(FIRST[1]), limit)
    low, high = _bracket(memory, limit, guess)
    while high - low > max(1, tolerance * low):
        middle = (low + high) // 2
        low, high = (middle, high) if memory(middle) <= limit else (low, middle)
    return low


def _guess(first: int, second: int, limit: float) -> int:
    """Where the line through two points meets the limit."""
    slope = max((second - first) / (FIRST[1] - FIRST[0]), 1.0)
    return max(1, min(LARGEST, FIRST[0] + int((limit - first) / slope)))


def _bracket(memory: Callable[[int], int], limit: float, guess: int) -> tuple[int, int]:
    """A batch that fits and one that does not, near the guess."""
    step = max(1, guess // 100)
    if memory(guess) <= limit:
        low = guess
        while low < LARGEST and memory(low + step) <= limit:
            low, step = low + step, 2 * step
        return low, low + step
    high = guess
    while high - step >= 1 and memory(high - step) > limit:
        high, step = high - step, 2 * step
    return max(1, high - step), high
