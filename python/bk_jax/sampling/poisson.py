"""Poisson sampling: each example is in the batch or not, on its own coin flip."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax.privacy import checks
from bk_jax.privacy.privacy_plan import PrivacyPlan

NUMBERS = 2**64  # each example draws one of these


@dataclasses.dataclass(frozen=True)
class PoissonSampler:
    """Draws the batch of a step from the step's key alone, so a resumed run draws the same batches.

    An example is taken if its 64-bit number is below `batch_size / num_examples` of all numbers,
    rounded down, so it is never more likely than accounted for. (A float32 uniform has 23 bits: at
    a chance of one in a million it is off by up to a tenth.) If more than `max_batch_size` are
    taken, those with the smallest numbers stay, which is a uniformly random subset.

    >>> import jax
    >>> sampler = PoissonSampler(num_examples=1000, batch_size=5)
    >>> [len(sampler.indices(jax.random.key(step))) for step in range(6)]
    [6, 4, 5, 10, 3, 6]
    """

    num_examples: int
    batch_size: float
    max_batch_size: int | None = None

    def __post_init__(self) -> None:
        checks.whole_number("num_examples", self.num_examples, 1)
        checks.batch_size(self.batch_size, self.num_examples)
        if self.max_batch_size is not None:
            checks.max_batch_size(self.max_batch_size, self.batch_size)

    @staticmethod
    def of(plan: PrivacyPlan) -> PoissonSampler:
        """The sampler that a plan's accounting assumes."""
        if not isinstance(plan, PrivacyPlan):
            raise TypeError(
                f"PoissonSampler.of expects a PrivacyPlan, got {type(plan).__name__}. With correlated "
                "noise, batches keep to the plan's participation: see docs/mechanisms.md."
            )
        return PoissonSampler(plan.num_examples, plan.batch_size, plan.max_batch_size)

    def indices(self, key: jax.Array) -> np.ndarray[Any, Any]:
        """The examples of a batch, in order; `int64` of any length, including zero."""
        drawn = numbers(key, self.num_examples)
        chosen = np.flatnonzero(chosen_with(drawn, self.batch_size / self.num_examples))
        if self.max_batch_size is None or len(chosen) <= self.max_batch_size:
            return chosen
        smallest = np.argpartition(drawn[chosen], self.max_batch_size)[: self.max_batch_size]
        return np.sort(chosen[smallest])

    def batches(self, keys: Iterable[jax.Array]) -> Iterator[list[int]]:
        """Lists of indices, one for each key: a `batch_sampler` for PyTorch-like loaders."""
        for key in keys:
            yield self.indices(key).tolist()


def chosen_with(drawn: np.ndarray[Any, Any], probability: float) -> np.ndarray[Any, Any]:
    """Which of the numbers are below that share of all numbers, rounded down."""
    limit = int(Fraction(probability) * NUMBERS)
    if limit == 0:
        return np.zeros(drawn.shape, bool)
    return np.asarray(drawn <= np.uint64(limit - 1))


def numbers(key: jax.Array, count: int) -> np.ndarray[Any, Any]:
    """One independent 64-bit number per example."""
    words = np.asarray(_words(key, count)).astype(np.uint64)
    return words[:, 0] << np.uint64(32) | words[:, 1]


@functools.partial(jax.jit, static_argnums=1)
def _words(key: jax.Array, count: int) -> jax.Array:
    return jax.random.bits(key, (count, 2), jnp.uint32)
