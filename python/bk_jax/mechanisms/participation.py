"""Participation: at which steps one example may take part. It decides sensitivity and event.

With correlated noise the run is one release: `C x + z`, where row `t` of `x` is the clipped sum of step
`t` and `z` are the draws. One example moves `C x` by at most the sensitivity of `C`, which depends on
how often, and how far apart, the example takes part.

| pattern | an example takes part | sensitivity is known for |
|---|---|---|
| `SingleParticipation` | once | every `C` |
| `MinSeparation` | at steps that are at least `separation` apart | `C` with at most `separation` bands, or with coefficients that are not negative and never increase |
| `FixedEpochs` | at steps exactly `separation` apart, as when batches come in the same order in every epoch | the same, or coefficients that are not negative |
| `CyclicPoisson` | at every `groups`-th step, each time by a coin flip | `C` with at most `groups` bands |

Anything else is refused: an upper bound that is not proven here would be an epsilon that is not.
"""  # noqa: E501  (a table)

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from bk_jax import checks
from bk_jax._extras import require
from bk_jax.mechanisms.toeplitz import Column, column, padded


@dataclasses.dataclass(frozen=True)
class SingleParticipation:
    """Every example takes part in at most one of `steps` steps.

    >>> SingleParticipation(4).sensitivity(np.asarray([1.0, 1.0, 1.0, 1.0]))
    2.0
    """

    steps: int

    def __post_init__(self) -> None:
        checks.whole_number("steps", self.steps, 1)

    def sensitivity(self, strategy: Column) -> float:
        """The norm of the largest column of `C`, which is the first."""
        return _norm(_values(strategy, self.steps))

    def event(self, noise_multiplier: float) -> Any:
        """The whole run, as one `dp_accounting.DpEvent`."""
        return _gaussian(noise_multiplier)


@dataclasses.dataclass(frozen=True)
class MinSeparation:
    """An example takes part at steps that are at least `separation` apart.

    Attributes:
      steps: how many steps the run has.
      separation: the least distance of two steps with the same example; 1: any two steps.
      max_participations: how often an example takes part at most; default: as often as fits.

    >>> MinSeparation(12, 3).sensitivity(np.asarray([1.0]))
    2.0
    """

    steps: int
    separation: int
    max_participations: int | None = None

    def __post_init__(self) -> None:
        checks.whole_number("steps", self.steps, 1)
        checks.whole_number("separation", self.separation, 1)
        if self.max_participations is not None:
            checks.whole_number("max_participations", self.max_participations, 1)

    @property
    def participations(self) -> int:
        """How often an example takes part at most."""
        most = math.ceil(self.steps / self.separation)
        return most if self.max_participations is None else min(most, self.max_participations)

    def sensitivity(self, strategy: Column) -> float:
        """Exact. The worst example takes part as early and as often as it may."""
        values = _values(strategy, self.steps)
        if self.participations == 1 or _bands(values) <= self.separation:
            return _norm_of_apart_columns(values, self)
        self._check(values)
        return _norm_of_sum(values, self)

    def _check(self, values: Column) -> None:
        """Kalinin and Lampert (2024), theorem 2: the sum of the earliest columns is the largest."""
        if np.any(values < 0) or np.any(np.diff(values) > 0):
            raise ValueError(
                f"the sensitivity of a strategy with {_bands(values)} bands is known for examples that "
                f"come back after {self.separation} steps only if its coefficients are not negative and "
                "never increase; these are not. Use no more bands than the separation, or another "
                "strategy."
            )

    def event(self, noise_multiplier: float) -> Any:
        """The whole run, as one `dp_accounting.DpEvent`."""
        return _gaussian(noise_multiplier)


@dataclasses.dataclass(frozen=True)
class FixedEpochs(MinSeparation):
    """An example takes part at steps exactly `separation` apart: epochs in the same order.

    >>> FixedEpochs(12, 3).sensitivity(np.asarray([1.0]))
    2.0
    """

    def _check(self, values: Column) -> None:
        if np.any(values < 0):
            raise ValueError(
                f"the sensitivity of a strategy with {_bands(values)} bands is known for epochs of "
                f"{self.separation} steps only if its coefficients are not negative; these are. Use no "
                "more bands than an epoch has steps, or another strategy."
            )


@dataclasses.dataclass(frozen=True)
class CyclicPoisson:
    """Examples are dealt into `groups`; step `t` samples from group `t % groups`, by coin flips.

    Steps of one group are `groups` apart, so with at most that many bands their draws do not mix, and
    the run is as private as `ceil(steps / groups)` steps of DP-SGD (Choquette-Choo et al., 2023).

    Attributes:
      steps: how many steps the run has.
      groups: how many groups there are.
      sampling_probability: the chance that an example of the step's group is in the batch.

    >>> CyclicPoisson(steps=12, groups=3, sampling_probability=0.1).sensitivity(np.asarray([1.0, 0.5]))
    1.118033988749895
    """

    steps: int
    groups: int
    sampling_probability: float

    def __post_init__(self) -> None:
        checks.whole_number("steps", self.steps, 1)
        checks.whole_number("groups", self.groups, 1)
        if not 0 < checks.positive("sampling_probability", self.sampling_probability) <= 1:
            raise ValueError(
                "sampling_probability must be at most 1, got "
                f"{self.sampling_probability}: it is batch_size * groups / num_examples."
            )

    def sensitivity(self, strategy: Column) -> float:
        """The norm of the largest column, for a strategy that mixes no two steps of a group."""
        values = _values(strategy, self.steps)
        if _bands(values) > self.groups:
            raise ValueError(
                f"cyclic Poisson sampling with {self.groups} groups needs a strategy with at most "
                f"{self.groups} bands; this one has {_bands(values)}. Take more groups, or "
                "BandedToeplitz with fewer coefficients."
            )
        return _norm(values)

    def event(self, noise_multiplier: float) -> Any:
        """The steps of one group, as a `dp_accounting.DpEvent`: no example is in another group."""
        dp = require("dp_accounting", "dp-accounting").dp_event
        step = dp.PoissonSampledDpEvent(self.sampling_probability, _gaussian(noise_multiplier))
        return dp.SelfComposedDpEvent(step, math.ceil(self.steps / self.groups))


Participation = SingleParticipation | MinSeparation | FixedEpochs | CyclicPoisson


def _gaussian(noise_multiplier: float) -> Any:
    checks.positive("noise_multiplier", noise_multiplier)
    return require("dp_accounting", "dp-accounting").dp_event.GaussianDpEvent(noise_multiplier)


def _values(strategy: Any, steps: int) -> Column:
    """The first column of `C`, as long as the run; an error if it is none."""
    return padded(column("strategy", strategy), steps)


def _bands(values: Column) -> int:
    return int(np.flatnonzero(values)[-1]) + 1


def _norm(values: Column) -> float:
    return math.sqrt(math.fsum(float(v) ** 2 for v in values))


def _norm_of_apart_columns(values: Column, pattern: MinSeparation) -> float:
    """Columns that share no row are orthogonal; the first ones are the longest."""
    starts = range(0, pattern.participations * pattern.separation, pattern.separation)
    return math.sqrt(math.fsum(_norm(values[: pattern.steps - start]) ** 2 for start in starts))


def _norm_of_sum(values: Column, pattern: MinSeparation) -> float:
    total = np.zeros(pattern.steps)
    for k in range(pattern.participations):
        start = k * pattern.separation
        total[start:] += values[: pattern.steps - start]
    return _norm(total)
