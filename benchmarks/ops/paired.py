"""Timing on a noisy machine: two candidates in one process, interleaved, compared pair by pair.

    a b b a | a b b a | ...

Neighbours see the same disturbance, so the median of their ratios is much steadier than the ratio of
medians. The interval is a bootstrap of that median. An A/A comparison says what "equal" looks like.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

Run = Callable[[], Any]
Clock = Callable[[], float]


class Comparison(NamedTuple):
    """Seconds of both (medians), and the ratio second / first with a 95 % interval."""

    first: float
    second: float
    ratio: float
    low: float
    high: float


def seconds(run: Run, repeats: int = 1, clock: Clock = time.perf_counter) -> float:
    """Time of one of `repeats` calls."""
    start = clock()
    for _ in range(repeats):
        out = run()
    jax.block_until_ready(out)
    return (clock() - start) / repeats


def compare(
    first: Run, second: Run, *, budget: float, rounds: int = 5, clock: Clock = time.perf_counter
) -> Comparison:
    """Interleaves both for about `budget` seconds, at least `rounds` rounds of two pairs.

    `clock=time.process_time` adds up the time of all threads: what the work costs, undisturbed by
    other processes, but blind to threads that wait for each other.
    """
    warm = max(min(seconds(run) for _ in range(2)) for run in (first, second))
    repeats = max(1, int(0.002 / warm))  # calls below 2 ms are timed in groups
    rounds = int(np.clip(budget / (4 * repeats * warm), rounds, 400))
    times = [_abba(first, second, repeats, clock) for _ in range(rounds)]
    times = np.array(times).reshape(-1, 2)
    ratios = times[:, 1] / times[:, 0]
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (2000, ratios.size)), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    middle = np.median(times, axis=0)
    return Comparison(*map(float, (*middle, np.median(ratios), low, high)))


def _abba(first: Run, second: Run, repeats: int, clock: Clock) -> list[tuple[float, float]]:
    order = (first, second, second, first)
    a, b, b_again, a_again = (seconds(run, repeats, clock) for run in order)
    return [(a, b), (a_again, b_again)]
