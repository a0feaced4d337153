"""Sampling with a least distance: who took part rests for the next steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from bk_jax import mechanisms
from bk_jax.privacy import checks
from bk_jax.sampling.dealt import refuse_amplification
from bk_jax.sampling.poisson import chosen_with, numbers

NEVER = np.iinfo(np.int64).min // 2


@dataclasses.dataclass(frozen=True)
class MinSeparationSampler:
    """Each example that is not resting joins by a coin flip, then rests for `separation - 1` steps.

    It remembers when each example last took part, `int64[num_examples]`. That says who was in which
    batch, so keep it as secret as the data, and save it with the checkpoint.

    >>> sampler = MinSeparationSampler(1000, separation=3, sampling_probability=0.5)
    >>> last = sampler.init()
    >>> sizes = []
    >>> for step in range(4):
    ...     indices, last = sampler.indices(jax.random.key(step), step, last)
    ...     sizes.append(len(indices))
    >>> sizes
    [489, 243, 136, 315]
    """

    num_examples: int
    separation: int
    sampling_probability: float

    def __post_init__(self) -> None:
        checks.whole_number("num_examples", self.num_examples, 1)
        checks.whole_number("separation", self.separation, 1)
        if not checks.positive("sampling_probability", self.sampling_probability) <= 1:
            raise ValueError(
                f"sampling_probability must be at most 1, got {self.sampling_probability}."
            )

    def init(self) -> np.ndarray[Any, Any]:
        """Nobody has taken part."""
        return np.full(self.num_examples, NEVER)

    def indices(
        self, key: jax.Array, step: int, last: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The examples of a batch, in order, and who took part when."""
        flips = chosen_with(numbers(key, self.num_examples), self.sampling_probability)
        chosen = flips & (last <= step - self.separation)
        return np.flatnonzero(chosen), np.where(chosen, step, last)

    def participation(self, steps: int, *, amplified: bool = False) -> mechanisms.MinSeparation:
        """What its accounting rests on: the distance alone, not the coin flips."""
        refuse_amplification("sampling with a least distance", amplified)
        return mechanisms.MinSeparation(steps, self.separation)
