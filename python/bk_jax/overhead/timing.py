"""Timing on a noisy machine: candidates in one process, interleaved, compared pair by pair.

    a b b a  a c c a | a b b a  a c c a | ...

Neighbours see the same disturbance, so the median of their ratios is much steadier than the ratio of
medians. The interval is a bootstrap of that median.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

Run = Callable[[], Any]
Clock = Callable[[], float]
SHORTEST = 0.002  # seconds: shorter calls are timed in groups
MOST_ROUNDS = 400


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of a step (median), and its ratio to the plain step with a 95 % interval."""

    seconds: float
    ratio: float
    low: float
    high: float
    pairs: int


def interleave(
    first: Run,
    others: Mapping[str, Run],
    *,
    budget: float,
    rounds: int,
    clock: Clock = time.perf_counter,
) -> dict[str, Timing]:
    """Compares each of `others` with `first` for about `budget` seconds, at least `rounds` rounds."""
    warm = {name: _warm(run, clock) for name, run in {"": first, **others}.items()}
    repeats = {name: max(1, int(SHORTEST / min(warm[""], warm[name]))) for name in others}
    once = sum(2 * repeats[name] * (warm[""] + warm[name]) for name in others)
    rounds = int(np.clip(budget / once, rounds, max(rounds, MOST_ROUNDS)))
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in others}
    for _ in range(rounds):
        for name, run in others.items():
            pairs[name] += _abba(first, run, repeats[name], clock)
    return {name: summarize(np.array(found)) for name, found in pairs.items()}


def _warm(run: Run, clock: Clock) -> float:
    """The shorter of two calls: the first one may allocate."""
    return max(min(_seconds(run, 1, clock) for _ in range(2)), 1e-9)


def _seconds(run: Run, repeats: int, clock: Clock) -> float:
    start = clock()
    for _ in range(repeats):
        out = run()
    jax.block_until_ready(out)
    return (clock() - start) / repeats


def _abba(first: Run, second: Run, repeats: int, clock: Clock) -> list[tuple[float, float]]:
    order = (first, second, second, first)
    a, b, b_again, a_again = (_seconds(run, repeats, clock) for run in order)
    return [(a, b), (a_again, b_again)]


def summarize(pairs: np.ndarray) -> Timing:
    """From seconds `[pairs, 2]` of the first and the second.

    >>> summarize(np.array([[1.0, 2.0], [2.0, 4.0], [1.0, 8.0]]))
    Timing(seconds=4.0, ratio=2.0, low=2.0, high=8.0, pairs=3)
    """
    ratios = pairs[:, 1] / pairs[:, 0]
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (2000, ratios.size)), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    seconds, ratio = np.median(pairs[:, 1]), np.median(ratios)
    return Timing(float(seconds), float(ratio), float(low), float(high), len(pairs))
