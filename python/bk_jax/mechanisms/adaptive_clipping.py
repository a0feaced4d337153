"""Adaptive clipping: clip norms that follow a quantile of the gradients' norms, privately.

    share = (sum_i ([norm_i <= R] - 1/2) + N(0, count_stddev^2)) / batch_size + 1/2
    R    <- R exp(-learning_rate (share - quantile))

(Andrew, Thakkar, McMahan, Ramaswamy, 2021). The share of unclipped examples is published with noise of
its own, together with the gradient. One example moves the shifted count by 1/2 and the gradient by `R`,
so both together are one Gaussian mechanism, whose multiplier `z` is given by

    1 / z^2 = 1 / z_gradient^2 + groups / (2 count_stddev)^2

A count is a single number that gets published, so its noise is drawn on a grid: twice the shifted
count is whole, one example moves it by 1, which is `grid[0]` steps, and noise is a discrete Gaussian of
`2^grid[1]` steps (`ops.discrete_gaussian`). Whatever comes out can come out for a neighbour, too, and
moving the norm looks at nothing else. docs/numerics.md says how near this is to the Gaussian above.

That is what a plan accounts for: `privacy.PrivacyPlan(..., adaptive=AdaptiveClipping(...))` has the
multiplier for both, and its `options()` the one that is left for the gradient.
"""

from __future__ import annotations

import dataclasses
import fractions
import math
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import checks, ops
from bk_jax._extras import require
from bk_jax.noise import own_words
from bk_jax.ops.discrete_gaussian import LEAST_BITS, MOST_BITS
from bk_jax.summing.stats import Stats

# "bkac": the count's noise has a key of its own, made from the step's noise key.
COUNT_TAG = 0x626B6163
STEP_BITS = 30  # one example moves a count by at most 2^30 steps, which fit into int32
MOST_EXAMPLES = 1 << 22  # sums of votes are exact in float32, also for batches four times as large


