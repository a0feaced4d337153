"""The batches that a plan's accounting assumes.

| plan | batches |
|---|---|
| `PrivacyPlan` | `PoissonSampler` |
| `CorrelatedPlan`, `CyclicPoisson` | `CyclicPoissonSampler` |
| `CorrelatedPlan`, any other participation | `BallsInBins`: every example in one step of an epoch |

An epoch has as many steps as an example rests; an example that takes part once has one epoch.
`FixedSizeSampler` and `MinSeparationSampler` belong to no plan that `fit` knows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bk_jax import mechanisms
from bk_jax.privacy.correlated_plan import CorrelatedPlan
from bk_jax.privacy.plans import Plan
from bk_jax.privacy.privacy_plan import PrivacyPlan
from bk_jax.sampling.dealt import BallsInBins, CyclicPoissonSampler
from bk_jax.sampling.fixed_size import FixedSizeSampler
from bk_jax.sampling.min_separation import MinSeparationSampler
from bk_jax.sampling.poisson import PoissonSampler
from bk_jax.sampling.sampler import Sampler


def sampler_of(plan: Plan, partition_key: jax.Array) -> Callable[[int], Sampler]:
    """A function from the number of a step to the sampler of its batch.

    >>> from bk_jax import privacy
    >>> plan = privacy.CorrelatedPlan(
    ...     noise=mechanisms.BandedInverse.square_root(bands=4),
    ...     participation=mechanisms.MinSeparation(steps=20, separation=10),
    ...     num_examples=1000, batch_size=100, delta=1e-5, noise_multiplier=2.0,
    ... )
    >>> sampler_at = sampler_of(plan, jax.random.key(0))
    >>> [len(sampler_at(step).indices(jax.random.key(step))) for step in (0, 1, 10, 11)]
    [100, 114, 100, 114]

    Args:
      plan: of a kind in the table above.
      partition_key: deals the examples into groups, once for the run: `ledger.partition_key()`.
    """
    check_plan(plan)
    if not isinstance(plan, CorrelatedPlan):
        poisson = PoissonSampler.of(plan)
        return lambda step: poisson
    check_batches(plan)
    who, groups = plan.participation, _groups(plan.participation)
    if isinstance(who, mechanisms.CyclicPoisson):
        chance = who.sampling_probability
        return CyclicPoissonSampler(plan.num_examples, groups, partition_key, chance).at
    return BallsInBins(plan.num_examples, groups, partition_key).at


@dataclasses.dataclass(frozen=True)
class Nobody:
    """Empty batches in the shape of a plan's: for a rehearsal."""

    num_examples: int
    max_batch_size: int | None

    @staticmethod
    def of(plan: Plan) -> Nobody:
        """As `sampler_of(plan)`, with the same errors."""
        check_plan(plan)
        if isinstance(plan, CorrelatedPlan):
            check_batches(plan)
            return Nobody(plan.num_examples, None)
        return Nobody(plan.num_examples, PoissonSampler.of(plan).max_batch_size)

    def indices(self, key: jax.Array) -> np.ndarray[Any, Any]:
        """None."""
        del key
        return np.zeros(0, np.int64)


def check_plan(plan: Any) -> None:
    """It is one; for a sampler that belongs to none, what to use in its place."""
    if isinstance(plan, PrivacyPlan | CorrelatedPlan):
        return
    if isinstance(plan, FixedSizeSampler):
        raise TypeError(
            "there is no plan, and so no ledger, for FixedSizeSampler: it is accounted for where one "
            "record replaces another, and by Renyi divergences only. Use PrivacyPlan(max_batch_size=...)"
            " for batches of one shape; or count steps yourself, with FixedSizeSampler.event and "
            "dp_accounting."
        )
    if isinstance(plan, MinSeparationSampler):
        raise TypeError(
            "the batches of MinSeparationSampler are made by hand: it remembers who took part. Use its "
            "participation(steps) in a CorrelatedPlan, whose ledger counts the steps; fit takes that "
            "plan, too, with balls in bins for batches."
        )
    raise TypeError(
        f"a {type(plan).__name__} is no plan: pass a bk_jax.privacy.PrivacyPlan or CorrelatedPlan, such "
        "as bk_jax.privacy.plan makes."
    )


def check_batches(plan: CorrelatedPlan) -> None:
    """Its batches can be made, and have the size that their sums are divided by."""
    who = plan.participation
    expected = plan.num_examples / _groups(who)
    if isinstance(who, mechanisms.CyclicPoisson):
        expected *= who.sampling_probability
    if abs(expected - plan.batch_size) > 1:
        raise ValueError(
            f"batches of {who} from {plan.num_examples} examples have {expected:.6g} on average, but "
            f"the plan divides by batch_size={plan.batch_size:g}. Pass batch_size={expected:.6g}, or "
            "another participation."
        )
    epochs = math.ceil(plan.steps / _groups(who))
    if isinstance(who, mechanisms.MinSeparation) and epochs > who.participations:
        raise ValueError(
            f"{plan.steps} steps in epochs of {who.separation} are {epochs} epochs, but {who} allows an "
            f"example only {who.participations}. Plan fewer steps, or leave max_participations out."
        )


def _groups(who: mechanisms.Participation) -> int:
    """How many steps lie between two batches with the same example."""
    if isinstance(who, mechanisms.CyclicPoisson):
        return who.groups
    return who.steps if isinstance(who, mechanisms.SingleParticipation) else who.separation
