"""From a plan to the events and accountants of `dp_accounting`, which does all the analysis."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bk_jax._extras import require
from bk_jax.mechanisms.grid import WHOLE_ORDERS

if TYPE_CHECKING:
    from bk_jax.privacy.correlated_plan import CorrelatedPlan
    from bk_jax.privacy.privacy_plan import PrivacyPlan

LEAST_EPSILON, LARGEST_EPSILON = 1e-4, 1e4  # where a search for epsilon begins and ends


def event(plan: PrivacyPlan, steps: int, num_examples: int | None = None) -> Any:
    """The event of `steps` steps, on a data set of `num_examples` if that is given.

    Truncated Poisson has its own event. A batch that is too large is cut to a uniformly random
    subset, so whether a record is in the batch depends on the others, and removing one record can
    bring another one in. Plain Poisson accounting of such batches would understate epsilon.
    """
    dp = require("dp_accounting", "dp-accounting").dp_event
    if plan.max_batch_size is None:
        gaussian = dp.GaussianDpEvent(plan.noise_multiplier)
        step = dp.PoissonSampledDpEvent(plan.sampling_probability, gaussian)
    else:
        step = dp.TruncatedSubsampledGaussianDpEvent(
            dataset_size=num_examples or plan.num_examples,
            sampling_probability=plan.sampling_probability,
            truncated_batch_size=plan.max_batch_size,
            noise_multiplier=plan.noise_multiplier,
        )
    return dp.SelfComposedDpEvent(step, steps)


def accountant(plan: PrivacyPlan) -> Any:
    """A fresh accountant of the plan's kind."""
    dp = require("dp_accounting", "dp-accounting")
    relation = dp.NeighboringRelation[plan.neighboring_relation.upper()]
    if plan.accountant == "rdp":
        return dp.rdp.RdpAccountant(neighboring_relation=relation)
    if plan.accountant == "rdp_whole":
        return dp.rdp.RdpAccountant(WHOLE_ORDERS, neighboring_relation=relation)
    return pld_accountant(plan)


def pld_accountant(plan: PrivacyPlan | CorrelatedPlan) -> Any:
    """A fresh accountant of privacy losses on the plan's grid."""
    dp = require("dp_accounting", "dp-accounting")
    relation = dp.NeighboringRelation[plan.neighboring_relation.upper()]
    return dp.pld.PLDAccountant(relation, value_discretization_interval=plan.pld_interval)


@functools.lru_cache(maxsize=1024)
def epsilon(plan: PrivacyPlan, steps: int, group_size: int = 1) -> float:
    """The epsilon at the plan's delta for a group of records."""
    if steps == 0:
        return 0.0
    if group_size == 1:
        return float(accountant(plan).compose(event(plan, steps)).get_epsilon(plan.delta))
    exact = plan.accountant == "pld" and plan.max_batch_size is None
    if exact and plan.neighboring_relation != "replace_one":
        group = _group_event(plan, steps, group_size)
        return float(accountant(plan).compose(group).get_epsilon(plan.delta))
    return _general_group_epsilon(plan, steps, group_size)


def _group_event(plan: PrivacyPlan, steps: int, group_size: int) -> Any:
    """`group_size` records of norm 1, each sampled or not: the sum moves by a binomial count."""
    dp = require("dp_accounting", "dp-accounting").dp_event
    binomial = require("scipy.stats", "scipy").binom(group_size, plan.sampling_probability)
    chances = {k: float(binomial.pmf(k)) for k in range(group_size + 1)}
    possible = {k: chance for k, chance in chances.items() if chance > 0}
    mixture = dp.MixtureOfGaussiansDpEvent(
        plan.noise_multiplier, [float(k) for k in possible], list(possible.values())
    )
    return dp.SelfComposedDpEvent(mixture, steps)


def _general_group_epsilon(plan: PrivacyPlan, steps: int, group_size: int) -> float:
    """The least `k e` such that `delta(e) (exp(k e) - 1) / (exp(e) - 1) <= delta`, to 1e-3.

    The bound goes from one data set to the other in `k` steps of one record. When records are
    removed, the data sets on the way are smaller, which matters for truncated batches: all sizes
    are tried.
    """
    smaller = plan.max_batch_size is not None and plan.neighboring_relation == "add_or_remove_one"
    sizes = range(plan.num_examples - group_size + 1, plan.num_examples + 1)
    events = [event(plan, steps, n) for n in (sizes if smaller else sizes[-1:])]
    spent = [accountant(plan).compose(each) for each in events]

    def fits(single: float) -> bool:
        worst = max(float(each.get_delta(single)) for each in spent)
        return _log(worst) + _log_growth(single, group_size) <= math.log(plan.delta)

    return group_size * _least(fits)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _log_growth(single: float, group_size: int) -> float:
    """log((exp(k e) - 1) / (exp(e) - 1)) without overflow."""
    return (group_size - 1) * single + math.log(
        -math.expm1(-group_size * single) / -math.expm1(-single)
    )


def _least(fits: Callable[[float], bool]) -> float:
    """The least number that fits, from above, to 1e-3 of itself; infinity if none does."""
    upper = LEAST_EPSILON
    while not fits(upper):
        upper *= 2
        if upper > LARGEST_EPSILON:
            return math.inf
    lower = max(upper / 2, LEAST_EPSILON)
    while upper - lower > 1e-3 * upper:
        middle = (lower + upper) / 2
        lower, upper = (lower, middle) if fits(middle) else (middle, upper)
    return upper
