"""One-run audits: many canaries, each in the data or not by a coin flip of its own, and one run.

If a run is (epsilon, delta)-private, guesses of the coin flips cannot be right too often: of `r` guesses
among `m` canaries, `v` or more are right with probability at most

    P(B >= v) + 2 m delta * max_i P(v - i <= B < v) / i,     B ~ Binomial(r, 1 / (1 + exp(-epsilon)))

(Steinke, Nasr and Jagielski, 2023, theorem 5.2). The largest epsilon for which what was seen is this
unlikely is a lower bound. It holds for any way of scoring, however canaries influence each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

LARGEST = 40.0  # epsilons above are not told apart
FEWEST_GUESSES = 8


def one_run_epsilon(
    scores: Any,
    included: Any,
    *,
    delta: float,
    guesses: int | None = None,
    confidence: float = 0.95,
) -> float:
    """A lower bound of epsilon that holds with the given confidence, from one run with canaries.

    The canaries of the largest scores are guessed to be in, those of the smallest to be out, and
    nothing is guessed of those between.

    >>> rng = np.random.default_rng(0)
    >>> included = rng.integers(0, 2, 1000).astype(bool)
    >>> scores = included + 0.2 * rng.normal(size=1000)  # a sum of at most 1 each, with noise
    >>> print(f"{one_run_epsilon(scores, included, delta=1e-5):.2f}")
    4.53

    Args:
      scores: one number for each canary, larger for those that look as if they had been in: its loss
        with the sign reversed, or the inner product of a noisy gradient with its own gradient.
      included: what the coin flips were. They must be fair, independent, and drawn for this run.
      delta: the delta of the guarantee.
      guesses: how many coin flips are guessed. By default several numbers are tried, all of them
        within the one confidence.
      confidence: the probability that the bound holds.
    """
    values, flips, tried = checked_guesses(scores, included, guesses)
    risk = (1 - confidence) / len(tried)
    return max(
        guesses_epsilon(
            right_guesses(values, flips, number),
            number,
            canaries=len(values),
            delta=delta,
            confidence=1 - risk,
        )
        for number in tried
    )


def guesses_epsilon(
    right: int, guesses: int, *, canaries: int, delta: float, confidence: float = 0.95
) -> float:
    """A lower bound of epsilon from the number of right guesses.

    >>> guesses_epsilon(50, 100, canaries=100, delta=0.0)  # no better than chance
    0.0
    >>> print(f"{guesses_epsilon(100, 100, canaries=100, delta=0.0):.2f}")
    3.49
    """
    if not 0 <= right <= guesses <= canaries or guesses == 0:
        raise ValueError(
            f"right guesses are some of all guesses, which are some of all canaries; got {right} of "
            f"{guesses} of {canaries}."
        )
    if not 0 <= delta < 1 or not 0 < confidence < 1:
        raise ValueError(f"need 0 <= delta < 1 and 0 < confidence < 1, got {delta}, {confidence}.")
    low, high = 0.0, LARGEST
    if chance_of_guesses(right, guesses, canaries, 0.0, delta) > 1 - confidence:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        unlikely = chance_of_guesses(right, guesses, canaries, middle, delta) <= 1 - confidence
        low, high = (middle, high) if unlikely else (low, middle)
    return low


def chance_of_guesses(
    right: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """The largest probability of so many right guesses under (epsilon, delta)-privacy."""
    if right == 0:
        return 1.0
    rate = 1 / (1 + np.exp(-epsilon))
    below = special.bdtr(np.arange(right), guesses, rate)  # P(B <= 0), ..., P(B <= right - 1)
    fewer = np.concatenate([below[-2::-1], [0.0]])  # P(B < right - i) for i = 1, 2, ..., right
    likely = np.max((below[-1] - fewer) / np.arange(1, right + 1))
    chance = special.bdtrc(right - 1, guesses, rate) + 2 * canaries * delta * likely
    return float(min(chance, 1.0))


def right_guesses(scores: np.ndarray, included: np.ndarray, guesses: int) -> int:
    """How many guesses are right: the larger half of them is for canaries that are in."""
    if not 1 <= guesses <= len(scores):
        raise ValueError(f"guesses must be between 1 and {len(scores)}, got {guesses}.")
    order = np.argsort(scores, kind="stable")
    out = guesses // 2
    return int(np.sum(~included[order[:out]]) + np.sum(included[order[out - guesses :]]))


def _numbers_of_guesses(canaries: int) -> list[int]:
    """All, half of them, a quarter and so on.

    >>> _numbers_of_guesses(50)
    [50, 25, 12]
    """
    numbers = [canaries]
    while numbers[-1] // 2 >= FEWEST_GUESSES:
        numbers.append(numbers[-1] // 2)
    return numbers


def checked_guesses(
    scores: Any, included: Any, guesses: int | None
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Scores, coin flips, and the numbers of guesses to try."""
    values, flips = _checked(scores, included)
    return values, flips, _numbers_of_guesses(len(values)) if guesses is None else [guesses]


def _checked(scores: Any, included: Any) -> tuple[np.ndarray, np.ndarray]:
    values, flips = np.asarray(scores, np.float64), np.asarray(included)
    if values.ndim != 1 or flips.shape != values.shape or not values.size:
        raise ValueError(
            "scores and included must be vectors of one length, one entry for each canary; got shapes "
            f"{values.shape} and {flips.shape}."
        )
    if flips.dtype != bool:
        raise TypeError(f"included must say True or False of each canary, got {flips.dtype}.")
    if not np.all(np.isfinite(values)):
        raise ValueError("scores must be finite: a score that is not would decide a guess.")
    return values, flips
