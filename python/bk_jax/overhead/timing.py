"""Timing on a noisy machine: the one way `bk_jax.tax` and all benchmarks measure.

Candidates run interleaved in one process, and a ratio is the median over neighbours in time. These
see the same disturbance, so it is much steadier than the ratio of medians. The interval is a
bootstrap of that median. Pass the baseline as a candidate too: differences as large as its own mean
nothing.

| function | order | for |
|---|---|---|
| `interleave` | `a b b a  a c c a  a b b a  a c c a` | few candidates: pairs in both orders |
| `compare_all` | `a b a c a  a c a b a` | many: each between two baseline runs, which serve two |

No JAX here: programs of other frameworks are timed in the same way. `wait` waits for what a run
returns.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Run = Callable[[], Any]
Clock = Callable[[], float]
Wait = Callable[[Any], Any]
SHORTEST = 0.002  # seconds: shorter calls are timed in groups
SHORT = 0.05  # seconds: shorter calls are warmed up until they get no faster, which is cheap
MOST_ROUNDS = 400
MOST_TURNS = 100


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of a candidate (median), and its ratio to the baseline with a 95 % interval.

    >>> timing = Timing(seconds=0.11, ratio=1.1, low=1.08, high=1.12, pairs=20)
    >>> timing.low <= timing.ratio <= timing.high
    True
    """

    seconds: float
    ratio: float
    low: float
    high: float
    pairs: int
    baseline: float = dataclasses.field(default=math.nan, compare=False, repr=False)  # seconds


def wait_for_jax(out: Any) -> Any:
    """Waits until arrays are ready."""
    import jax

    return jax.block_until_ready(out)


def interleave(
    first: Run,
    others: Mapping[str, Run],
    *,
    budget: float,
    rounds: int = 5,
    clock: Clock = time.perf_counter,
    wait: Wait = wait_for_jax,
) -> dict[str, Timing]:
    """Compares each of `others` with `first` for about `budget` seconds, at least `rounds` rounds.

    `clock=time.process_time` adds up the time of all threads: what the work costs, undisturbed by
    other processes, but blind to threads that wait for each other.
    """

    def seconds(run: Run, repeats: int) -> float:
        return _seconds(run, repeats, clock, wait)

    def warm(run: Run) -> float:
        return max(min(seconds(run, 1) for _ in range(2)), 1e-9)  # the first call may allocate

    baseline, warmed = warm(first), {name: warm(run) for name, run in others.items()}
    repeats = {n: max(1, int(SHORTEST / min(baseline, own))) for n, own in warmed.items()}
    once = sum(2 * repeats[n] * (baseline + own) for n, own in warmed.items())
    rounds = int(np.clip(budget / once, rounds, max(rounds, MOST_ROUNDS)))
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in others}
    for _ in range(rounds):
        for name, run in others.items():
            a, b, b_again, a_again = (seconds(r, repeats[name]) for r in (first, run, run, first))
            pairs[name] += [(a, b), (a_again, b_again)]
    return {name: summarize(found) for name, found in pairs.items()}


def compare(first: Run, second: Run, *, budget: float, **options: Any) -> Timing:
    """The second against the first, with the options of `interleave`."""
    return interleave(first, {"second": second}, budget=budget, **options)["second"]


class Timer:
    """Times one program; knows how many calls make a group, and how long one call takes."""

    def __init__(self, run: Run, wait: Wait) -> None:
        self.run, self.wait, self.repeats = run, wait, 1
        self.time()  # the first call may allocate
        self.warm = self.time()
        while self.warm < SHORT:
            self.repeats = max(1, int(SHORTEST / self.warm))
            before, self.warm = self.warm, min(self.time() for _ in range(3))
            if self.warm > 0.9 * before:
                break

    def time(self) -> float:
        """Seconds per call, from a group."""
        return _seconds(self.run, self.repeats, time.perf_counter, self.wait)


def compare_all(
    baseline: Run,
    candidates: Mapping[str, Run],
    *,
    budget: float,
    least: int = 4,
    wait: Wait = wait_for_jax,
) -> dict[str, Timing]:
    """Times all candidates for about `budget` seconds together; slow ones get fewer turns.

    The baseline among the candidates is timed exactly as the baseline is. With its own timer it had
    groups of another size, and a small program measured 0.65x itself.
    """
    base = Timer(baseline, wait)
    timers = {n: base if run is baseline else Timer(run, wait) for n, run in candidates.items()}
    share = budget / max(len(timers), 1)
    wanted = {name: _turns_within(share, timer, base, least) for name, timer in timers.items()}
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in timers}
    for turn in range(max(wanted.values(), default=0)):
        names = [name for name in timers if turn < wanted[name]]
        before = base.time()
        for name in names if turn % 2 == 0 else reversed(names):
            seconds, after = timers[name].time(), base.time()
            pairs[name].append(((before + after) / 2, seconds))
            before = after
    return {name: summarize(found) for name, found in pairs.items()}


def _turns_within(budget: float, timer: Timer, baseline: Timer, least: int) -> int:
    turn = timer.repeats * timer.warm + baseline.repeats * baseline.warm
    return int(np.clip(budget / turn, least, MOST_TURNS))


def _seconds(run: Run, repeats: int, clock: Clock, wait: Wait) -> float:
    start = clock()
    for _ in range(repeats):
        out = run()
    wait(out)
    return (clock() - start) / repeats


def summarize(pairs: Sequence[tuple[float, float]]) -> Timing:
    """From the seconds of the baseline and of the candidate next to it.

    >>> summarize([(1.0, 2.0), (2.0, 4.0), (1.0, 8.0)])
    Timing(seconds=4.0, ratio=2.0, low=2.0, high=8.0, pairs=3)
    """
    times = np.array(pairs)
    ratios = times[:, 1] / times[:, 0]
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (2000, ratios.size)), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    baseline, seconds = np.median(times, axis=0).tolist()
    return Timing(seconds, float(np.median(ratios)), float(low), float(high), len(pairs), baseline)
