"""Audits in terms of Gaussian privacy: how far apart two normals are that are as easy to tell apart.

A mechanism is mu-GDP if telling "with" from "without" is no easier than telling N(mu, 1) from N(0, 1).
Noisy sums are, with `mu = 1 / noise_multiplier`; `k` of them with `mu = sqrt(k) / noise_multiplier`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from bk_jax.audit.empirical import checked, count_from, halves, largest_rate, least_rate

LARGEST = 1e4


def mu_lower_bound(with_canary: Any, without: Any, *, confidence: float = 0.95) -> float:
    """A lower bound of mu from the numbers that runs with and without a canary returned.

    At each threshold `mu >= Phi^-1(rate with) - Phi^-1(rate without)`. The threshold is chosen on one
    half of the runs and counted on the other; both rates are bounded as by `epsilon_lower_bound`.

    >>> rng = np.random.default_rng(0)
    >>> print(f"{mu_lower_bound(1 + rng.normal(size=4000), rng.normal(size=4000)):.2f}")
    0.86
    """
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}.")
    (choose_a, count_a), (choose_b, count_b) = map(halves, (with_canary, without))
    alpha = (1 - confidence) / 2
    thresholds = np.unique(np.concatenate([choose_a, choose_b]))
    best = thresholds[np.argmax(_apart(choose_a, choose_b, thresholds, alpha))]
    return max(0.0, float(_apart(count_a, count_b, np.asarray([best]), alpha)[0]))


def estimated_mu(
    with_canary: Any,
    without: Any,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> float:
    """An estimate of a lower bound of mu, by the bootstrap: tighter, but not proven.

    It is a quantile of `sqrt(2) Phi^-1(A)` over resampled runs, where `A` is the chance that a run with
    the canary has a larger number than one without.

    >>> rng = np.random.default_rng(0)
    >>> print(f"{estimated_mu(1 + rng.normal(size=4000), rng.normal(size=4000)):.2f}")
    0.92
    """
    a, b = map(checked, (with_canary, without))
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(
            f"need 0 < confidence < 1 and at least one resample, got {confidence}, {resamples}."
        )
    rng = np.random.default_rng(seed)
    found = [_mu_of_ranks(rng.choice(a, a.size), rng.choice(b, b.size)) for _ in range(resamples)]
    return max(0.0, float(np.quantile(found, 1 - confidence)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon at `delta` of a mechanism that is mu-GDP and no better.

    >>> print(f"{gaussian_epsilon(1.0, 1e-5):.3f}")
    4.377
    """
    if not 0 < delta < 1 or not 0 <= mu <= LARGEST:
        raise ValueError(f"need 0 < delta < 1 and 0 <= mu <= {LARGEST:g}, got {delta} and {mu}.")
    if mu == 0:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * 40
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(mu, middle) > delta else (low, middle)
    return high


def _delta(mu: float, epsilon: float) -> float:
    first = special.ndtr(mu / 2 - epsilon / mu)
    return float(first - np.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)))


def _apart(a: np.ndarray, b: np.ndarray, thresholds: np.ndarray, alpha: float) -> np.ndarray:
    with_rate = least_rate(count_from(a, thresholds), a.size, alpha)
    without = largest_rate(count_from(b, thresholds), b.size, alpha)
    usable = (with_rate > 0) & (without < 1)
    apart = special.ndtri(np.where(usable, with_rate, 0.5))
    return np.where(usable, apart - special.ndtri(np.where(usable, without, 0.5)), -np.inf)


def _mu_of_ranks(a: np.ndarray, b: np.ndarray) -> float:
    ordered = np.sort(b)
    below = np.searchsorted(ordered, a, side="left") + np.searchsorted(ordered, a, side="right")
    chance = np.clip(np.mean(below) / (2 * b.size), 0.5 / b.size, 1 - 0.5 / b.size)
    return float(np.sqrt(2) * special.ndtri(chance))
