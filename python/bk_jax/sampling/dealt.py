"""Samplings that deal the examples into groups once; step `t` looks at group `t % groups` alone.

Each example's group is drawn on its own, so adding or removing an example changes no other's group.
The key of the deal belongs to the run: `ledger.partition_key()`. It is drawn again when a run resumes.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from bk_jax import mechanisms
from bk_jax.privacy import checks
from bk_jax.sampling.poisson import chosen_with, numbers

# "bkpt": keeps the deal apart from batches that somebody draws from the same key.
DEAL_TAG = 0x626B7074


@dataclasses.dataclass(frozen=True, eq=False)
class _Dealt:
    """Examples in groups, and the sampler of one step."""

    num_examples: int
    groups: int
    partition_key: jax.Array

    def __post_init__(self) -> None:
        checks.whole_number("num_examples", self.num_examples, 1)
        checks.whole_number("groups", self.groups, 1)

    @functools.cached_property
    def group(self) -> np.ndarray[Any, Any]:
        """The group of each example: `floor(groups * u)` for 64-bit numbers, so even to 2^-32."""
        key = jax.random.fold_in(self.partition_key, DEAL_TAG)
        drawn = numbers(key, self.num_examples) >> np.uint64(32)
        return np.asarray((drawn * np.uint64(self.groups)) >> np.uint64(32)).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class _OfOneStep:
    """What a `Loader` takes: those of `candidates` that the step's coin flips choose."""

    num_examples: int
    candidates: np.ndarray[Any, Any]
    probability: float
    max_batch_size: int | None = None

    def indices(self, key: jax.Array) -> np.ndarray[Any, Any]:
        """The examples of the batch, in order."""
        if self.probability == 1.0:
            return np.flatnonzero(self.candidates)
        flips = chosen_with(numbers(key, self.num_examples), self.probability)
        return np.flatnonzero(flips & self.candidates)


@dataclasses.dataclass(frozen=True, eq=False)
class CyclicPoissonSampler(_Dealt):
    """Poisson batches from one group after the other: what amplifies `BandedToeplitz` noise.

    Attributes:
      num_examples: size of the data set.
      groups: at least as many as the strategy has bands.
      partition_key: of the deal; `ledger.partition_key()`.
      sampling_probability: chance of an example of the step's group; batches have
        `num_examples * sampling_probability / groups` examples on average.

    >>> sampler = CyclicPoissonSampler(1000, 4, jax.random.key(0), 0.1)
    >>> [len(sampler.at(step).indices(jax.random.key(step))) for step in range(4)]
    [27, 25, 19, 25]
    """

    sampling_probability: float

    def at(self, step: int) -> _OfOneStep:
        """The sampler of one step, for a `Loader`."""
        here = self.group == step % self.groups
        return _OfOneStep(self.num_examples, here, self.sampling_probability)

    def participation(self, steps: int) -> mechanisms.CyclicPoisson:
        """What its accounting rests on."""
        return mechanisms.CyclicPoisson(steps, self.groups, self.sampling_probability)


@dataclasses.dataclass(frozen=True, eq=False)
class BallsInBins(_Dealt):
    """Every example is in one of `groups` bins; step `t` takes all of bin `t % groups`.

    An epoch has `groups` steps, in the same order each time.

    >>> sampler = BallsInBins(1000, 4, jax.random.key(0))
    >>> [len(sampler.at(step).indices(jax.random.key(step))) for step in range(4)]
    [269, 251, 240, 240]
    """

    def at(self, step: int) -> _OfOneStep:
        """The sampler of one step, for a `Loader`; its key is not used."""
        return _OfOneStep(self.num_examples, self.group == step % self.groups, 1.0)

    def participation(self, steps: int, *, amplified: bool = False) -> mechanisms.FixedEpochs:
        """What its accounting rests on: which bin is an example's counts as known."""
        refuse_amplification("balls in bins", amplified)
        return mechanisms.FixedEpochs(steps, self.groups)


def refuse_amplification(sampling: str, amplified: bool) -> None:
    """dp_accounting has no event for it."""
    if amplified:
        raise ValueError(
            f"no event of dp_accounting covers amplification by {sampling}; there are only Monte Carlo "
            "estimates. Leave amplified out: then its randomness is not counted on, which is safe. Or "
            "use CyclicPoissonSampler, whose amplification is accounted for."
        )
