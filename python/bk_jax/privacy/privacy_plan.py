"""The privacy plan: everything about a run that its epsilon depends on."""

from __future__ import annotations

import dataclasses
from typing import Any

from bk_jax.mechanisms import AdaptiveClipping
from bk_jax.privacy import accounting, checks
from bk_jax.relations import relation_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """`steps` noisy sums of clipped gradients, each over a Poisson sample of the data.

    `bk_jax.privacy.plan` finds the noise multiplier for a budget. If you know the noise multiplier,
    make the plan directly:

    >>> plan = PrivacyPlan(num_examples=1000, batch_size=100, steps=50, delta=1e-5, noise_multiplier=2)
    >>> print(f"{plan.epsilon(25):.2f} {plan.epsilon():.2f}")
    1.19 1.65

    Attributes:
      num_examples: size of the data set, or number of users if a unit is a user. Considered public.
      batch_size: EXPECTED size of a batch: each example is included independently, with probability
        `batch_size / num_examples`. The sum is divided by this constant, never by the actual size.
      steps: how many noisy sums are released.
      delta: the delta of the guarantee.
      noise_multiplier: standard deviation of the noise in units of the clip norm, whatever the
        neighbouring relation.
      l2_clip_norm: norm to which each example's gradient is clipped.
      max_batch_size: `None`: batches may have any size. A number: a larger batch is cut to a
        uniformly random subset of this size ("truncated Poisson"), which costs a little epsilon and
        is accounted for.
      accountant: `"pld"` (tight), `"rdp"`, or `"rdp_whole"`: Renyi accounting at whole orders only,
        which also covers noise on a grid (`bk_jax.mechanisms.on_grid`). All from `dp_accounting`.
      neighboring_relation: how one record differs between two data sets that must look alike:
        `"add_or_remove_one"`, `"replace_one"` or `"replace_special"` (by an empty record), or one
        of `dp_accounting.NeighboringRelation`; stored as the name.
      pld_interval: grid of the `"pld"` accountant. A coarse grid is quick and only overstates
        epsilon.
      adaptive: clip norms that follow the gradients' (`bk_jax.mechanisms.AdaptiveClipping`), from
        `l2_clip_norm` on. `noise_multiplier` is then that of gradient and counts together, and
        `options()` has what is left for the gradient; epsilon stays what it is.
    """

    num_examples: int
    batch_size: float
    steps: int
    delta: float
    noise_multiplier: float
    l2_clip_norm: float = 1.0
    max_batch_size: int | None = None
    accountant: str = "pld"
    neighboring_relation: Any = "add_or_remove_one"
    pld_interval: float = 1e-4
    adaptive: AdaptiveClipping | None = None

    def __post_init__(self) -> None:
        num_examples = checks.whole_number("num_examples", self.num_examples, 1)
        batch_size = checks.batch_size(self.batch_size, num_examples)
        truncated = self.max_batch_size is not None
        checked: dict[str, Any] = {
            "num_examples": num_examples,
            "batch_size": batch_size,
            "steps": checks.whole_number("steps", self.steps, 1),
            "delta": checks.delta(self.delta, num_examples),
            "noise_multiplier": checks.positive("noise_multiplier", self.noise_multiplier),
            "l2_clip_norm": checks.positive("l2_clip_norm", self.l2_clip_norm),
            "pld_interval": checks.positive("pld_interval", self.pld_interval),
            "neighboring_relation": relation_name(self.neighboring_relation),
        }
        if truncated:
            checked["max_batch_size"] = checks.max_batch_size(self.max_batch_size, batch_size)
        checks.choice("accountant", self.accountant, checks.ACCOUNTANTS)
        checks.supported(self.accountant, checked["neighboring_relation"], truncated)
        checks.adaptive(self.adaptive, batch_size, checked["noise_multiplier"])
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def sampling_probability(self) -> float:
        """The probability that an example is in a batch."""
        return self.batch_size / self.num_examples

    @property
    def sampling(self) -> str:
        """`"poisson"` or `"truncated poisson"`."""
        return "poisson" if self.max_batch_size is None else "truncated poisson"

    @property
    def gradient_multiplier(self) -> float:
        """The noise multiplier of the gradient alone: more than both have, if clipping is adaptive."""
        if self.adaptive is None:
            return self.noise_multiplier
        return self.adaptive.split(self.noise_multiplier)

    def options(self) -> dict[str, float]:
        """The keyword arguments that `bk_jax.dp_value_and_grad` needs, at the first step."""
        return {
            "l2_clip_norm": self.l2_clip_norm,
            "noise_multiplier": self.gradient_multiplier,
            "normalize_by": self.batch_size,
        }

    def event(self, steps: int | None = None) -> Any:
        """What `steps` steps (default: all) release, as a `dp_accounting.DpEvent`."""
        return accounting.event(self, self._count(steps))

    def epsilon(self, steps: int | None = None, *, group_size: int = 1) -> float:
        """The epsilon at `delta` of `steps` steps (default: all), which may exceed the plan.

        Args:
          steps: how many noisy sums have been released.
          group_size: how many records of the data set one person may own. Plain Poisson batches are
            analysed exactly with `"pld"` (a mixture of Gaussians, one for each number of the
            group's records in the batch), except for `"replace_one"`. Otherwise the general bound
            is used: (e, d) for one record is (k e, d (exp(k e) - 1) / (exp(e) - 1)) for k.
        """
        size = checks.whole_number("group_size", group_size, 1)
        if size > self.num_examples:
            raise ValueError(f"group_size {size} exceeds num_examples {self.num_examples}.")
        return accounting.epsilon(self, self._count(steps), size)

    def describe(self) -> str:
        """The guarantee in words, with everything that it rests on."""
        cut = f", cut to {self.max_batch_size}" if self.max_batch_size is not None else ""
        return (
            f"({self.epsilon():.3g}, {self.delta:.3g})-differential privacy after {self.steps} steps, "
            f"for data sets that differ by: {self.neighboring_relation.replace('_', ' ')} record\n"
            f"batches: each of {self.num_examples} examples with chance {self.sampling_probability:.4g}"
            f", {self.batch_size:g} expected{cut} ({self.sampling})\n"
            f"gradients: {self._gradients()}\n"
            f"accounting: dp_accounting, {self.accountant}"
        )

    def _gradients(self) -> str:
        if self.adaptive is None:
            return (
                f"clipped to norm {self.l2_clip_norm:g}, noise of standard deviation "
                f"{self.noise_multiplier:.4g} x {self.l2_clip_norm:g} on their sum"
            )
        clip = self.adaptive
        counts = "the count" if clip.groups == 1 else f"each of {clip.groups} counts"
        return (
            f"clipped to norms that start at {self.l2_clip_norm:g} and follow the quantile "
            f"{clip.quantile:g}; noise of standard deviation {self.gradient_multiplier:.4g} x norm on "
            f"their sum and {clip.count_stddev:.4g} on {counts} of unclipped ones, together a noise "
            f"multiplier of {self.noise_multiplier:.4g}"
        )

    def _count(self, steps: int | None) -> int:
        return self.steps if steps is None else checks.whole_number("steps", steps, 0)
