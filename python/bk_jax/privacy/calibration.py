"""From a budget to a plan: the least noise that keeps within (epsilon, delta)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from bk_jax._extras import require
from bk_jax.mechanisms import AdaptiveClipping, CorrelatedNoise, CyclicPoisson, Participation
from bk_jax.privacy import accounting, checks
from bk_jax.privacy.correlated_plan import CorrelatedPlan
from bk_jax.privacy.plans import Plan
from bk_jax.privacy.privacy_plan import PrivacyPlan

GRID_ERROR = 5e-4  # the share of epsilon that the grid of the "pld" accountant may add
FINEST, COARSEST = 1e-5, 5e-3
COARSE = 10  # times the grid, for the first search
TOLERANCE = 1e-4  # of the noise multiplier, relative
LARGEST_NOISE = 1e6
CUT_CHANCE = 1e-3  # max_batch_size="auto": share of delta that the chance of any cut batch may be


def plan(
    *,
    target_epsilon: float,
    delta: float,
    num_examples: int,
    batch_size: float,
    epochs: float | None = None,
    steps: int | None = None,
    l2_clip_norm: float = 1.0,
    max_batch_size: int | str | None = None,
    accountant: str = "pld",
    neighboring_relation: Any = "add_or_remove_one",
    adaptive: AdaptiveClipping | None = None,
) -> PrivacyPlan:
    """The plan with the least noise whose epsilon is at most `target_epsilon`.

    >>> from bk_jax import privacy
    >>> plan = privacy.plan(
    ...     target_epsilon=2, delta=1e-5, num_examples=1000, batch_size=100, epochs=5
    ... )
    >>> print(plan.steps, f"{plan.noise_multiplier:.2f} {plan.epsilon():.2f}")
    50 1.75 2.00

    Args:
      target_epsilon: the budget. The plan's epsilon is within 1e-3 of it, relative, and never
        above.
      delta: must be below 1 / num_examples.
      num_examples: size of the data set, or the number of users.
      batch_size: expected size of a Poisson batch.
      epochs: expected passes over the data; pass either this or `steps`.
      steps: number of steps; pass either this or `epochs`.
      l2_clip_norm: see `PrivacyPlan`. Epsilon does not depend on it.
      max_batch_size: a number, `None` for batches of any size, or `"auto"` for the smallest
        multiple of 8 at which truncation costs next to nothing.
      accountant: `"pld"`, `"rdp"` or `"rdp_whole"`; see `PrivacyPlan`.
      neighboring_relation: see `PrivacyPlan`.
      adaptive: clip norms that follow the gradients'; see `PrivacyPlan`. The budget is for gradient and
        counts together.
    """
    target = checks.positive("target_epsilon", target_epsilon)
    examples = checks.whole_number("num_examples", num_examples, 1)
    checks.batch_size(batch_size, examples)
    count = _steps(epochs, steps, examples, batch_size)
    start = PrivacyPlan(
        num_examples=examples,
        batch_size=batch_size,
        steps=count,
        delta=checks.delta(delta, examples),
        noise_multiplier=1.0,
        l2_clip_norm=l2_clip_norm,
        max_batch_size=_max_batch_size(max_batch_size, examples, batch_size, count, delta),
        accountant=accountant,
        neighboring_relation=neighboring_relation,
        pld_interval=_interval(target, count),
    )
    coarse = dataclasses.replace(start, accountant="pld", pld_interval=COARSE * start.pld_interval)
    found = _calibrate(start, coarse, target, start.sampling_probability, count)
    return dataclasses.replace(start, noise_multiplier=found, adaptive=adaptive)


def plan_correlated(
    *,
    target_epsilon: float,
    delta: float,
    num_examples: int,
    batch_size: float,
    noise: CorrelatedNoise,
    participation: Participation,
    l2_clip_norm: float = 1.0,
    neighboring_relation: Any = "add_or_remove_one",
) -> CorrelatedPlan:
    """The plan with the least correlated noise whose epsilon is at most `target_epsilon`.

    >>> from bk_jax import mechanisms, privacy
    >>> plan = privacy.plan_correlated(
    ...     target_epsilon=2, delta=1e-5, num_examples=1000, batch_size=50,
    ...     noise=mechanisms.BandedInverse.square_root(bands=8),
    ...     participation=mechanisms.FixedEpochs(steps=100, separation=20),
    ... )
    >>> print(plan.steps, f"{plan.noise_multiplier:.2f} {plan.epsilon():.2f}")
    100 1.99 2.00

    Args:
      target_epsilon: the budget, as for `plan`.
      delta: must be below 1 / num_examples.
      num_examples: size of the data set, or number of users.
      batch_size: what sums are divided by; see `CorrelatedPlan`.
      noise: which noise; see `bk_jax.mechanisms`.
      participation: at which steps one example may take part; it says how many steps there are.
      l2_clip_norm: see `CorrelatedPlan`. Epsilon does not depend on it.
      neighboring_relation: see `PrivacyPlan`.
    """
    target = checks.positive("target_epsilon", target_epsilon)
    count, chance = _sampled(participation)
    start = CorrelatedPlan(
        noise=noise,
        participation=participation,
        num_examples=num_examples,
        batch_size=batch_size,
        delta=delta,
        noise_multiplier=1.0,
        l2_clip_norm=l2_clip_norm,
        neighboring_relation=neighboring_relation,
        pld_interval=_interval(target, count),
    )
    coarse = dataclasses.replace(start, pld_interval=COARSE * start.pld_interval)
    return dataclasses.replace(
        start, noise_multiplier=_calibrate(start, coarse, target, chance, count)
    )


def _sampled(participation: Participation) -> tuple[int, float]:
    """How many Gaussians the run is composed of, and with what chance an example is in one."""
    if isinstance(participation, CyclicPoisson):
        rounds = math.ceil(participation.steps / participation.groups)
        return rounds, participation.sampling_probability
    return 1, 1.0


def _interval(target: float, count: int) -> float:
    """A grid so fine that it adds at most the share `GRID_ERROR` to epsilon."""
    return min(max(math.sqrt(GRID_ERROR * target / count), FINEST), COARSEST)


def _steps(epochs: Any, steps: Any, num_examples: int, batch_size: float) -> int:
    if (epochs is None) == (steps is None):
        raise ValueError(f"give either epochs or steps; got epochs={epochs!r} and steps={steps!r}.")
    if steps is not None:
        return checks.whole_number("steps", steps, 1)
    return max(1, round(checks.positive("epochs", epochs) * num_examples / batch_size))


def _max_batch_size(
    size: int | str | None, num_examples: int, batch_size: float, steps: int, delta: float
) -> int | None:
    """With "auto", so large that any batch is cut with a chance of at most `CUT_CHANCE * delta`."""
    if size is None or not isinstance(size, str):
        return size
    checks.choice("max_batch_size", size, ("auto",))
    binomial = require("scipy.stats", "scipy").binom(num_examples, batch_size / num_examples)
    rare = int(binomial.isf(CUT_CHANCE * delta / steps))
    return min(num_examples, -(-max(rare, 1) // 8) * 8)


def _calibrate(start: Plan, coarse: Plan, target: float, chance: float, count: int) -> float:
    """Searches twice: on a coarse grid, quick and only overstating noise, then as planned.

    For `count` Gaussians, each of which has an example with that chance.
    """
    spread = chance * math.sqrt(2 * count * math.log(1 / start.delta))
    guess = max(1.0, spread / target)  # the accountant is slow for little noise: start above
    near = _search(coarse, target, guess, factor=1.5, tolerance=0.01)
    return _search(start, target, near, factor=1.1, tolerance=TOLERANCE)


def _search(start: Plan, target: float, guess: float, factor: float, tolerance: float) -> float:
    """The noise multiplier that meets the target, by `dp_accounting`, in a bracket near a guess."""
    dp = require("dp_accounting", "dp-accounting")
    lower, upper = _bracket(start, target, guess, factor)
    sigma = dp.calibrate_dp_mechanism(
        lambda: _accountant(start),
        lambda sigma: dataclasses.replace(start, noise_multiplier=sigma).event(),
        target,
        start.delta,
        dp.ExplicitBracketInterval(lower, upper),
        tol=tolerance * lower,
    )
    return float(sigma)


def _accountant(plan: Plan) -> Any:
    if isinstance(plan, CorrelatedPlan):
        return accounting.pld_accountant(plan)
    return accounting.accountant(plan)


def _bracket(start: Plan, target: float, guess: float, factor: float) -> tuple[float, float]:
    """Two noise multipliers a `factor` apart, one too small and one large enough."""

    def enough(sigma: float) -> bool:
        if sigma > LARGEST_NOISE:
            raise ValueError(
                f"no noise multiplier below {LARGEST_NOISE:g} brings {start.steps} steps within epsilon "
                f"{target:g} at delta {start.delta:g}. Ask for a larger epsilon, or take fewer steps."
            )
        return dataclasses.replace(start, noise_multiplier=sigma).epsilon() <= target

    upper = guess
    while not enough(upper):
        upper *= factor
    lower = upper / factor
    while enough(lower):
        lower, upper = lower / factor, lower
    return lower, upper
