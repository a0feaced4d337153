"""Timing many candidates against one baseline, in one process, each between two runs of the baseline.

    p a p b p c p | p c p b p a p | ...

A candidate's ratio is its time over the mean of the two baselines beside it, so that a slow drift of
the machine cancels; the result is the median over turns with a bootstrap interval. Give the baseline as
a candidate too: how far its ratio is from 1 is what differences mean nothing below.

No JAX here: programs of other frameworks are timed in the same way. `wait` waits for what a run returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Run = Callable[[], Any]
GROUP = 0.002  # seconds: shorter calls are timed in groups
SHORT = 0.05  # seconds: shorter calls are warmed up until they get no faster; that is cheap


class Timing(NamedTuple):
    """Seconds (median), and the ratio to the baseline with a 95 % interval, of so many turns."""

    seconds: float
    ratio: float
    low: float
    high: float
    turns: int


class Timer:
    """Times one program; knows how many calls make a group."""

    def __init__(self, run: Run, wait: Callable[[Any], Any]) -> None:
        self.run, self.wait, self.repeats = run, wait, 1
        self.time()  # the first call may allocate
        self.warm = self.time()
        while self.warm < SHORT:
            self.repeats = max(1, int(GROUP / self.warm))
            before, self.warm = self.warm, min(self.time() for _ in range(3))
            if self.warm > 0.9 * before:
                break

    def time(self) -> float:
        start = time.perf_counter()
        for _ in range(self.repeats):
            out = self.run()
        self.wait(out)
        return (time.perf_counter() - start) / self.repeats


def summarise(pairs: list[tuple[float, float]]) -> Timing:
    """From (seconds of the candidate, seconds of the baseline beside it)."""
    times = np.array(pairs)
    ratios = times[:, 0] / times[:, 1]
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (2000, ratios.size)), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    numbers = (np.median(times[:, 0]), np.median(ratios), low, high)
    return Timing(*map(float, numbers), len(pairs))


def turns_within(budget: float, timer: Timer, baseline: Timer, least: int) -> int:
    """How often a candidate is measured in `budget` seconds; at least `least` times."""
    turn = timer.repeats * timer.warm + baseline.repeats * baseline.warm
    return int(np.clip(budget / turn, least, 100))


def compare_all(
    baseline: Run,
    candidates: Mapping[str, Run],
    *,
    budget: float,
    least: int = 4,
    wait: Callable[[Any], Any] = lambda out: out,
) -> dict[str, Timing]:
    """Times all candidates for about `budget` seconds together; slow ones have fewer turns.

    The baseline among the candidates is timed as the baseline is. With a timer of its own it had groups
    of another size, and a small program came out as 0.65 of itself.
    """
    base = Timer(baseline, wait)
    timers = {n: base if run is baseline else Timer(run, wait) for n, run in candidates.items()}
    share = budget / max(len(timers), 1)
    wanted = {name: turns_within(share, timer, base, least) for name, timer in timers.items()}
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in timers}
    for turn in range(max(wanted.values(), default=0)):
        names = [name for name in timers if turn < wanted[name]]
        before = base.time()
        for name in names if turn % 2 == 0 else reversed(names):
            seconds, after = timers[name].time(), base.time()
            pairs[name].append((seconds, (before + after) / 2))
            before = after
    return {name: summarise(found) for name, found in pairs.items()}
