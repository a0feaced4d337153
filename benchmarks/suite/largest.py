"""The largest batch that fits a memory limit, from a few compilations.

Memory is nearly a line in the batch, so the line through the last two batches says where to look next:
just below the place where it meets the limit, then just above. Where that does not end it, halving does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

LARGEST = 1 << 20  # above this nobody cares
FIRST = (1, 512)  # small batches alone say little: other things are at their peak then
MARGIN = 0.4  # of the tolerance, on both sides of a guess
PATIENCE = 8  # batches by lines, before halving


def largest_batch(
    memory: Callable[[int], int],
    limit: float,
    tolerance: float = 0.01,
    known: Mapping[int, int] | None = None,
) -> int:
    """The largest batch with `memory(batch) <= limit`, too small by at most `tolerance`; 0 if none.

    `known` is what a search for another limit has found; it starts this one.

    >>> largest_batch(lambda batch: 100 + 7 * batch, 1000, tolerance=0)
    128
    """
    known = dict(sorted((known or {}).items(), key=lambda item: -abs(item[1] - limit)))
    low = max((batch for batch, size in known.items() if size <= limit), default=0)
    above = [batch for batch, size in known.items() if size > limit and batch > low]
    high = min(above, default=LARGEST + 1)  # does not fit, as far as `low` does
    patience = len(known) + PATIENCE + len(FIRST)
    while high - low > max(1, tolerance * low):
        guess = _crossing(known, limit) if len(known) < patience else None
        batch = _next(known, guess, low, high, tolerance)
        known[batch] = memory(batch)
        low, high = (batch, high) if known[batch] <= limit else (low, batch)
    return low


def _next(
    known: Mapping[int, int], guess: float | None, low: int, high: int, tolerance: float
) -> int:
    """The batch to try, above `low` and below `high`."""
    if len(known) < len(FIRST) and low < FIRST[len(known)] < high:
        return FIRST[len(known)]
    if guess is None:
        return (low + high) // 2
    for wanted in (guess * (1 - MARGIN * tolerance), guess * (1 + MARGIN * tolerance) + 1):
        if low < int(wanted) < high:
            return int(wanted)
    return (low + high) // 2


def _crossing(known: Mapping[int, int], limit: float) -> float | None:
    """Where the line through the last two batches meets the limit; None where there is no such line."""
    (first, less), (second, more) = list(known.items())[-2:] if len(known) > 1 else [(0, 0), (0, 0)]
    if first == second or (more - less) * (second - first) <= 0:
        return None
    return min(second + (limit - more) * (second - first) / (more - less), LARGEST)
