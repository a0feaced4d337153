"""One-run audits in terms of Gaussian privacy: guesses refute mu instead of epsilon.

Let `v` of `r` guesses among `m` canaries be right, and suppose that this has at least the chance `risk`.
If the mechanism is mu-GDP, then with `G(x) = Phi(Phi^-1(x) - mu)`, going down from `i = v`,

    right_v = risk v / m,     wrong_v = risk (r - v) / m
    wrong_i = max(wrong_{i+1}, G(right_{i+1}))
    right_i = right_{i+1} + i / (r - i) (wrong_i - wrong_{i+1})

are lower bounds of what right and wrong guesses add up to, whose sum can be no more than `r / m`. A mu
for which it is more is refuted (Mahloujifar, Melis and Chaudhuri, 2024). The bound uses the whole
trade-off curve, so it shows more than `one_run_epsilon`; in return, what is refuted is mu-GDP.
"""

from __future__ import annotations

from typing import Any

from scipy import special

from bk_jax.audit.one_run import checked_guesses, right_guesses

LARGEST = 40.0  # mus above are not told apart
TOLERANCE = 1e-4


def one_run_mu(
    scores: Any, included: Any, *, guesses: int | None = None, confidence: float = 0.95
) -> float:
    """A lower bound of mu from one run with canaries; arguments as for `one_run_epsilon`.

    Noise alone is mu-GDP with `mu = 1 / noise_multiplier`, `k` full batches with `sqrt(k)` times that.
    `gaussian_epsilon` says which epsilon a mu is.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> included = rng.integers(0, 2, 1000).astype(bool)
    >>> scores = included + 1.0 * rng.normal(size=1000)  # a sum of at most 1 each, with noise: mu is 1
    >>> print(f"{one_run_mu(scores, included):.2f}")
    0.59
    """
    values, flips, tried = checked_guesses(scores, included, guesses)
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}.")
    risk = (1 - confidence) / len(tried)
    counts = [(right_guesses(values, flips, number), number) for number in tried]
    return max(guesses_mu(*count, canaries=len(values), risk=risk) for count in counts)


def guesses_mu(right: int, guesses: int, *, canaries: int, risk: float) -> float:
    """The largest mu that so many right guesses refute; 0 if they refute none."""
    low, high = 0.0, LARGEST
    if not refuted(0.0, right, guesses, canaries, risk):
        return 0.0
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        is_refuted = refuted(middle, right, guesses, canaries, risk)
        low, high = (middle, high) if is_refuted else (low, middle)
    return low


def refuted(mu: float, right: int, guesses: int, canaries: int, risk: float) -> bool:
    """Whether a mechanism that is mu-GDP lets so many guesses be right less often than `risk`."""
    good, bad = risk * right / canaries, risk * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        worse = max(bad, float(special.ndtr(special.ndtri(min(good, 1.0)) - mu)))
        if worse == bad:
            break  # neither changes from here on
        good, bad = good + i / (guesses - i) * (worse - bad), worse
        if good + bad > guesses / canaries:
            return True
    return good + bad > guesses / canaries
