"""What a loader asks of a sampler."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import numpy as np


class Sampler(Protocol):
    """Which examples the batch of one step holds.

    Attributes:
      num_examples: size of the data set.
      max_batch_size: the largest batch, or `None`.

    >>> import bk_jax
    >>> from bk_jax import sampling
    >>> sampler: Sampler = sampling.PoissonSampler(num_examples=100, batch_size=10)
    >>> rows = sampler.indices(bk_jax.random.key())
    >>> bool((rows < sampler.num_examples).all())
    True
    """

    @property
    def num_examples(self) -> int:
        """Size of the data set."""

    @property
    def max_batch_size(self) -> int | None:
        """The largest batch; `None`: batches may have any size."""

    def indices(self, key: jax.Array) -> np.ndarray[Any, Any]:
        """The examples of the batch, in order."""
