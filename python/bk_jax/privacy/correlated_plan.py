"""The plan of a run with correlated noise: its ledger counts it as what it is."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from bk_jax._extras import require
from bk_jax.grad_fn import DPValueAndGrad
from bk_jax.mechanisms import CorrelatedNoise, CorrelatedRelease, Participation, correlated
from bk_jax.privacy import accounting, checks
from bk_jax.relations import relation_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelatedPlan:
    """`participation.steps` sums of clipped gradients, with noise that is correlated over the steps.

    `bk_jax.privacy.plan_correlated` finds the noise multiplier for a budget.

    >>> from bk_jax import mechanisms
    >>> plan = CorrelatedPlan(
    ...     noise=mechanisms.BandedInverse.square_root(bands=8),
    ...     participation=mechanisms.MinSeparation(steps=100, separation=20),
    ...     num_examples=1000,
    ...     batch_size=50,
    ...     delta=1e-5,
    ...     noise_multiplier=2.0,
    ... )
    >>> print(plan.steps, f"{plan.epsilon(20):.2f} {plan.epsilon():.2f}")
    100 0.77 1.99

    Attributes:
      noise: which noise; see `bk_jax.mechanisms`.
      participation: at which steps one example may take part. Batches must keep to it.
      num_examples: size of the data set, or number of users. Considered public.
      batch_size: what sums are divided by: the expected size of a batch.
      delta: the delta of the guarantee.
      noise_multiplier: of the whole run, as one Gaussian mechanism (with `CyclicPoisson`, of each step):
        the deviation of a draw in units of the clip norm times the sensitivity of the strategy.
      l2_clip_norm: norm to which each example's gradient is clipped.
      neighboring_relation: as in `PrivacyPlan`.
      pld_interval: grid of the accountant, dp_accounting's `"pld"`.
    """

    noise: CorrelatedNoise
    participation: Participation
    num_examples: int
    batch_size: float
    delta: float
    noise_multiplier: float
    l2_clip_norm: float = 1.0
    neighboring_relation: Any = "add_or_remove_one"
    pld_interval: float = 1e-4

    def __post_init__(self) -> None:
        num_examples = checks.whole_number("num_examples", self.num_examples, 1)
        checked: dict[str, Any] = {
            "batch_size": checks.batch_size(self.batch_size, num_examples),
            "delta": checks.delta(self.delta, num_examples),
            "noise_multiplier": checks.positive("noise_multiplier", self.noise_multiplier),
            "l2_clip_norm": checks.positive("l2_clip_norm", self.l2_clip_norm),
            "pld_interval": checks.positive("pld_interval", self.pld_interval),
            "neighboring_relation": relation_name(self.neighboring_relation),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self.sensitivity()  # known, or an error now

    @property
    def steps(self) -> int:
        """How many steps the run has."""
        return self.participation.steps

    def options(self) -> dict[str, float]:
        """The keyword arguments that `bk_jax.dp_value_and_grad` needs."""
        return {
            "l2_clip_norm": self.l2_clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "normalize_by": self.batch_size,
        }

    def release(self, grad_fn: DPValueAndGrad) -> CorrelatedRelease:
        """What adds this plan's noise to the sums of `grad_fn`, which was made with `options()`."""
        multiplier = float(grad_fn.noise_multiplier)
        if multiplier != self.noise_multiplier:
            raise ValueError(
                f"grad_fn has the noise multiplier {multiplier:g}, the plan {self.noise_multiplier:g}: "
                "make it with dp_value_and_grad(loss_fn, **plan.options())."
            )
        return correlated(grad_fn, self.noise, self.participation)

    def sensitivity(self, steps: int | None = None) -> float:
        """The sensitivity of the first `steps` steps (default: all), in units of the clip norm."""
        pattern = self._first(self.steps if steps is None else steps)
        return pattern.sensitivity(self.noise.strategy(pattern.steps))

    def event(self, steps: int | None = None) -> Any:
        """What the first `steps` steps (default: all) release, as a `dp_accounting.DpEvent`.

        Draws have the deviation that the whole run needs, so fewer steps are a little more private.
        """
        count = self.steps if steps is None else checks.whole_number("steps", steps, 0)
        if count == 0:
            return require("dp_accounting", "dp-accounting").dp_event.NoOpDpEvent()
        if count > self.steps:
            raise ValueError(f"the plan has {self.steps} steps, got steps={count}.")
        multiplier = self.noise_multiplier * self.sensitivity() / self.sensitivity(count)
        return self._first(count).event(multiplier)

    def epsilon(self, steps: int | None = None) -> float:
        """The epsilon at `delta` of the first `steps` steps (default: all)."""
        return _epsilon(self, self.steps if steps is None else steps)

    def describe(self) -> str:
        """The guarantee in words, with everything that it rests on."""
        return (
            f"({self.epsilon():.3g}, {self.delta:.3g})-differential privacy after {self.steps} steps, "
            f"for data sets that differ by: {self.neighboring_relation.replace('_', ' ')} record\n"
            f"batches: {self.participation}\n"
            f"noise: {type(self.noise).__name__}, stores {self.noise.arrays_stored} arrays for each "
            f"parameter; sensitivity {self.sensitivity():.4g} x {self.l2_clip_norm:g}, each draw "
            f"{self.noise_multiplier:.4g} times that\n"
            "accounting: dp_accounting, pld"
        )

    def _first(self, steps: int) -> Participation:
        return dataclasses.replace(self.participation, steps=steps)


@functools.lru_cache(maxsize=1024)
def _epsilon(plan: CorrelatedPlan, steps: int) -> float:
    accountant = accounting.pld_accountant(plan)
    return float(accountant.compose(plan.event(steps)).get_epsilon(plan.delta))
