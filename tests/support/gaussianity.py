"""Is a sample one of independent standard normals? Answers in standard errors or as p-values.

A check returns a `Finding`; `surprising` says whether chance is a poor explanation. Samples have fixed
keys, so a check passes always or never; its threshold says how unlucky a good generator may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special, stats

STANDARD_ERRORS = 5.0  # two-sided: one good statistic in 1.7 million is beyond it
P_VALUE = 1e-4


class Finding(NamedTuple):
    """One statistic: a distance from its expectation in standard errors, or a p-value."""

    name: str
    errors: float = 0.0
    p_value: float = 1.0

    @property
    def surprising(self) -> bool:
        return not (abs(self.errors) < STANDARD_ERRORS and self.p_value > P_VALUE)


def moments(z: np.ndarray) -> Iterator[Finding]:
    """Powers 1 to 8: `E z^k` is 0 or `(k-1)!!`, and the variance of `z^k` is `E z^2k - (E z^k)^2`."""
    power = np.ones_like(z)
    for k in range(1, 9):
        power *= z
        expected = _moment(k)
        error = math.sqrt((_moment(2 * k) - expected**2) / z.size)
        yield Finding(f"moment {k}", (float(power.mean()) - expected) / error)


def distribution(z: np.ndarray) -> Iterator[Finding]:
    """Kolmogorov-Smirnov, Anderson-Darling, and a chi-squared test with 4096 equal shares."""
    ordered = np.sort(z)
    yield Finding("Kolmogorov-Smirnov", p_value=_kolmogorov(special.ndtr(ordered)))
    yield Finding("Anderson-Darling", p_value=_anderson(ordered))
    counts = np.bincount((special.ndtr(z) * 4096).astype(int), minlength=4096)
    yield Finding("chi-squared", p_value=float(stats.chisquare(counts).pvalue))


def tails(counts: np.ndarray, limits: np.ndarray, size: int) -> Iterator[Finding]:
    """How many of `size` values are beyond each limit on either side: a binomial number."""
    for count, limit in zip(counts, limits, strict=True):
        share = 2 * float(special.ndtr(-limit))
        p_value = stats.binomtest(int(count), size, share).pvalue
        yield Finding(
            f"beyond {limit:g} sigma: {count}, expected {size * share:.2f}", p_value=p_value
        )


def correlation(name: str, x: np.ndarray, y: np.ndarray) -> Iterator[Finding]:
    """Of the values, of their squares, and of values with squares."""
    squares = [(v * v - 1) / math.sqrt(2) for v in (x, y)]
    pairs = {"z, z": (x, y), "z^2, z^2": tuple(squares), "z, z^2": (x, squares[1])}
    for kind, (a, b) in pairs.items():
        yield Finding(f"{name} ({kind})", float(a @ b) / math.sqrt(x.size))


def lags(z: np.ndarray, distances: list[int]) -> Iterator[Finding]:
    """Correlation with the value some places further on."""
    for k in distances:
        yield from correlation(f"lag {k}", z[:-k], z[k:])


def report(findings: Iterator[Finding]) -> list[Finding]:
    """The surprising ones."""
    return [finding for finding in findings if finding.surprising]


def _moment(k: int) -> float:
    return 0.0 if k % 2 else float(special.factorial2(k - 1))


def _kolmogorov(uniform: np.ndarray) -> float:
    n = uniform.size
    steps = np.arange(n) / n
    distance = max(np.max(uniform - steps), np.max(steps + 1 / n - uniform))
    return float(special.kolmogorov(distance * math.sqrt(n)))


def _anderson(ordered: np.ndarray) -> float:
    """P(A^2 > observed) for a sample of a known distribution.

    The limit distribution of Marsaglia and Marsaglia, "Evaluating the Anderson-Darling distribution"
    (2004), in their approximation for A^2 >= 2.
    """
    n = ordered.size
    weights = 2 * np.arange(1, n + 1) - 1
    logs = special.log_ndtr(ordered) + special.log_ndtr(-ordered[::-1])
    a = -n - float(weights @ logs) / n
    if a < 2:
        return 0.09  # P(A^2 > 2) is 9 %: nothing to be surprised about
    inner = 2.30695 - (0.43424 - (0.082433 - (0.008056 - 0.0003146 * a) * a) * a) * a
    return max(0.0, -math.expm1(-math.exp(1.0776 - inner * a))) if a < 20 else 0.0
