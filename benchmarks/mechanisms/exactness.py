"""How exact noise is, and its epsilon computed here: by no library's sensitivities or accountants.

    off(inverse, draws, noise)      the noise beside `C^-1` times its draws, in float64
    normal(noise, deviation)        the noise beside the Gaussian that it should be
    gaussian(mu, delta)             epsilon of two Gaussians `mu` deviations apart, in closed form

`inverse` is the matrix `C^-1`, one row for each step. No JAX here: Opacus' noise is looked at, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

Array = np.ndarray[Any, Any]


def off(inverse: Array, draws: Sequence[Any], noise: Sequence[Any]) -> float:
    """The largest distance over all steps and values. Draws have a deviation of 1."""
    z = np.asarray(draws, np.float64)
    exact = inverse[: len(z), : len(z)] @ z
    return float(np.max(abs(np.asarray(noise, np.float64) - exact)))


def normal(noise: Any, deviation: float) -> float:
    """The Kolmogorov-Smirnov distance from `N(0, deviation^2)`, times the root of the number of values.

    Of exact Gaussians one sample in a hundred is above 1.63, one in a thousand above 1.95.
    """
    expected = ndtr(np.sort(np.asarray(noise, np.float64).ravel()) / deviation)
    below = np.arange(expected.size + 1) / expected.size
    distance = max(np.max(expected - below[:-1]), np.max(below[1:] - expected))
    return float(distance * math.sqrt(expected.size))


def deviation(inverse: Array, step: int) -> float:
    """Of a step's noise, if draws have the deviation 1."""
    return float(np.linalg.norm(inverse[step]))


def distance_of_runs(inverse: Array, stddev: float) -> float:
    """How many deviations apart two runs are that differ by an example of norm 1 at one step.

    A run shows `x + C^-1 z`, and so `C x + z`: an example moves it by its step's column of `C`.
    """
    return float(np.max(np.linalg.norm(np.linalg.inv(inverse), axis=0)) / stddev)


def gaussian_delta(mu: float, epsilon: Any) -> Any:
    """Of two Gaussians `mu` deviations apart (Balle and Wang, 2018); `epsilon` may be below 0."""
    return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


def gaussian(mu: float, delta: float) -> float:
    """Their epsilon."""
    return solved(lambda epsilon: gaussian_delta(mu, epsilon), delta)


def renyi(multiplier: float, orders: Sequence[int], delta: float) -> float:
    """Epsilon of a Gaussian from its moments of whole orders (Canonne, Kamath and Steinke, 2020)."""
    a = np.asarray(orders, np.float64)
    bound = a / (2 * multiplier**2) + np.log1p(-1 / a) - np.log(a * delta) / (a - 1)
    return float(np.min(bound))


class Number(NamedTuple):
    """A Gaussian that is shown beside the gradient."""

    mean: float
    stddev: float


def divided_count(mu: float, count_stddev: float, batch: int, delta: float) -> float:
    """Epsilon of a gradient `mu` deviations away, and `(unclipped + noise) / size of the batch`.

    That is what Opacus shows. The size is that of the batch itself, so one more example, clipped or
    not, moves both halves of the fraction. The largest of all counts, in both directions.
    """
    pairs = []
    for unclipped in range(batch):
        less = Number(unclipped / (batch - 1), count_stddev / (batch - 1))
        for one in (0, 1):
            more = Number((unclipped + one) / batch, count_stddev / batch)
            pairs += [(less, more), (more, less)]
    return max(solved(lambda e, p=p, q=q: _delta(mu, p, q, e), delta) for p, q in pairs)


def _delta(mu: float, p: Number, q: Number, epsilon: float) -> float:
    """Of the gradient and a number from `p` or from `q`: a mean over the numbers of `p`."""
    z = np.linspace(-9, 9, 361)
    number = p.mean + p.stddev * z
    loss = math.log(q.stddev / p.stddev) - z**2 / 2 + ((number - q.mean) / q.stddev) ** 2 / 2
    return float(np.average(gaussian_delta(mu, epsilon - loss), weights=np.exp(-(z**2) / 2)))


def solved(delta_of: Callable[[float], float], delta: float) -> float:
    """The epsilon at which `delta_of`, which falls, is `delta`."""
    low, high = 0.0, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high