@dataclasses.dataclass(frozen=True)
class AdaptiveClipping:
    """How clip norms follow the norms.

    >>> clip = AdaptiveClipping(batch_size=200, count_stddev=10.0)
    >>> print(f"{clip.split(1.0):.4f}")  # the gradient's noise, if both together have the multiplier 1
    1.0013

    Attributes:
      batch_size: the expected size of a batch; a plan with another one is an error.
      quantile: the share of examples that should not be clipped.
      learning_rate: how fast norms move; by at most a factor `exp(learning_rate)`, but for noise.
      count_stddev: deviation of the noise of each count; a twentieth of `batch_size` is usual. What is
        drawn has this or a little more: one part in `grid[0]`, 3e-6 for a deviation of 20.
      groups: how many clip norms there are, for clipping per group of parameters.
    """

    batch_size: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_stddev: float | None = None
    groups: int = 1

    def __post_init__(self) -> None:
        size = checks.positive("batch_size", self.batch_size)
        if not 0 < checks.positive("quantile", self.quantile) < 1:
            raise ValueError(f"quantile must be between 0 and 1, got {self.quantile}.")
        stddev = size / 20 if self.count_stddev is None else self.count_stddev
        checked: dict[str, Any] = {
            "batch_size": size,
            "quantile": float(self.quantile),
            "learning_rate": checks.positive("learning_rate", self.learning_rate),
            "count_stddev": checks.positive("count_stddev", stddev),
            "groups": checks.whole_number("groups", self.groups, 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if size > MOST_EXAMPLES:
            raise ValueError(
                f"batch_size {size:g} is too large for counts that are exact in float32. Make it "
                "at most 2^22, or clip to a norm that stays."
            )
        if not 2.0**-23 <= self._stddev() <= 2.0**23:
            raise ValueError(
                f"count_stddev must be between 2^-23 and 2^23, got {self._stddev():g}; a twentieth of "
                "batch_size is usual."
            )

    @property
    def grid(self) -> tuple[int, int]:
        """How many grid steps one example moves a count by, and the bits of the noise's deviation.

        The steps are rounded down, so that `2^bits / steps` is at least `2 count_stddev`.
        """
        wanted = 2 * fractions.Fraction(self._stddev())
        bits = min(MOST_BITS, STEP_BITS + math.frexp(float(wanted))[1] - 1)
        assert bits >= LEAST_BITS  # by the limits of count_stddev
        return math.floor(2**bits / wanted), bits

    def combined(self, gradient_multiplier: float) -> float:
        """The multiplier of gradient and counts together, as a plan counts them."""
        inverse = 1 / checks.positive("gradient_multiplier", gradient_multiplier) ** 2
        return 1 / math.sqrt(inverse + self._of_counts())

    def split(self, noise_multiplier: float) -> float:
        """The gradient's multiplier, if both together are to have the plan's `noise_multiplier`."""
        left = 1 / checks.positive("noise_multiplier", noise_multiplier) ** 2 - self._of_counts()
        if left <= 0:
            least = noise_multiplier * math.sqrt(self.groups) / 2
            raise ValueError(
                f"count_stddev {self.count_stddev:g} spends all of noise_multiplier "
                f"{noise_multiplier:g} on counts. It must be above {least:g}; ten times that leaves "
                "99 % for the gradient."
            )
        return 1 / math.sqrt(left)

    def event(self, gradient_multiplier: float) -> Any:
        """Gradient and counts of one batch, as a `dp_accounting.DpEvent`, without sampling."""
        dp = require("dp_accounting", "dp-accounting").dp_event
        return dp.GaussianDpEvent(self.combined(gradient_multiplier))

    def update(
        self, clip_norm: Any, stats: Stats, *, key: jax.Array, is_padding_example: Any = None
    ) -> Any:
        """The clip norm, or tree of them, for the next step: `moved` by `votes`.

        Args:
          clip_norm: the norm of this step, or a tree of `groups` norms.
          stats: what a call with `return_stats=True`, or `clipped_sums`, returned for the whole batch.
          key: the noise key of the step, the same as for the gradient.
          is_padding_example: as in the call.
        """
        votes = self.votes(clip_norm, stats, is_padding_example=is_padding_example)
        return self.moved(clip_norm, votes, key=key)

    def votes(self, clip_norm: Any, stats: Stats, *, is_padding_example: Any = None) -> jax.Array:
        """1/2 for every unclipped example and -1/2 for every clipped one, added up, `[groups]`.

        NOT private. For a batch in parts: add up what this returns for each, and call `moved` once.
        """
        limits = self._norms(clip_norm)
        if stats.norms.ndim != (1 if self.groups == 1 else 2):
            raise self._differs(limits, f" and norms of shape {stats.norms.shape}")
        votes = jnp.where(stats.norms.reshape(-1, self.groups) <= jnp.stack(limits), 0.5, -0.5)
        if is_padding_example is not None:
            votes = jnp.where(jnp.asarray(is_padding_example)[:, None], 0.0, votes)
        return jnp.sum(votes, axis=0)

    def moved(self, clip_norm: Any, votes: jax.Array, *, key: jax.Array) -> Any:
        """The clip norm, or tree of them, for the next step, from the votes of a whole batch."""
        norms = self._norms(clip_norm)
        share = self._noisy(votes, self._noise(votes, key)) / self.batch_size + 0.5
        factor = jnp.exp(-self.learning_rate * (share - self.quantile))
        new = [norm * factor[i] for i, norm in enumerate(norms)]
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(clip_norm), new)

    def _noise(self, votes: jax.Array, key: jax.Array) -> jax.Array:
        """Discrete Gaussians in grid steps, one for each group; under `vmap` each model needs a key."""
        zeros = jnp.zeros(self.groups, jnp.int32)
        words = own_words(jax.random.fold_in(key, COUNT_TAG), [jnp.asarray(votes)])
        return ops.discrete_gaussian(zeros, words, bits=self.grid[1])

    def _noisy(self, votes: jax.Array, noise: jax.Array) -> jax.Array:
        """The votes with their noise, as a function of the whole number `2 steps votes + noise` alone.

        That number may not fit into 32 bits; its quotient by `steps` and the remainder do.
        """
        steps = self.grid[0]
        twice = jnp.round(2 * votes).astype(jnp.int32)
        quotient = jnp.floor_divide(noise, steps)
        remainder = noise - steps * quotient
        return ((twice + quotient).astype(jnp.float32) + remainder.astype(jnp.float32) / steps) / 2

    def _norms(self, clip_norm: Any) -> list[jax.Array]:
        norms = [jnp.asarray(norm) for norm in jax.tree_util.tree_leaves(clip_norm)]
        if len(norms) != self.groups:
            raise self._differs(norms)
        return norms

    def _differs(self, norms: list[jax.Array], more: str = "") -> ValueError:
        return ValueError(
            f"AdaptiveClipping was made for groups={self.groups}; got {len(norms)} clip norms{more}. "
            "Pass l2_clip_norm as a tree of that many numbers, one for each group of parameters."
        )

    def _of_counts(self) -> float:
        return self.groups / (2 * self._stddev()) ** 2

    def _stddev(self) -> float:
        assert self.count_stddev is not None  # set when it was made
        return self.count_stddev
