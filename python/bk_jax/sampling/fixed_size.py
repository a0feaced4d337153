"""Batches of a fixed size: every step draws a subset of exactly that size, each equally likely."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from bk_jax._extras import require
from bk_jax.privacy import checks
from bk_jax.relations import relation_name
from bk_jax.sampling.poisson import numbers


@dataclasses.dataclass(frozen=True)
class FixedSizeSampler:
    """`batch_size` different examples, drawn anew at every step.

    dp_accounting analyses it with Renyi divergences for data sets in which one record is replaced, so
    that their size is the same. For records that come or go nobody has an analysis.

    >>> sampler = FixedSizeSampler(num_examples=1000, batch_size=5)
    >>> [len(sampler.indices(jax.random.key(step))) for step in range(3)]
    [5, 5, 5]
    """

    num_examples: int
    batch_size: int

    def __post_init__(self) -> None:
        checks.whole_number("num_examples", self.num_examples, 1)
        checks.whole_number("batch_size", self.batch_size, 1)
        checks.batch_size(self.batch_size, self.num_examples)

    @property
    def max_batch_size(self) -> int:
        """Every batch has this size."""
        return self.batch_size

    def indices(self, key: jax.Array) -> np.ndarray[Any, Any]:
        """The examples with the smallest of independent numbers, in order."""
        drawn = numbers(key, self.num_examples)
        smallest = np.argsort(drawn, kind="stable")[: self.batch_size]
        return np.sort(smallest)

    def event(
        self, noise_multiplier: float, steps: int, neighboring_relation: Any = "replace_one"
    ) -> Any:
        """`steps` steps, as a `dp_accounting.DpEvent` for its Renyi accountant.

        That accountant takes the noise in units of how far the sum moves. Replacing a record moves it by
        two clip norms, so the event has half of `noise_multiplier`, which is in units of one.
        """
        if relation_name(neighboring_relation) != "replace_one":
            raise ValueError(
                "batches of a fixed size are accounted for with neighboring_relation='replace_one' "
                f"alone; got {neighboring_relation!r}. Use PoissonSampler for records that come or go."
            )
        dp = require("dp_accounting", "dp-accounting").dp_event
        sigma = checks.positive("noise_multiplier", noise_multiplier)
        step = dp.SampledWithoutReplacementDpEvent(
            self.num_examples, self.batch_size, dp.GaussianDpEvent(sigma / 2)
        )
        return dp.SelfComposedDpEvent(step, checks.whole_number("steps", steps, 1))
